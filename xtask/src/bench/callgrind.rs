//! Reads what callgrind wrote: instructions by room. The format is that of the Callgrind manual, "Callgrind Format Specification".

use std::collections::{BTreeMap, HashMap};

/// Instructions by what they belong to: a room (`rnic`), or who else (`memcpy and the like`).
pub type Costs = BTreeMap<String, f64>;

/// Where a line of costs belongs.
#[derive(Default)]
struct Place {
    object: String,
    file: String,
    function: String,
}

/// Names are written in full once and then by number.
#[derive(Default)]
struct Names(HashMap<(char, String), String>);

impl Names {
    /// `(7) name`, `(7)`, or a name without a number.
    fn resolve(&mut self, kind: char, text: &str) -> String {
        let Some((number, name)) = text.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
            return text.to_owned();
        };
        let key = (kind, number.to_owned());
        match name.trim_start() {
            "" => self.0.get(&key).cloned().unwrap_or_default(),
            name => {
                self.0.insert(key, name.to_owned());
                name.to_owned()
            }
        }
    }
}

/// The costs of each place itself, without those of what it calls.
pub fn read(text: &str) -> Costs {
    let (mut costs, mut names, mut place) = (Costs::new(), Names::default(), Place::default());
    let mut is_call = false;
    for line in text.lines() {
        if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            // After `calls=` comes what the called function cost.
            if !std::mem::take(&mut is_call) {
                let cost: f64 = line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
                *costs.entry(owner(&place).to_owned()).or_default() += cost;
            }
            continue;
        }
        let Some((word, text)) = line.split_once('=') else { continue };
        match word {
            "ob" => place.object = names.resolve('o', text),
            "fl" | "fi" | "fe" => place.file = names.resolve('f', text),
            "fn" => place.function = names.resolve('n', text),
            "cob" => drop(names.resolve('o', text)),
            "cfl" | "cfi" => drop(names.resolve('f', text)),
            "cfn" => drop(names.resolve('n', text)),
            "calls" => is_call = true,
            _ => {}
        }
    }
    costs
}

/// By the file of the line, which is right also for what was inlined; without line tables, by the function.
fn owner(place: &Place) -> &str {
    let crate_of = |text: &'_ str, mark: &str| -> Option<(usize, usize)> {
        let start = text.find(mark)? + mark.len();
        let length = text[start..].find(|c: char| !c.is_ascii_lowercase()).unwrap_or(text.len() - start);
        Some((start, start + length))
    };
    // Rust's own library has crates in a folder of that name, too.
    let is_ours = !place.file.contains("/stdarch/");
    if let Some((start, end)) = crate_of(&place.file, "/crates/").filter(|_| is_ours) {
        return &place.file[start..end];
    }
    if let Some((start, end)) = crate_of(&place.function, "srdma_") {
        return &place.function[start..end];
    }
    let object = place.object.rsplit('/').next().unwrap_or("");
    match object {
        "libibverbs.so.1" => "Rust's library",
        _ if place.function.contains("mem") && object.starts_with("libc") => "memcpy and the like",
        _ if object.starts_with("libc.") => "the C library",
        "slow_clock.so" => "the clock",
        _ => "the program",
    }
}

/// What `messages` more messages cost, each.
pub fn per_message(few: &Costs, many: &Costs, messages: f64) -> Costs {
    let each = |(name, cost): (&String, &f64)| {
        (name.clone(), (cost - few.get(name).copied().unwrap_or(0.0)) / messages)
    };
    many.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two files of ours, one inlined into the other; a call whose cost is not the caller's; names by number.
    const FILE: &str = "\
events: Ir

ob=(1) /tree/lib/libibverbs.so.1
fl=(1) /src/crates/rnic/src/qp.rs
fn=(1) srdma_rnic::qp::Qp::on_packet
10 100
fi=(2) /src/crates/wire/src/codec.rs
+3 20
fe=(1)
cob=(2) /lib/libc.so.6
cfi=(3) memmove.S
cfn=(2) __memcpy_avx
calls=5 0
* 7000
11 1
ob=(2)
fl=(3)
fn=(2)
1 7000
ob=(1)
fl=(4) /rustc/library/core/src/iter.rs
fn=(3) <srdma_net::receive::Segments as core::iter::Iterator>::next
1 30
fn=(4) core::fmt::write
2 4
";

    #[test]
    fn instructions_belong_to_the_room_whose_line_it_is() {
        let costs = read(FILE);
        let expected = [
            ("rnic", 101.0),
            ("wire", 20.0),
            ("memcpy and the like", 7000.0),
            ("net", 30.0),
            ("Rust's library", 4.0),
        ];
        assert_eq!(costs, expected.map(|(name, cost)| (name.to_owned(), cost)).into());
    }

    #[test]
    fn what_both_runs_have_in_common_is_no_messages() {
        let costs = |pairs: &[(&str, f64)]| -> Costs {
            pairs.iter().map(|&(name, cost)| (name.to_owned(), cost)).collect()
        };
        let (few, many) = (costs(&[("rnic", 50.0)]), costs(&[("rnic", 250.0), ("net", 20.0)]));
        assert_eq!(per_message(&few, &many, 10.0), costs(&[("net", 2.0), ("rnic", 20.0)]));
    }
}
