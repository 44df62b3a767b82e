//! Posts that may wait a moment, so that many leave with one system call.
//!
//! A program that posts small messages faster than the network carries them pays a system call for each, although sixty
//! could share one. So while the peer owes acknowledgements, a post is left in its ring, for one of these comes soon: the
//! next empty poll, the acknowledgement, or as many further posts as make a good burst. The first few posts after
//! silence never wait: a lone message, or a flag right behind its data, leaves at once.
//!
//! Nobody may be left behind: a post waits only if the count it sees is not zero, and it rings its doorbell before it looks.
//! The worker sets the count to zero when nothing is owed any more, and looks at the doorbells after that. Both have a
//! full fence in between (`ring::doorbell`), so either the post sees zero or the worker sees the bell.

use std::sync::atomic::{AtomicU8, Ordering};

use srdma_seams::Qpn;

/// Queue-pair numbers of a slot.
const QPNS: usize = 1 << 16;
/// Posts that share a system call, at best.
const BURST: u8 = 32;
/// Posts that leave at once although something is owed.
const FIRST: u8 = 4;
/// Queue pairs whose posts may wait at the same time: a post of one beyond leaves at once.
const QUEUE_PAIRS_MAX: usize = 32;

/// How many posts each queue pair may leave waiting; 0: none, for nothing would come to send them.
pub(crate) struct Owed(Box<[AtomicU8]>);

impl Default for Owed {
    fn default() -> Owed {
        Owed((0..QPNS).map(|_| AtomicU8::new(0)).collect())
    }
}

impl Owed {
    fn count(&self, index: u16) -> Option<&AtomicU8> {
        self.0.get(usize::from(index))
    }

    /// Called after the doorbell was rung: whether the post may wait.
    pub(crate) fn may_wait(&self, index: u16) -> bool {
        let spend = |count: u8| (count > 1).then(|| count - 1);
        let before =
            self.count(index).map(|count| count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend));
        matches!(before, Some(Ok(2..=BURST)))
    }

    /// The worker has just taken what was posted, and something is owed.
    fn begin(&self, index: u16) {
        if let Some(count) = self.count(index) {
            match count.load(Ordering::Relaxed) {
                0 => count.store(BURST + FIRST, Ordering::Relaxed),
                1..=BURST => count.store(BURST, Ordering::Relaxed),
                _ => {}
            }
        }
    }

    fn end(&self, index: u16) {
        if let Some(count) = self.count(index) {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// The worker's list of queue pairs to whom something is owed.
#[derive(Default)]
pub(crate) struct Owing {
    queue_pairs: Vec<Qpn>,
}

impl Owing {
    /// `qpn` has posted and sent.
    pub(crate) fn sent(&mut self, qpn: Qpn, owed: &Owed) {
        if !self.queue_pairs.contains(&qpn) {
            if self.queue_pairs.len() >= QUEUE_PAIRS_MAX {
                return;
            }
            self.queue_pairs.push(qpn);
        }
        owed.begin(qpn.index());
    }

    /// Something has happened: posts of those for whom `still` is false may not wait any longer.
    pub(crate) fn review(&mut self, owed: &Owed, still: impl Fn(Qpn) -> bool) {
        self.queue_pairs.retain(|&qpn| {
            let stays = still(qpn);
            if !stays {
                owed.end(qpn.index());
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of so many posts wait, with the worker taking what was posted whenever one does not.
    fn waits(owed: &Owed, owing: &mut Owing, qpn: Qpn, posts: usize) -> Vec<bool> {
        let post = |_| {
            let waits = owed.may_wait(qpn.index());
            if !waits {
                owing.sent(qpn, owed);
            }
            waits
        };
        (0..posts).map(post).collect()
    }

    #[test]
    fn the_first_posts_leave_at_once_and_then_bursts_do() {
        let (owed, mut owing, qpn) = (Owed::default(), Owing::default(), Qpn(77));
        let posts = waits(&owed, &mut owing, qpn, 200);
        let at_once = |range: std::ops::Range<usize>| posts[range].iter().filter(|waits| !**waits).count();
        assert_eq!(at_once(0..5), 5, "one that nothing is owed to yet, and four");
        assert_eq!(at_once(5..200), 195 / usize::from(BURST), "{posts:?}");
        owing.review(&owed, |_| true);
        assert!(owed.may_wait(qpn.index()));
        owing.review(&owed, |_| false);
        assert_eq!(waits(&owed, &mut owing, qpn, 5), [false; 5], "after silence as at first");
    }

    #[test]
    fn a_queue_pair_beyond_the_list_never_waits() {
        let (owed, mut owing) = (Owed::default(), Owing::default());
        for number in 0..QUEUE_PAIRS_MAX as u32 + 1 {
            owing.sent(Qpn(number), &owed);
        }
        let last = Qpn(QUEUE_PAIRS_MAX as u32);
        assert_eq!(waits(&owed, &mut owing, last, 100), [false; 100]);
        owing.review(&owed, |qpn| qpn != Qpn(0));
        assert!(waits(&owed, &mut owing, last, 100).contains(&true), "there is room on the list again");
    }
}
