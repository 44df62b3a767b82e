//! Messages and what they wait for.

use alloc::vec::Vec;

/// Most bytes of one message: a work request's.
pub(crate) const MESSAGE_MAX: u64 = 1 << 30;
/// Most messages of a plan, so that its memory stays a few gigabytes.
pub(crate) const MESSAGES_MAX: u64 = 1 << 26;

/// One WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Bytes.
    pub bytes: u32,
    /// Its dependencies: `count` from `first` on in the plan's list.
    first: u32,
    count: u32,
}

/// Messages in the order in which their senders post them, as far as they are ready at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    messages: Vec<Message>,
    after: Vec<u32>,
}

/// What is wrong with a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A number is out of range.
    #[error("{key} must be {range}, not {value}")]
    Range {
        /// Name of the setting.
        key: &'static str,
        /// What is allowed.
        range: &'static str,
        /// What it is.
        value: u64,
    },
    /// It would have too many messages.
    #[error("{0} messages are more than the {MESSAGES_MAX} that a plan may have")]
    Messages(u64),
    /// A message goes from a host to itself or is too large.
    #[error("Message {0} has no two ends, or more than a gigabyte")]
    Message(u32),
    /// A message waits for one that is not before it, or that its sender learns nothing of.
    #[error("Message {message} cannot wait for message {after}")]
    Dependency {
        /// Which.
        message: u32,
        /// For which.
        after: u32,
    },
}

pub(crate) fn within(
    key: &'static str,
    range: &'static str,
    value: u64,
    low: u64,
    high: u64,
) -> Result<(), PlanError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(PlanError::Range { key, range, value })
    }
}

impl Plan {
    /// Appends a message that waits for those in `after`; returns its number. It may wait for a message to its sender
    /// (until that has been received) or from its sender (until that is known to have landed).
    pub fn push(&mut self, from: u32, to: u32, bytes: u32, after: &[u32]) -> u32 {
        let first = self.after.len() as u32;
        self.after.extend_from_slice(after);
        self.messages.push(Message { from, to, bytes, first, count: after.len() as u32 });
        self.messages.len() as u32 - 1
    }

    /// The messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What `message` waits for.
    pub fn after(&self, message: &Message) -> &[u32] {
        self.after.get(message.first as usize..(message.first + message.count) as usize).unwrap_or(&[])
    }

    /// Bytes of all messages.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| u64::from(message.bytes)).sum()
    }

    /// Checks that every message has two ends, and that all will be sent once those before them were.
    pub fn validate(&self) -> Result<(), PlanError> {
        for (number, message) in self.messages.iter().enumerate() {
            let number = number as u32;
            if message.from == message.to || u64::from(message.bytes) > MESSAGE_MAX {
                return Err(PlanError::Message(number));
            }
            for &after in self.after(message) {
                let known = self.messages.get(after as usize);
                let learns =
                    known.is_some_and(|other| other.to == message.from || other.from == message.from);
                if after >= number || !learns {
                    return Err(PlanError::Dependency { message: number, after });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_only_for_what_its_sender_learns() {
        let unknown = |after| Err(PlanError::Dependency { message: 1, after });
        for (from, to, after, wanted) in [
            (1, 2, Some(0), Ok(())),
            (0, 2, Some(0), Ok(())),
            (2, 0, Some(0), unknown(0)),
            (1, 2, Some(1), unknown(1)),
            (1, 1, None, Err(PlanError::Message(1))),
        ] {
            let mut plan = Plan::default();
            plan.push(0, 1, 8, &[]);
            plan.push(from, to, 8, after.as_slice());
            assert_eq!(plan.validate(), wanted, "{from} to {to} after {after:?}");
        }
    }
}
