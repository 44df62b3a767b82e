//! What the two sides tell each other over TCP: one JSON object a line, everything checked.

use super::failure::Finding;
use super::kinds::Kind;
use serde_json::{json, Map, Value};
use std::net::{IpAddr, Ipv6Addr};

/// Longest line in bytes; [`QPS_MAX`] queue pairs fit.
pub const LINE_MAX: usize = 16 << 10;
/// Most queue pairs.
pub const QPS_MAX: usize = 64;
/// Most bytes of region per queue pair.
pub const PART_BYTES_MAX: u64 = 64 << 20;
/// Fewest: a round must fit.
pub const PART_BYTES_MIN: u64 = 16 << 20;
/// Raised when rounds change, so that two releases never compare different plans.
const VERSION: u64 = 1;

/// How to reach one side's queue pairs and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Device.
    pub address: IpAddr,
    /// Number and first packet sequence number of each queue pair.
    pub qps: Vec<(u32, u32)>,
    /// Key of the region.
    pub rkey: u32,
    /// Its address.
    pub base: u64,
    /// Bytes of it for each queue pair.
    pub part_bytes: u64,
    /// Seed of the run (the client's choice).
    pub seed: u64,
    /// Whether this side places WRITEs without regard to their order.
    pub relaxed: bool,
}

/// One line.
#[derive(Clone, Debug)]
pub enum Message {
    /// First of each side.
    Hello(End),
    /// Client: a round is to begin.
    Round {
        /// Which kind.
        kind: Kind,
        /// Which round of it.
        number: u64,
    },
    /// Target: my memory and receives are prepared.
    Ready,
    /// Client: all my requests are complete, so many bytes moved.
    Done(u64),
    /// Target: everything was as it must be.
    Right,
    /// Either: something broke or failed, the run ends.
    Failed {
        /// In words.
        text: String,
        /// The broken promise, if it is one.
        finding: Option<Box<Finding>>,
    },
    /// Client: the run is over and was right.
    Bye,
}

impl Message {
    /// Name, as in the JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Hello(_) => "hello",
            Message::Round { .. } => "round",
            Message::Ready => "ready",
            Message::Done(_) => "done",
            Message::Right => "right",
            Message::Failed { .. } => "failed",
            Message::Bye => "bye",
        }
    }

    /// The line, with its end.
    pub fn line(&self) -> String {
        let mut object = match self {
            Message::Hello(side) => side.object(),
            Message::Round { kind, number } => json!({ "kind": kind.name(), "number": number }),
            Message::Done(bytes) => json!({ "bytes": bytes }),
            Message::Failed { text, finding } => {
                json!({ "text": text, "finding": finding.as_ref().map(|finding| finding.object()) })
            }
            Message::Ready | Message::Right | Message::Bye => json!({}),
        };
        object["say"] = self.name().into();
        format!("{object}\n")
    }

    /// Reads a line.
    pub fn parse(line: &[u8]) -> Result<Message, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("not JSON ({error})"))?;
        let object = value.as_object().ok_or("not an object")?;
        let say = object.get("say").and_then(Value::as_str).ok_or("no `say`")?;
        Ok(match say {
            "hello" => Message::Hello(End::from_object(object)?),
            "round" => {
                let name = object.get("kind").and_then(Value::as_str).unwrap_or_default();
                let kind = Kind::from_name(name).ok_or_else(|| format!("unknown kind {name:?}"))?;
                Message::Round { kind, number: number(object, "number", u64::MAX)? }
            }
            "ready" => Message::Ready,
            "done" => Message::Done(number(object, "bytes", u64::MAX)?),
            "right" => Message::Right,
            "failed" => Message::Failed {
                text: object.get("text").and_then(Value::as_str).unwrap_or_default().to_owned(),
                finding: object.get("finding").and_then(Finding::from_object).map(Box::new),
            },
            "bye" => Message::Bye,
            other => return Err(format!("unknown word {other:?}")),
        })
    }
}

impl End {
    fn object(&self) -> Value {
        json!({
            "version": VERSION,
            "address": self.address.to_string(),
            "qps": self.qps.iter().map(|(number, psn)| json!([number, psn])).collect::<Vec<_>>(),
            "rkey": self.rkey,
            "base": self.base,
            "part_bytes": self.part_bytes,
            "seed": self.seed,
            "relaxed": self.relaxed,
        })
    }

