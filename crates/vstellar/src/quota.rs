//! Limits and what is used of them.

use srdma_abi::command::{Denial, Quota};

use crate::refusal::Refusal;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Protection domains.
    Pds,
    /// Memory regions.
    Mrs,
    /// Completion queues.
    Cqs,
    /// Queue pairs.
    Qps,
    /// Completion channels.
    Channels,
    /// Attached programs.
    Sessions,
    /// Bytes of registered memory.
    MemoryBytes,
    /// Bytes of rings.
    RingBytes,
}

/// All of them, with the word that people use.
pub const KINDS: [(Kind, &str); 8] = [
    (Kind::Pds, "protection domains"),
    (Kind::Mrs, "memory regions"),
    (Kind::Cqs, "completion queues"),
    (Kind::Qps, "queue pairs"),
    (Kind::Channels, "completion channels"),
    (Kind::Sessions, "attached programs"),
    (Kind::MemoryBytes, "bytes of registered memory"),
    (Kind::RingBytes, "bytes of rings"),
];

impl Kind {
    fn word(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

/// One value of a quota.
pub fn get(quota: &Quota, kind: Kind) -> u64 {
    match kind {
        Kind::Pds => quota.pds.into(),
        Kind::Mrs => quota.mrs.into(),
        Kind::Cqs => quota.cqs.into(),
        Kind::Qps => quota.qps.into(),
        Kind::Channels => quota.channels.into(),
        Kind::Sessions => quota.sessions.into(),
        Kind::MemoryBytes => quota.memory_bytes,
        Kind::RingBytes => quota.ring_bytes,
    }
}

fn set(quota: &mut Quota, kind: Kind, value: u64) {
    let short = u32::try_from(value).unwrap_or(u32::MAX);
    match kind {
        Kind::Pds => quota.pds = short,
        Kind::Mrs => quota.mrs = short,
        Kind::Cqs => quota.cqs = short,
        Kind::Qps => quota.qps = short,
        Kind::Channels => quota.channels = short,
        Kind::Sessions => quota.sessions = short,
        Kind::MemoryBytes => quota.memory_bytes = value,
        Kind::RingBytes => quota.ring_bytes = value,
    }
}

/// A quota with every 0 replaced by what the host has.
pub fn effective(asked: &Quota, host: &Quota) -> Quota {
    let mut all = *asked;
    for (kind, _) in KINDS {
        if get(asked, kind) == 0 {
            set(&mut all, kind, get(host, kind));
        }
    }
    all
}

/// Whether the host could ever give that much.
pub fn check(asked: &Quota, host: &Quota) -> Result<(), Refusal> {
    for (kind, word) in KINDS {
        let (given, most) = (get(asked, kind), get(host, kind));
        if given > most {
            let text =
                alloc::format!("{given} {word} asked for; 1 to {most}, or 0 for as many as the host has");
            return Err(Refusal::new(Denial::Value, text));
        }
    }
    Ok(())
}

/// A change: so much of one kind.
pub type Part = (Kind, u64);

/// Who may have how much, and has.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Limits, none of them 0 unless nothing at all is allowed.
    pub limit: Quota,
    /// In use.
    pub used: Quota,
}

impl Account {
    /// An account with nothing used.
    pub fn new(limit: Quota) -> Account {
        Account { limit, used: Quota::default() }
    }

    /// Whether all of `parts` could be had; `who` is named if not.
    pub fn allows(&self, parts: &[Part], who: &dyn core::fmt::Display) -> Result<(), Refusal> {
        for &(kind, amount) in parts {
            let (used, limit) = (get(&self.used, kind), get(&self.limit, kind));
            if used.checked_add(amount).is_none_or(|sum| sum > limit) {
                let word = kind.word();
                let text = match amount {
                    1 => alloc::format!("{who}: {used} of {limit} {word} are in use"),
                    _ => {
                        alloc::format!("{who}: {used} of {limit} {word} are in use, {amount} more asked for")
                    }
                };
                return Err(Refusal::new(Denial::Quota, text));
            }
        }
        Ok(())
    }
}

/// Adds `parts` to what is used.
pub fn take(used: &mut Quota, parts: &[Part]) {
    for &(kind, amount) in parts {
        set(used, kind, get(used, kind).saturating_add(amount));
    }
}

/// Takes them off again.
pub fn give_back(used: &mut Quota, parts: &[Part]) {
    for &(kind, amount) in parts {
        set(used, kind, get(used, kind).saturating_sub(amount));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_account_gives_no_more_than_its_limit_and_names_whose_it_is() {
        let mut account = Account::new(Quota { qps: 2, memory_bytes: 100, ..Quota::default() });
        let one = [(Kind::Qps, 1)];
        account.allows(&one, &"device a").unwrap();
        take(&mut account.used, &one);
        take(&mut account.used, &one);
        let refused = account.allows(&one, &"device a").unwrap_err();
        assert_eq!(refused.text, "device a: 2 of 2 queue pairs are in use");
        give_back(&mut account.used, &one);
        account.allows(&one, &"device a").unwrap();
        let most = [(Kind::MemoryBytes, u64::MAX)];
        take(&mut account.used, &[(Kind::MemoryBytes, 1)]);
        let refused = account.allows(&most, &"tenant t").unwrap_err();
        assert!(refused.text.contains("1 of 100 bytes of registered memory are in use"), "{}", refused.text);
    }

    #[test]
    fn zero_means_what_the_host_has_and_more_is_refused_with_the_range() {
        let host = Quota { qps: 50, cqs: 10, ..Quota::default() };
        let asked = Quota { qps: 0, cqs: 3, ..Quota::default() };
        assert_eq!(effective(&asked, &host), Quota { qps: 50, cqs: 3, ..Quota::default() });
        let refused = check(&Quota { cqs: 11, ..asked }, &host).unwrap_err();
        assert_eq!(refused.text, "11 completion queues asked for; 1 to 10, or 0 for as many as the host has");
    }
}
