//! How a run ends when it does not end well, and what is said about it.

use super::kinds::Kind;
use super::plan::Round;
use serde_json::{json, Value};
use srdma_abi::{Cause, Completion};
use srdma_client::{ControlError, OpenError, PostError};
use std::io;

/// Exit code when something that must hold did not.
pub const BROKEN: u8 = 1;
/// Exit code when the run could not be carried out.
pub const FAILED: u8 = 2;

/// A promise of the transport that was not kept.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Kind that found it.
    pub kind: Kind,
    /// Its round.
    pub round: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Queue pair, counted from 0 in the order of their creation.
    pub qp: Option<usize>,
    /// Which promise, and where.
    pub what: String,
    /// Offset in the region, if it is about memory.
    pub offset: Option<u64>,
    /// Bytes or value that must be there.
    pub expected: String,
    /// Bytes or value that are there.
    pub got: String,
}

impl Finding {
    /// Something of `round` that is not `expected`.
    pub fn new(
        round: &Round,
        qp: Option<usize>,
        what: impl Into<String>,
        expected: impl ToString,
        got: impl ToString,
    ) -> Finding {
        Finding {
            kind: round.kind,
            round: round.number,
            seed: round.seed,
            qp,
            what: what.into(),
            offset: None,
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }

    /// As JSON; the other side is told in the same form.
    pub fn object(&self) -> Value {
        json!({
            "kind": self.kind.name(),
            "round": self.round,
            "seed": self.seed,
            "qp": self.qp,
            "what": self.what,
            "offset": self.offset,
            "expected": self.expected,
            "got": self.got,
        })
    }

    /// From JSON; `None` if it is no finding.
    pub fn from_object(value: &Value) -> Option<Finding> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let number = |key: &str| value.get(key)?.as_u64();
        Some(Finding {
            kind: Kind::from_name(&text("kind")?)?,
            round: number("round")?,
            seed: number("seed")?,
            qp: number("qp").and_then(|qp| usize::try_from(qp).ok()),
            what: text("what")?,
            offset: number("offset"),
            expected: text("expected")?,
            got: text("got")?,
        })
    }

    /// Several lines for people.
    pub fn text(&self) -> String {
        let qp = self.qp.map_or(String::new(), |qp| format!(", queue pair {qp}"));
        let offset = self.offset.map_or(String::new(), |at| format!(" at offset {at} ({at:#x})"));
        format!(
            "{} round {}{qp}, seed {}: {}\n  expected{offset}: {}\n  got     {offset}: {}",
            self.kind.name(),
            self.round,
            self.seed,
            self.what,
            self.expected,
            self.got
        )
    }
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A promise was not kept.
    #[error("{}", .0.text())]
    Broken(Box<Finding>),
    /// The other side found one.
    #[error("the other side found: {}", .0.text())]
    BrokenThere(Box<Finding>),
    /// A completion with an error.
    #[error("{0}")]
    Completion(String),
    /// The other side ended early; its own words.
    #[error("the other side failed: {0}")]
    There(String),
    /// The side channel does not work.
    #[error("side channel: {0}")]
    Channel(#[from] io::Error),
    /// The other side says what this one does not understand.
    #[error("side channel: {0}; use the same release on both sides")]
    Protocol(String),
    /// Nothing happens.
    #[error("{0}; `srdma check HOST` tests the way there")]
    Stalled(String),
    /// A setting cannot be used.
    #[error("{0}")]
    Setting(String),
    /// The device reports trouble.
    #[error("asynchronous event {0} on the device")]
    Event(String),
    /// No device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A control call was refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A work request was refused.
    #[error("posting: {0}")]
    Post(#[from] PostError),
}

impl Failure {
    /// Exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Broken(_) | Failure::BrokenThere(_) => BROKEN,
            _ => FAILED,
        }
    }

    /// The finding, on whichever side.
    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Failure::Broken(finding) | Failure::BrokenThere(finding) => Some(finding),
            _ => None,
        }
    }

    /// The failure that a completion reports.
    pub fn completion(round: &Round, qp: usize, completion: &Completion) -> Failure {
        let here = format!("{} round {}, queue pair {qp}", round.kind.name(), round.number);
        Failure::Completion(match Cause::from_code(completion.vendor_err) {
            Some(cause) => {
                let row = cause.row();
                format!(
                    "{here}: {} ({cause:?}, code {}): {} {}",
                    crate::explain::status_name(row.status),
                    cause as u16,
                    row.what,
                    row.remedy
                )
            }
            None => {
                format!("{here}: completion status {} (code {})", completion.status, completion.vendor_err)
            }
        })
    }
}

impl From<Finding> for Failure {
    fn from(finding: Finding) -> Failure {
        Failure::Broken(Box::new(finding))
    }
}
