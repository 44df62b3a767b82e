//! Acknowledgements that wait for the program's answer.
//!
//! Two programs in conversation send one small message each, turn about. An ACK of each, sent at once, costs a system
//! call and a datagram that say nothing which the answer does not say as well; and it is in the way: the program sees its
//! message only afterwards. So once a few messages in a row were answered promptly, the ACK of the next one waits for
//! the answer and travels with it (delayed acknowledgement, RFC 1122 section 4.2.3.2, for conversations only). Nobody else
//! waits: who writes without being answered hears at once that the bytes have landed.
//!
//! The price: a program that is killed while an ACK waits has, for its peer, been killed before the message came.

use srdma_seams::{Duration, Now};

/// Prompt answers in a row that make a conversation.
const ANSWERS_MIN: u8 = 4;
/// An answer within this time is prompt. Shorter than any time after which a silent tail is probed.
pub const ANSWER_WAIT: Duration = Duration::from_micros(200);

/// What is known of how the two programs talk.
#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    /// Prompt answers in a row, as far as they count.
    answers: u8,
    /// When the message came that has had no answer yet.
    heard_at: Option<Now>,
    /// Its ACK waits until then.
    held_until: Option<Now>,
}

impl Dialogue {
    /// An ACK is due. It may wait only if it is `lone`: one packet came, in order, and there is nothing else to say.
    /// `allowed`: the caller will look again in time. Whether it waits.
    pub fn hold(&mut self, now: Now, lone: bool, allowed: bool) -> bool {
        match self.held_until.take() {
            _ if !lone => {
                *self = Dialogue::default();
                false
            }
            Some(until) if now < until => {
                self.held_until = Some(until);
                true
            }
            Some(_) => {
                *self = Dialogue::default();
                false
            }
            None => {
                if self.heard_at.replace(now).is_some() {
                    self.answers = 0;
                }
                let waits = allowed && self.answers >= ANSWERS_MIN;
                self.held_until = waits.then(|| now + ANSWER_WAIT);
                waits
            }
        }
    }

    /// Something new is being sent.
    pub fn answered(&mut self, now: Now) {
        if let Some(heard_at) = self.heard_at.take() {
            let prompt = now.since(heard_at) <= ANSWER_WAIT;
            self.answers = if prompt { (self.answers + 1).min(ANSWERS_MIN) } else { 0 };
        }
    }

    /// The ACK is being sent.
    pub fn acknowledged(&mut self) {
        self.held_until = None;
    }

    /// Until when the ACK waits, if it does.
    pub fn held_until(&self) -> Option<Now> {
        self.held_until
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const STEP: u64 = 20_000;

    /// A conversation of `turns` turns from `from` on: whether each ACK waits, and when the last answer was.
    fn talk(dialogue: &mut Dialogue, from: Now, turns: usize) -> (Vec<bool>, Now) {
        let mut now = from;
        let turn = |_| {
            now += Duration(STEP);
            let waits = dialogue.hold(now, true, true);
            now += Duration(STEP);
            dialogue.answered(now);
            dialogue.acknowledged();
            waits
        };
        let waits = (0..turns).map(turn).collect();
        (waits, now)
    }

    #[test]
    fn an_ack_waits_once_messages_were_answered_promptly_and_no_longer_than_allowed() {
        let mut dialogue = Dialogue::default();
        let (waits, now) = talk(&mut dialogue, Now(0), 6);
        assert_eq!(waits, [false, false, false, false, true, true]);
        assert!(dialogue.hold(now, true, true));
        let until = now + ANSWER_WAIT;
        assert_eq!(dialogue.held_until(), Some(until));
        assert!(dialogue.hold(Now(until.0 - 1), true, true), "not yet");
        assert!(!dialogue.hold(until, true, true), "nobody has answered");
        assert_eq!(
            talk(&mut dialogue, until, 5).0,
            [false, false, false, false, true],
            "trust must grow again"
        );
    }

    #[test]
    fn nobody_waits_who_is_not_answered_or_has_more_to_hear() {
        let start = || {
            let mut dialogue = Dialogue::default();
            let now = talk(&mut dialogue, Now(0), 10).1;
            (dialogue, now)
        };
        let (mut dialogue, now) = start();
        assert!(!dialogue.hold(now, true, false), "the caller would not look again");

        let (mut dialogue, now) = start();
        assert!(!dialogue.hold(now, false, true), "two packets at once");
        dialogue.answered(now);
        assert!(!dialogue.hold(now, true, true), "and that ends the conversation");

        let (mut dialogue, now) = start();
        assert!(dialogue.hold(now, true, true));
        assert!(!dialogue.hold(now, false, true), "a second message before the answer");

        let (mut dialogue, mut now) = start();
        for _ in 0..2 {
            dialogue.hold(now, true, false);
            now += Duration(STEP);
        }
        dialogue.answered(now);
        assert!(!dialogue.hold(now, true, true), "two were answered by one");

        let (mut dialogue, now) = start();
        dialogue.hold(now, true, false);
        dialogue.answered(now + ANSWER_WAIT + Duration(1));
        assert!(!dialogue.hold(now, true, true), "a slow answer");
    }
}
