//! A report of `srdma check` as text for a person and as JSON for a program.

use serde_json::{json, Value};
use srdma_probe::check::{Port, PortState, Report, RoundTrips, Sizes};
use srdma_probe::paths::{Count, Discovery, Hop};
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

/// Routers named in one line of text.
const ROUTERS_SHOWN: usize = 8;

/// The report for a person; the last line is the verdict.
pub fn human(host: &str, report: &Report) -> String {
    let mut text = String::new();
    let named = if host == report.peer.to_string() { String::new() } else { format!("{host} ") };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{named}{} from {}\n", report.peer, report.source);
    text.push_str("  slot  port         answer\n");
    for alike in report.ports.chunk_by(|a, b| a.state == b.state && a.port + 1 == b.port) {
        text.push_str(&ports_line(alike));
    }
    text.push('\n');
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "  {label:<11} {value}");
    };
    if let Some(trips) = &report.round_trips {
        line("round trip", trips_text(trips));
    }
    if let Some(sizes) = &report.sizes {
        line("packet size", sizes_text(sizes));
    }
    if report.answering().is_some() {
        line("NAT", nat_text(report));
    }
    if let Some(found) = &report.discovery {
        for hop in &found.hops {
            line(&format!("hop {}", hop.ttl), hop_text(hop));
        }
        if report.answering().is_some() {
            line("paths", count_text(found));
        }
    }
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    let _ = writeln!(text, "{}", verdict(host, report));
    text
}

/// One line for consecutive ports that answer alike.
fn ports_line(ports: &[Port]) -> String {
    let (Some(first), Some(last)) = (ports.first(), ports.last()) else { return String::new() };
    let range = |from: String, to: String| if from == to { from } else { format!("{from}-{to}") };
    let slot = |port: &Port| port.slot.map_or("-".to_owned(), |slot| slot.to_string());
    let (slots, numbers) =
        (range(slot(first), slot(last)), range(first.port.to_string(), last.port.to_string()));
    format!("  {slots:<4}  {numbers:<11}  {}\n", state_text(&first.state))
}

fn state_text(state: &PortState) -> String {
    let by = |who: &Option<IpAddr>| who.map_or(String::new(), |ip| format!(" (says {ip})"));
    match state {
        PortState::Answers { version, hops, .. } => {
            let far = match hops {
                None => String::new(),
                Some(0) => ", no router between".to_owned(),
                Some(1) => ", 1 router between".to_owned(),
                Some(n) => format!(", {n} routers between"),
            };
            format!("answers: protocol version {version}{far}")
        }
        PortState::Closed => "closed: the host is up, nothing has this port".to_owned(),
        PortState::Prohibited(who) => format!("refused by a firewall{}", by(who)),
        PortState::Unreachable(who) => format!("unreachable{}", by(who)),
        PortState::Silent => "silence".to_owned(),
        PortState::Unsure => {
            "no answer, but other ports are refused: the host limits its refusals, or a firewall drops this"
                .to_owned()
        }
    }
}

/// Milliseconds, to the microsecond.
fn ms(span: Duration) -> String {
    format!("{:.3}", span.as_secs_f64() * 1e3)
}

fn trips_text(trips: &RoundTrips) -> String {
    let RoundTrips { sent, answered, .. } = trips;
    match trips.min_median_max {
        Some([min, median, max]) => format!(
            "{} / {} / {} ms (min / median / max; {answered} of {sent} answered)",
            ms(min),
            ms(median),
            ms(max)
        ),
        None => format!("none of {sent} probes answered"),
    }
}

fn sizes_text(sizes: &Sizes) -> String {
    let interface = sizes.interface_bytes.map_or(String::new(), |mtu| format!(", interface MTU {mtu}"));
    let named = match sizes.named {
        Some((bytes, Some(by))) => format!(", {by} names a limit of {bytes}"),
        Some((bytes, None)) => format!(", this host names a limit of {bytes}"),
        None => String::new(),
    };
    match (sizes.passes_bytes, sizes.fails_bytes) {
        (Some(passes), None) => format!("{passes} bytes pass unfragmented{interface}"),
        (Some(passes), Some(fails)) => format!("{passes} bytes pass, {fails} do not{interface}{named}"),
        (None, _) => format!("no size tried passed (from 1280 up){interface}{named}"),
    }
}

fn nat_text(report: &Report) -> String {
    match report.translated() {
        Some((ours, theirs)) => format!("yes: we are {ours}, the host sees {theirs}"),
        None => "none: the host sees our own address and port".to_owned(),
    }
}

