//! Clauses as text: what a fault script reads is what is shown here.

use core::fmt::{self, Display, Formatter};

use super::{Class, Direction, Failure, Fault, FaultError, FaultKind, Faults, Paths, Window, ALWAYS_PPM};
use crate::Duration;

/// A span in the largest unit that divides it.
struct Span(Duration);

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let fits = UNITS.iter().find(|(unit, _)| self.0 .0.checked_rem(*unit) == Some(0));
        let (unit, name) = fits.unwrap_or(&(1, "ns"));
        write!(f, "{}{name}", self.0 .0 / unit)
    }
}

/// Parts per million as a percentage without needless zeros.
struct Percent(u32);

impl Display for Percent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (whole, mut part, mut digits) = (self.0 / 10_000, self.0 % 10_000, 4);
        if part == 0 {
            return write!(f, "{whole}%");
        }
        while part % 10 == 0 {
            (part, digits) = (part / 10, digits - 1);
        }
        write!(f, "{whole}.{part:0digits$}%")
    }
}

impl Display for Paths {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Paths { first, last, .. } if first == last => write!(f, "{first}"),
            Paths { first, last, step: 1 } => write!(f, "{first}-{last}"),
            Paths { first, step, .. } => write!(f, "{first}mod{step}"),
        }
    }
}

impl Display for Window {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.from > Duration::ZERO {
            write!(f, " from {}", Span(self.from))?;
        }
        if self.until < Duration::MAX {
            write!(f, " to {}", Span(self.until))?;
        }
        if self.every > Duration::ZERO {
            write!(f, " for {} every {}", Span(self.lasts), Span(self.every))?;
        }
        Ok(())
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.kind {
            FaultKind::Drop => f.write_str("drop")?,
            FaultKind::Duplicate => f.write_str("duplicate")?,
            FaultKind::Corrupt => f.write_str("corrupt")?,
            FaultKind::Damage => f.write_str("damage")?,
            FaultKind::Delay(span) => write!(f, "delay {}", Span(span))?,
        }
        if self.chance_ppm != ALWAYS_PPM {
            write!(f, " {}", Percent(self.chance_ppm))?;
        }
        if self.whole_burst {
            f.write_str(" burst")?;
        }
        f.write_str(match self.class {
            None => "",
            Some(Class::Data) => " data",
            Some(Class::Ack) => " ack",
            Some(Class::Control) => " control",
        })?;
        if self.direction == Direction::Receive {
            f.write_str(" receive")?;
        }
        for (index, paths) in self.paths.iter().enumerate() {
            write!(f, "{}{paths}", if index == 0 { " on " } else { "," })?;
        }
        write!(f, "{}", self.when)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let queue = if self.queue == Direction::Send { "send" } else { "receive" };
        write!(f, "fail {queue} {}", self.number)?;
        if let Some(qp) = self.qp {
            write!(f, " of qp {qp}")?;
        }
        write!(f, " with {}", self.cause)
    }
}

/// All clauses, separated by `; `.
impl Display for Faults {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for fault in &self.packets {
            write!(f, "{separator}{fault}")?;
            separator = "; ";
        }
        for window in &self.freezes {
            write!(f, "{separator}freeze{window}")?;
            separator = "; ";
        }
        for failure in &self.failures {
            write!(f, "{separator}{failure}")?;
            separator = "; ";
        }
        Ok(())
    }
}

impl Display for FaultError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultError::Chance => "a chance is at most 100%",
            FaultError::Paths => {
                "paths are 0 to 255: one, a range such as 0-31, or a residue class such as 1mod4"
            }
            FaultError::Delay => "a delay is more than nothing and at most 60s",
            FaultError::Window => "it must end (to) after it begins (from)",
            FaultError::Period => "it must last (for) some time, and no longer than its period (every)",
            FaultError::Failure => "work requests, queue pairs and error codes are counted from 1",
            FaultError::TooMany => "there are more than 64 clauses of one kind",
        })
    }
}

impl core::error::Error for FaultError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn clauses_read_as_they_are_written() {
        let ms = Duration::from_millis;
        let faults = Faults {
            packets: vec![
                Fault { chance_ppm: 10_050, ..Fault::always(FaultKind::Drop) },
                Fault {
                    chance_ppm: 50_000,
                    class: Some(Class::Ack),
                    direction: Direction::Receive,
                    whole_burst: true,
                    paths: vec![
                        Paths { first: 3, last: 3, step: 1 },
                        Paths { first: 8, last: 15, step: 1 },
                        Paths { first: 1, last: 255, step: 4 },
                    ],
                    when: Window { from: ms(1500), until: ms(9000), lasts: Duration(1_500), every: ms(2) },
                    ..Fault::always(FaultKind::Delay(ms(20)))
                },
            ],
            freezes: vec![Window::once(ms(1000), ms(1300))],
            failures: vec![Failure { queue: Direction::Receive, number: 10, qp: Some(2), cause: 5 }],
        };
        assert_eq!(
            faults.to_string(),
            "drop 1.005%; delay 20ms 5% burst ack receive on 3,8-15,1mod4 from 1500ms to 9s for 1500ns every 2ms; \
             freeze from 1s to 1300ms; fail receive 10 of qp 2 with 5"
        );
        assert_eq!(Faults::loss(1).to_string(), "drop 0.0001%");
        assert_eq!(Faults::default().to_string(), "");
    }
}
