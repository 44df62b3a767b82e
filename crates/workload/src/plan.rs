//! Messages and what they wait for.

use alloc::vec::Vec;

use crate::progress::Progress;

/// Most bytes of one message: a work request's.
pub(crate) const MESSAGE_MAX: u64 = 1 << 30;
/// Most messages of a plan, so that its memory stays a few gigabytes.
pub(crate) const MESSAGES_MAX: u64 = 1 << 26;

/// What a message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The receiver has been told of this message.
    Received(u32),
    /// The sender of this message knows that it has landed.
    Sent(u32),
}

impl After {
    /// The message.
    pub fn message(self) -> u32 {
        match self {
            After::Received(message) | After::Sent(message) => message,
        }
    }
}

/// One WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Bytes.
    pub bytes: u32,
    /// Picoseconds after the begin before which it is not posted, whatever it waits for besides.
    pub start_ps: u64,
    /// Its dependencies: `count` from `first` on in the plan's list.
    first: u32,
    count: u32,
}

/// Messages in the order in which their senders post them, as far as they are ready at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    messages: Vec<Message>,
    after: Vec<After>,
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
    /// A message waits for one that does not exist.
    #[error("Message {message} waits for message {after}, which does not exist")]
    Dependency {
        /// Which.
        message: u32,
        /// For which.
        after: u32,
    },
    /// Halving and doubling needs a power of two.
    #[error("Halving and doubling is for 2, 4, 8, … members, not {0}")]
    Power(u32),
    /// Groups of a program are not groups of its members.
    #[error("{members} members do not make groups of {size}, each once")]
    Groups {
        /// Members of a group.
        size: u32,
        /// Members of all of them.
        members: u64,
    },
    /// Messages wait for each other.
    #[error("Message {0} waits for itself, by way of others")]
    Circle(u32),
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
    /// Appends a message that is posted as soon as what is in `after` has happened; returns its number. As a rule its
    /// sender takes part in those messages; if not, somebody tells it in no time.
    pub fn push(&mut self, from: u32, to: u32, bytes: u32, after: &[After]) -> u32 {
        self.push_at(0, from, to, bytes, after)
    }

    /// The same, not before `start_ps` picoseconds after the begin.
    pub fn push_at(&mut self, start_ps: u64, from: u32, to: u32, bytes: u32, after: &[After]) -> u32 {
        let first = self.after.len() as u32;
        self.after.extend_from_slice(after);
        self.messages.push(Message { from, to, bytes, start_ps, first, count: after.len() as u32 });
        self.messages.len() as u32 - 1
    }

    /// The messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What `message` waits for.
    pub fn after(&self, message: &Message) -> &[After] {
        self.after.get(message.first as usize..(message.first + message.count) as usize).unwrap_or(&[])
    }

    /// Bytes of all messages.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| u64::from(message.bytes)).sum()
    }

    /// Hosts that it needs: one more than the largest number.
    pub fn hosts(&self) -> u32 {
        self.messages.iter().map(|message| message.from.max(message.to).saturating_add(1)).max().unwrap_or(0)
    }

    /// Checks that every message has two ends, and that all will be sent in the end.
    pub fn validate(&self) -> Result<(), PlanError> {
        for (number, message) in self.messages.iter().enumerate() {
            let number = number as u32;
            if message.from == message.to || u64::from(message.bytes) > MESSAGE_MAX {
                return Err(PlanError::Message(number));
            }
            let unknown = |after: &&After| after.message() as usize >= self.messages.len();
            if let Some(after) = self.after(message).iter().find(unknown) {
                return Err(PlanError::Dependency { message: number, after: after.message() });
            }
        }
        match Progress::new(self).first_never_ready(self) {
            Some(message) => Err(PlanError::Circle(message)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use After::{Received, Sent};

    #[test]
    fn messages_wait_for_messages_that_come_to_pass() {
        for (to, after, wanted) in [
            (1, [Received(1), Sent(2)], Ok(())),
            (1, [Received(1), Sent(3)], Err(PlanError::Dependency { message: 0, after: 3 })),
            (1, [Received(1), Sent(0)], Err(PlanError::Circle(0))),
            (0, [Received(1), Sent(2)], Err(PlanError::Message(0))),
        ] {
            let mut plan = Plan::default();
            plan.push(0, to, 8, &after);
            plan.push(1, 2, 8, &[Sent(2)]);
            plan.push(2, 0, 8, &[]);
            assert_eq!(plan.validate(), wanted, "{after:?}");
        }
    }
}