fn hop_text(hop: &Hop) -> String {
    if hop.answered == 0 {
        return format!("silent: none of {} source ports answered", hop.asked);
    }
    let mut names: Vec<String> = hop.routers.keys().take(ROUTERS_SHOWN).map(IpAddr::to_string).collect();
    if hop.routers.len() > ROUTERS_SHOWN {
        names.push(format!("and {} more", hop.routers.len() - ROUTERS_SHOWN));
    }
    let what = match hop.routers.len() {
        1 => "1 router".to_owned(),
        // One router may answer with several of its addresses.
        n => format!("{n} router addresses"),
    };
    let limited = if hop.is_limited() { "; the rest is most likely a limit on ICMP answers" } else { "" };
    format!("{what}: {} ({} of {} source ports answered{limited})", names.join(" "), hop.answered, hop.asked)
}

fn plural(count: usize) -> String {
    match count {
        1 => "1 path".to_owned(),
        n => format!("{n} distinct paths"),
    }
}

fn count_text(found: &Discovery) -> String {
    let ports = found.source_ports;
    match found.count {
        Count::Direct => "1: no router between (what lies below IP cannot be seen)".to_owned(),
        Count::Exact(n) => format!("{}, measured: router sequences of all {ports} source ports", plural(n)),
        Count::Confident(n) => format!(
            "{}, measured: {} of {ports} source ports are known, enough to exclude another with 95 % confidence",
            plural(n),
            found.known
        ),
        Count::AtLeast(n) => format!("at least {}: {}", plural(n), what_is_missing(&found.hops)),
        Count::Unknown => "unknown: no router on the way answers".to_owned(),
    }
}

/// Why not every path is known.
fn what_is_missing(hops: &[Hop]) -> String {
    match hops.iter().find(|hop| hop.answered == 0) {
        Some(hop) => format!("nobody at hop {} answers", hop.ttl),
        None => "routers answer only some probes, so as not to be flooded".to_owned(),
    }
}

fn verdict(host: &str, report: &Report) -> String {
    if let Some(port) = report.answering() {
        let slot = port.slot.map_or(format!("port {}", port.port), |slot| format!("slot {slot}"));
        let paths = match report.discovery.as_ref().map(|found| found.count) {
            None => String::new(),
            Some(Count::Direct) => "; no router between".to_owned(),
            Some(Count::Exact(n) | Count::Confident(n)) => format!("; {}", plural(n)),
            Some(Count::AtLeast(n)) => format!("; at least {}", plural(n)),
            Some(Count::Unknown) => "; number of paths unknown".to_owned(),
        };
        let warning = match report.translated() {
            Some((ours, observed)) if ours.ip() != observed.ip() => {
                "; but our address is translated on the way, and RDMA connections need the real one: avoid the NAT"
            }
            _ => "",
        };
        return format!("OK: {host} answers on {slot}{paths}{warning}");
    }
    format!("NOT REACHED: {}", why(host, report))
}

/// What silence or refusal most probably means, and what to do.
fn why(host: &str, report: &Report) -> String {
    let any = |wanted: fn(&PortState) -> bool| report.ports.iter().any(|port: &Port| wanted(&port.state));
    if any(|state| matches!(state, PortState::Prohibited(_))) {
        return format!("a firewall refuses UDP to {host}; open UDP port 4791 and 61001-61255");
    }
    if any(|state| *state == PortState::Closed) {
        return format!(
            "{host} is up, but no program with a queue pair is on it; start one with `srdma run`, or `srdma check --listen`"
        );
    }
    if any(|state| matches!(state, PortState::Unreachable(_))) {
        return format!(
            "no way to {host}; it is down, or a route is missing: see `ip route get {}`",
            report.peer
        );
    }
    let heard = report.discovery.iter().flat_map(|found| &found.hops).rfind(|hop| hop.answered > 0);
    let last = match heard {
        Some(hop) => format!("; the last router that answers is at hop {}", hop.ttl),
        None => String::new(),
    };
    format!(
        "silence{last}; {host} is down, or a firewall drops UDP (it should pass port 4791 and 61001-61255)"
    )
}

