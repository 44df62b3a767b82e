//! What all devices said at one moment, and what has changed since the moment before.

use super::attach::{self, Answer, Silent};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Devices asked at once.
const AT_ONCE: usize = 16;
/// Devices with more queue pairs than this tell of the paths of one only, unless everything is wanted: a queue pair
/// with 128 paths takes the asked process 0.3 ms.
const PATHS_OF_MAX: usize = 32;

/// Changes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Bytes sent, headers included.
    pub sent_bytes: f64,
    /// Packets sent.
    pub sent_packets: f64,
    /// Bytes received: of a device with headers, of a queue pair payload.
    pub received_bytes: f64,
    /// Packets received.
    pub received_packets: f64,
    /// Packets sent again.
    pub resent_packets: f64,
}

impl Rate {
    /// Both directions, to sort by.
    pub fn bytes(&self) -> f64 {
        self.sent_bytes + self.received_bytes
    }

    fn object(&self) -> Value {
        json!({
            "sent_bytes_per_s": self.sent_bytes.round(),
            "sent_packets_per_s": self.sent_packets.round(),
            "received_bytes_per_s": self.received_bytes.round(),
            "received_packets_per_s": self.received_packets.round(),
            "resent_packets_per_s": self.resent_packets.round(),
        })
    }
}

/// A number in an object that somebody else made; 0 if there is none.
pub fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// A text in it, fit for a terminal.
pub fn text<'a>(value: &'a Value, pointer: &str) -> std::borrow::Cow<'a, str> {
    let text = value.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
    match text.chars().any(char::is_control) {
        true => text.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into(),
        false => text.into(),
    }
}

/// The sum of an object's numbers.
pub fn sum(value: &Value, pointer: &str) -> u64 {
    let members = value.pointer(pointer).and_then(Value::as_object);
    members.map_or(0, |members| members.values().filter_map(Value::as_u64).fold(0, u64::saturating_add))
}

/// One path of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path1 {
    /// Its number.
    pub path: u64,
    /// Bytes sent: since the last sample if that knew them, or in all.
    pub bytes: u64,
    /// Packets lost, likewise.
    pub lost: u64,
}

/// A queue pair.
#[derive(Clone, Debug)]
pub struct Qp {
    /// As it was told.
    pub value: Value,
    /// Since the last sample.
    pub rate: Rate,
    /// Its paths, if they were told.
    pub paths: Vec<Path1>,
}

impl Qp {
    /// Its number.
    pub fn qpn(&self) -> u64 {
        number(&self.value, "/qpn")
    }
}

/// A device of a process.
#[derive(Clone, Debug)]
pub struct Device {
    /// The process.
    pub pid: u32,
    /// As it was told.
    pub head: Value,
    /// Seconds since the last sample; 0 if this is its first.
    pub seconds: f64,
    /// In this time.
    pub rate: Rate,
    /// Its queue pairs.
    pub qps: Vec<Qp>,
}

impl Device {
    /// Name of the program, without its directory.
    pub fn program(&self) -> String {
        let program = text(&self.head, "/program");
        program.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// As JSON: what was told, in the form of `--stats`, and the rates.
    pub fn object(&self) -> Value {
        let mut object = self.head.clone();
        object["pid"] = self.pid.into();
        let mut rates = self.rate.object();
        rates["seconds"] = json!(self.seconds);
        object["rates"] = rates;
        let with_rates = |qp: &Qp| {
            let mut value = qp.value.clone();
            value["rates"] = qp.rate.object();
            value
        };
        object["qps"] = self.qps.iter().map(with_rates).collect();
        object
    }
}

/// All devices at one moment.
#[derive(Debug, Default)]
pub struct Sample {
    /// Those that answered.
    pub devices: Vec<Device>,
    /// Processes that did not, and why.
    pub silent: Vec<(u32, Silent)>,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only these processes; all if empty.
    pub pids: Vec<u32>,
    /// Paths of every queue pair, however many there are.
    pub all_paths: bool,
    /// Paths of this queue pair of this process before others.
    pub selected: Option<(u32, u64)>,
    /// Queue pairs that are gone.
    pub finished: bool,
}

/// What a device had said before.
struct Before {
    answer: Answer,
    request_paths: bool,
}

/// Takes samples and compares each with the one before.
#[derive(Default)]
pub struct Sampler {
    directories: Vec<PathBuf>,
    before: HashMap<PathBuf, Before>,
}

impl Sampler {
    /// Looks for sockets in `directories`.
    pub fn new(directories: Vec<PathBuf>) -> Sampler {
        Sampler { directories, before: HashMap::new() }
    }