    fn from_object(object: &Map<String, Value>) -> Result<End, String> {
        let version = number(object, "version", u64::MAX)?;
        if version != VERSION {
            return Err(format!("the other side speaks version {version}, not {VERSION}"));
        }
        let address = object.get("address").and_then(Value::as_str).unwrap_or_default();
        let address: IpAddr = address.parse().map_err(|_| format!("{address:?} is no address"))?;
        let pairs = object.get("qps").and_then(Value::as_array).ok_or("no `qps`")?;
        if pairs.is_empty() || pairs.len() > QPS_MAX {
            return Err(format!("{} queue pairs, 1 to {QPS_MAX} are allowed", pairs.len()));
        }
        let part_bytes = number(object, "part_bytes", PART_BYTES_MAX)?;
        if part_bytes < PART_BYTES_MIN || part_bytes % 4096 != 0 {
            return Err(format!("part_bytes is {part_bytes}"));
        }
        let base = number(object, "base", u64::MAX)?;
        if base % 8 != 0 || base.checked_add(part_bytes * pairs.len() as u64).is_none() {
            return Err(format!("base is {base}"));
        }
        Ok(End {
            address,
            qps: pairs.iter().map(pair).collect::<Result<_, _>>()?,
            rkey: number(object, "rkey", u64::from(u32::MAX))? as u32,
            base,
            part_bytes,
            seed: number(object, "seed", u64::MAX)?,
            relaxed: object.get("relaxed").and_then(Value::as_bool).ok_or("no `relaxed`")?,
        })
    }

    /// The device's GID.
    pub fn gid(&self) -> [u8; 16] {
        match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => Ipv6Addr::octets(&v6),
        }
    }
}

fn pair(value: &Value) -> Result<(u32, u32), String> {
    let number = |index: usize| {
        let number = value.get(index).and_then(Value::as_u64);
        number.filter(|&number| number < 1 << 24).ok_or_else(|| format!("{value} is no queue pair"))
    };
    Ok((number(0)? as u32, number(1)? as u32))
}

fn number(object: &Map<String, Value>, key: &str, max: u64) -> Result<u64, String> {
    let number = object.get(key).and_then(Value::as_u64).ok_or_else(|| format!("no number `{key}`"))?;
    if number > max {
        return Err(format!("`{key}` is {number}, more than {max}"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::verify::plan::Round;

    fn hello() -> End {
        End {
            address: "fd00::1".parse().unwrap(),
            qps: vec![(0x01_0002, 77), (0xff_fffe, 0)],
            rkey: u32::MAX,
            base: 0x7f00_0000_0000,
            part_bytes: PART_BYTES_MIN,
            seed: u64::MAX,
            relaxed: true,
        }
    }

    #[test]
    fn lines_read_back_as_they_were_written() {
        let round = Round { kind: Kind::Flag, number: 9, seed: 4, part_bytes: PART_BYTES_MIN };
        let finding = Some(Box::new(Finding::new(&round, Some(1), "late", "a", "b")));
        for message in [
            Message::Hello(hello()),
            Message::Round { kind: Kind::LastByte, number: u64::MAX },
            Message::Ready,
            Message::Done(7),
            Message::Right,
            Message::Failed { text: "two\nlines".into(), finding },
            Message::Failed { text: String::new(), finding: None },
            Message::Bye,
        ] {
            let line = message.line();
            assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
            let read = Message::parse(line.as_bytes()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{message:?}"));
        }
    }

    #[test]
    fn the_largest_hello_fits_a_line() {
        let side = End { qps: vec![(0xff_fffe, 0xff_ffff); QPS_MAX], ..hello() };
        assert!(Message::Hello(side).line().len() < LINE_MAX);
    }

    #[test]
    fn nonsense_is_refused() {
        let good = Message::Hello(hello()).line();
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("fd00::1", "nowhere"),
            ("[[65538,77],[16777214,0]]", "[]"),
            ("[65538,77]", "[16777216,0]"),
            ("[65538,77]", "[1]"),
            ("\"part_bytes\":16777216", "\"part_bytes\":16777217"),
            ("\"part_bytes\":16777216", "\"part_bytes\":4096"),
            ("\"part_bytes\":16777216", "\"part_bytes\":1099511627776"),
            ("\"base\":139637976727552", "\"base\":18446744073709551608"),
            ("\"rkey\":4294967295", "\"rkey\":4294967296"),
            ("\"rkey\":4294967295", "\"rkey\":-1"),
            ("\"relaxed\":true", "\"relaxed\":1"),
        ] {
            assert!(good.contains(from), "{from} is not in {good}");
            assert!(Message::parse(good.replace(from, to).as_bytes()).is_err(), "{to}");
        }
        for line in ["", "[]", "{}", "{\"say\":\"dance\"}", "{\"say\":\"round\",\"kind\":\"x\",\"number\":1}"]
        {
            assert!(Message::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