/// The report for a program. Times in nanoseconds, sizes in bytes.
pub fn object(host: &str, report: &Report) -> Value {
    let nat = match (report.answering(), report.translated()) {
        (Some(_), Some((ours, observed))) => {
            json!({ "translated": true, "ours": ours.to_string(), "observed": observed.to_string() })
        }
        (Some(_), None) => json!({ "translated": false }),
        (None, _) => Value::Null,
    };
    json!({
        "reachable": report.answering().is_some(),
        "host": host,
        "peer": report.peer.to_string(),
        "source": report.source.to_string(),
        "port": report.asked,
        "ports": report.ports.iter().map(port_object).collect::<Value>(),
        "rtt": report.round_trips.as_ref().map(trips_object),
        "nat": nat,
        "packet_size": report.sizes.as_ref().map(sizes_object),
        "paths": report.discovery.as_ref().map(discovery_object),
        "verdict": verdict(host, report),
    })
}

fn port_object(port: &Port) -> Value {
    let (state, by) = match &port.state {
        PortState::Answers { .. } => ("answers", None),
        PortState::Closed => ("closed", None),
        PortState::Prohibited(by) => ("prohibited", *by),
        PortState::Unreachable(by) => ("unreachable", *by),
        PortState::Silent => ("silent", None),
        PortState::Unsure => ("unsure", None),
    };
    let (version, hops) = match &port.state {
        PortState::Answers { version, hops, .. } => (Some(version), *hops),
        _ => (None, None),
    };
    json!({
        "port": port.port,
        "slot": port.slot.map(|slot| slot.0),
        "state": state,
        "by": by.map(|by| by.to_string()),
        "version": version,
        "routers_between": hops,
    })
}

fn trips_object(trips: &RoundTrips) -> Value {
    let ns = |at: usize| trips.min_median_max.map(|times| times[at].as_nanos() as u64);
    json!({
        "sent": trips.sent,
        "answered": trips.answered,
        "min_ns": ns(0),
        "median_ns": ns(1),
        "max_ns": ns(2),
    })
}

fn sizes_object(sizes: &Sizes) -> Value {
    json!({
        "interface_bytes": sizes.interface_bytes,
        "passes_bytes": sizes.passes_bytes,
        "fails_bytes": sizes.fails_bytes,
        "limit_named_bytes": sizes.named.map(|(bytes, _)| bytes),
        "limit_named_by": sizes.named.and_then(|(_, by)| by).map(|by| by.to_string()),
    })
}

fn discovery_object(found: &Discovery) -> Value {
    let (certainty, distinct) = match found.count {
        Count::Direct => ("direct", Some(1)),
        Count::Exact(n) => ("exact", Some(n)),
        Count::Confident(n) => ("95 % confidence", Some(n)),
        Count::AtLeast(n) => ("at least", Some(n)),
        Count::Unknown => ("unknown", None),
    };
    let routers = |hop: &Hop| -> Value {
        hop.routers
            .iter()
            .map(|(ip, ports)| json!({ "address": ip.to_string(), "source_ports": ports }))
            .collect()
    };
    let hop = |hop: &Hop| {
        json!({
            "ttl": hop.ttl,
            "asked": hop.asked,
            "answered": hop.answered,
            "limited": hop.is_limited(),
            "routers": routers(hop),
        })
    };
    json!({
        "distinct": distinct,
        "certainty": certainty,
        "widest_hop": found.widest(),
        "source_ports": found.source_ports,
        "source_ports_reached": found.reached,
        "source_ports_known": found.known,
        "hops": found.hops.iter().map(hop).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(ttl: u8, asked: usize, answered: usize) -> Hop {
        let router = IpAddr::from([10, 0, ttl, 1]);
        Hop { ttl, asked, answered, routers: [(router, answered)].into_iter().filter(|r| r.1 > 0).collect() }
    }

    #[test]
    fn a_router_that_answers_sometimes_is_not_called_silent() {
        for (asked, answered, said, not_said) in [
            (128, 0, "silent: none of 128", "limit"),
            (128, 6, "6 of 128 source ports answered; the rest is most likely a limit", "silent"),
            (128, 128, "128 of 128 source ports answered)", "limit"),
        ] {
            let text = hop_text(&hop(1, asked, answered));
            assert!(text.contains(said) && !text.contains(not_said), "{text}");
        }
    }

    #[test]
    fn a_lower_bound_says_what_is_missing() {
        for (hops, said) in [
            (vec![hop(1, 128, 6), hop(2, 128, 9)], "answer only some probes"),
            (vec![hop(1, 128, 6), hop(2, 128, 0)], "nobody at hop 2 answers"),
        ] {
            let found =
                Discovery { source_ports: 128, reached: 128, known: 0, count: Count::AtLeast(1), hops };
            let text = count_text(&found);
            assert!(text.starts_with("at least 1 path") && text.contains(said), "{text}");
        }
    }
}