    /// Asks all devices now.
    pub fn take(&mut self, wanted: &Wanted) -> Sample {
        let mut sockets = attach::sockets(&self.directories);
        sockets.retain(|(pid, path)| {
            let known = self.before.get(path).map_or(*pid, |before| before.answer.pid);
            wanted.pids.is_empty() || wanted.pids.contains(&known) || wanted.pids.contains(pid)
        });
        let requests: Vec<String> =
            sockets.iter().map(|(pid, path)| self.request(wanted, *pid, path)).collect();
        let mut sample = Sample::default();
        let mut now = HashMap::new();
        let asked: Vec<(&(u32, PathBuf), &String)> = sockets.iter().zip(&requests).collect();
        for some in asked.chunks(AT_ONCE) {
            let answers = std::thread::scope(|scope| {
                let threads: Vec<_> = some
                    .iter()
                    .map(|((pid, path), request)| scope.spawn(move || attach::ask(path, *pid, request)))
                    .collect();
                threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
            });
            for (((pid, path), request), answer) in some.iter().zip(answers) {
                match answer {
                    Ok(Ok(answer)) => {
                        sample.devices.push(compare(self.before.get(path), &answer));
                        let request_paths = request.contains("paths");
                        now.insert(path.clone(), Before { answer, request_paths });
                    }
                    // It ended while we were looking.
                    Ok(Err(Silent::Gone)) | Err(_) => {}
                    Ok(Err(why)) => sample.silent.push((*pid, why)),
                }
            }
        }
        self.before = now;
        sample
    }

    fn request(&self, wanted: &Wanted, pid: u32, path: &Path) -> String {
        let mut words = Vec::new();
        let before = self.before.get(path).map(|before| &before.answer);
        match before {
            _ if wanted.all_paths => words.push("paths".to_owned()),
            Some(before) if before.qps.len() <= PATHS_OF_MAX => words.push("paths".to_owned()),
            Some(before) => {
                let selected =
                    wanted.selected.filter(|(selected, _)| *selected == before.pid || *selected == pid);
                let most = before.qps.iter().max_by_key(|qp| traffic(qp)).map(|qp| number(qp, "/qpn"));
                words.extend(selected.map(|(_, qpn)| qpn).or(most).map(|qpn| format!("paths={qpn}")));
            }
            None => {}
        }
        if wanted.finished {
            words.push("finished".to_owned());
        }
        words.join(" ")
    }
}

fn traffic(qp: &Value) -> u64 {
    number(qp, "/bytes_sent").saturating_add(number(qp, "/bytes_received"))
}

fn compare(before: Option<&Before>, answer: &Answer) -> Device {
    let time = |answer: &Answer| number(&answer.head, "/time_ns");
    let elapsed_ns = before.map_or(0, |before| time(answer).saturating_sub(time(&before.answer)));
    let seconds = elapsed_ns as f64 / 1e9;
    let earlier: HashMap<u64, &Value> = before
        .iter()
        .flat_map(|before| &before.answer.qps)
        .filter(|qp| qp["live"] == true)
        .map(|qp| (number(qp, "/qpn"), qp))
        .collect();
    let per_s = |before: Option<&Value>, after: &Value, count: &dyn Fn(&Value) -> u64| match before {
        Some(before) if seconds > 0.0 => count(after).saturating_sub(count(before)) as f64 / seconds,
        _ => 0.0,
    };
    let qps = answer.qps.iter().map(|qp| {
        let earlier = earlier.get(&number(qp, "/qpn")).copied().filter(|_| qp["live"] == true);
        let rate = |pointer: &str| per_s(earlier, qp, &|qp| number(qp, pointer));
        let rate = Rate {
            sent_bytes: rate("/bytes_sent"),
            sent_packets: rate("/packets_sent"),
            received_bytes: rate("/bytes_received"),
            received_packets: rate("/packets_received"),
            resent_packets: per_s(earlier, qp, &|qp| sum(qp, "/retransmitted")),
        };
        let known = before.is_some_and(|before| before.request_paths);
        Qp { value: qp.clone(), rate, paths: paths(earlier.filter(|_| known), qp) }
    });
    let qps: Vec<Qp> = qps.collect();
    let earlier = before.map(|before| &before.answer.head);
    let rate = |pointer: &str| per_s(earlier, &answer.head, &|head| number(head, pointer));
    let rate = Rate {
        sent_bytes: rate("/socket/sent_bytes"),
        sent_packets: rate("/socket/sent_packets"),
        received_bytes: rate("/socket/received_bytes"),
        received_packets: rate("/socket/received_packets"),
        resent_packets: qps.iter().map(|qp| qp.rate.resent_packets).sum(),
    };
    Device { pid: answer.pid, head: answer.head.clone(), seconds, rate, qps }
}

fn paths(before: Option<&Value>, qp: &Value) -> Vec<Path1> {
    let list = |qp: &Value| -> Vec<Path1> {
        let paths = qp["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
        let one = |path: &Value| Path1 {
            path: number(path, "/path"),
            bytes: number(path, "/bytes"),
            lost: number(path, "/lost"),
        };
        paths.iter().map(one).collect()
    };
    let earlier: HashMap<u64, Path1> =
        before.map(list).unwrap_or_default().into_iter().map(|path| (path.path, path)).collect();
    let mut now = list(qp);
    for path in &mut now {
        let before = earlier.get(&path.path).copied().unwrap_or_default();
        path.bytes = path.bytes.saturating_sub(before.bytes);
        path.lost = path.lost.saturating_sub(before.lost);
    }
    now
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answer(time_ns: u64, sent: u64, path_bytes: u64) -> Answer {
        let head = json!({"version": 1, "time_ns": time_ns, "socket": {"sent_bytes": sent + 7}});
        let qp = json!({
            "qpn": 5, "live": true, "bytes_sent": sent, "retransmitted": {"rto": sent / 10, "age": 0},
            "paths": [{"path": 3, "bytes": path_bytes, "lost": 1}],
        });
        Answer { pid: 1, head, qps: vec![qp] }
    }

    #[test]
    fn rates_are_changes_over_the_process_own_time() {
        let before = Before { answer: answer(1_000_000_000, 100, 40), request_paths: true };
        let device = compare(Some(&before), &answer(3_000_000_000, 500, 90));
        assert_eq!((device.seconds, device.rate.sent_bytes), (2.0, 200.0));
        assert_eq!((device.qps[0].rate.sent_bytes, device.qps[0].rate.resent_packets), (200.0, 20.0));
        assert_eq!(device.qps[0].paths, [Path1 { path: 3, bytes: 50, lost: 0 }]);
        let object = device.object();
        assert_eq!(
            (&object["rates"]["seconds"], &object["qps"][0]["bytes_sent"]),
            (&json!(2.0), &500.into())
        );
        assert_eq!(object["qps"][0]["rates"]["sent_bytes_per_s"], 200.0);
    }

    #[test]
    fn a_first_sample_and_a_clock_that_stands_have_no_rates_and_all_the_bytes() {
        let first = compare(None, &answer(5, 100, 40));
        assert_eq!(
            (first.rate, first.qps[0].rate, first.qps[0].paths[0].bytes),
            (Rate::default(), Rate::default(), 40)
        );
        let before = Before { answer: answer(5, 10, 4), request_paths: false };
        let still = compare(Some(&before), &answer(5, 100, 40));
        assert_eq!((still.rate, still.qps[0].paths[0].bytes), (Rate::default(), 40));
    }

    #[test]
    fn nonsense_from_the_other_side_is_zero_and_cannot_move_the_cursor() {
        let value = json!({"a": {"b": -1}, "s": "x\u{1b}[2Jy", "o": {"n": "many", "m": 3}});
        assert_eq!((number(&value, "/a/b"), number(&value, "/none"), sum(&value, "/o")), (0, 0, 3));
        assert_eq!(text(&value, "/s"), "x?[2Jy");
    }
}
