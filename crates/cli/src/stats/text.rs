//! A sample in words: a paragraph for each device, one for each queue pair, a bar for each path.

use super::amount::{amount, bar, bits, bytes, count, time};
use super::sample::{number, sum, text, Device, Path1, Qp, Rate, Sample};
use serde_json::Value;
use std::fmt::Write;

/// Bars in a line.
const BARS_PER_LINE: usize = 64;
/// Queue pairs of a device that are shown, unless all are wanted.
pub const SHOWN: usize = 8;

/// Everything, `qps` queue pairs of each device at most.
pub fn sample(sample: &Sample, qps: usize) -> String {
    let mut out = String::new();
    for device in &sample.devices {
        // Writing to a String cannot fail.
        let _ = device_lines(&mut out, device, qps);
    }
    for (pid, why) in &sample.silent {
        let _ = writeln!(out, "process {pid}: {why}");
    }
    out
}

fn device_lines(out: &mut String, device: &Device, shown: usize) -> std::fmt::Result {
    let head = &device.head;
    let n = |pointer: &str| number(head, pointer);
    writeln!(
        out,
        "{}, process {}: {} port {}, {} paths, {}, {} order",
        device.program(),
        device.pid,
        text(head, "/device/address"),
        n("/device/port"),
        n("/device/paths"),
        text(head, "/device/selector"),
        text(head, "/device/order"),
    )?;
    writeln!(out, "  {}", rate(&device.rate, n("/socket/sent_bytes"), n("/socket/received_bytes")))?;
    let lost = [
        ("dropped by the kernel", n("/socket/kernel_drops")),
        ("of no use", sum(head, "/dropped")),
        ("dropped on purpose", n("/socket/fault_drops")),
        ("send socket full", n("/socket/send_busy")),
        ("refused", n("/socket/send_faults") + n("/socket/send_unreachable") + n("/socket/send_too_big")),
        ("arrived marked (ECN)", n("/socket/received_ce")),
    ];
    writeln!(
        out,
        "  socket: {}; {} packets per send call, {} per receive call",
        nonzero(&lost, "nothing dropped"),
        per(n("/socket/sent_packets"), n("/socket/send_calls")),
        per(n("/socket/received_packets"), n("/socket/receive_calls")),
    )?;
    let mut qps: Vec<&Qp> = device.qps.iter().collect();
    qps.sort_by(|a, b| busier(a, b));
    for qp in qps.iter().take(shown) {
        qp_lines(out, qp)?;
    }
    let rest = qps.len().saturating_sub(shown);
    if rest > 0 {
        writeln!(out, "  and {rest} queue pairs with less traffic; --all shows them")?;
    }
    Ok(())
}

/// By what they do now, then by what they have done, then by number.
pub fn busier(a: &Qp, b: &Qp) -> std::cmp::Ordering {
    let total =
        |qp: &Qp| number(&qp.value, "/bytes_sent").saturating_add(number(&qp.value, "/bytes_received"));
    let by_rate = b.rate.bytes().total_cmp(&a.rate.bytes());
    by_rate.then_with(|| total(b).cmp(&total(a))).then_with(|| a.qpn().cmp(&b.qpn()))
}

fn per(packets: u64, calls: u64) -> String {
    match calls {
        0 => "no".into(),
        _ => amount(packets as f64 / calls as f64, ""),
    }
}

fn rate(rate: &Rate, sent: u64, received: u64) -> String {
    let one = |bytes_per_s, packets_per_s| {
        format!("{}, {} packets/s", bits(bytes_per_s), amount(packets_per_s, ""))
    };
    format!(
        "sends {} ({} so far); receives {} ({} so far)",
        one(rate.sent_bytes, rate.sent_packets),
        bytes(sent),
        one(rate.received_bytes, rate.received_packets),
        bytes(received),
    )
}

/// `3 of this, 1 of that`, without the zeros.
fn nonzero(counts: &[(&str, u64)], otherwise: &str) -> String {
    let some: Vec<String> =
        counts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{} {name}", count(*n))).collect();
    if some.is_empty() {
        otherwise.to_owned()
    } else {
        some.join(", ")
    }
}

/// The members of an object that are not zero.
fn causes(value: &Value, pointer: &str) -> String {
    let members = value.pointer(pointer).and_then(Value::as_object);
    let counts: Vec<(&str, u64)> = members
        .into_iter()
        .flatten()
        .map(|(name, count)| (name.as_str(), count.as_u64().unwrap_or(0)))
        .collect();
    nonzero(&counts, "")
}

/// Who it talks to, in one line.
pub fn connection(qp: &Qp) -> String {
    let v = &qp.value;
    let state = match v["live"] == true {
        true => text(v, "/state").to_uppercase(),
        false => "gone".to_owned(),
    };
    let peer = match v["peer"].is_string() {
        true => format!("{} QP {:#08x}", text(v, "/peer"), number(v, "/peer_qpn")),
        false => "nobody yet".to_owned(),
    };
    let failure = match number(v, "/failure") {
        0 => String::new(),
        code => format!(", failed: srdma explain {code}"),
    };
    format!("QP {:#08x} to {peer}, {state}{failure}", qp.qpn())
}

/// What recovery and congestion control do, a line each.
pub fn details(qp: &Qp) -> Vec<String> {
    let v = &qp.value;
    let n = |pointer: &str| number(v, pointer);
    let by_cause = match causes(v, "/retransmitted") {
        none if none.is_empty() => none,
        some => format!(" ({some})"),
    };
    let counts = [
        ("lost", sum(v, "/lost")),
        ("losses undone", n("/undone")),
        ("time-outs", n("/rtos")),
        ("receiver not ready", n("/rnr_received") + n("/rnr_sent")),
        ("refused", n("/naks_received") + n("/naks_sent")),
        ("arrived for nothing", sum(v, "/dropped")),
        ("marked (ECN)", n("/ce_marked")),
    ];
    let resent = format!(
        "resent {}{by_cause} of {} packets, {}/s; {}",
        count(sum(v, "/retransmitted")),
        count(n("/packets_sent")),
        amount(qp.rate.resent_packets, ""),
        nonzero(&counts, "nothing lost"),
    );
    let rtt = match n("/rtt_ns/smoothed") {
        0 => "no round trip yet".to_owned(),
        rtt => format!(
            "round trip {} (least {}, most {})",
            time(rtt),
            time(n("/rtt_ns/min")),
            time(n("/rtt_ns/max"))
        ),
    };
    let window = format!(
        "window {}, {} in flight, {} messages wait; out of order by {} packets (most {})",
        bytes(n("/now/window_bytes").max(n("/window_bytes"))),
        bytes(n("/now/inflight_bytes")),
        count(n("/now/messages_waiting")),
        count(n("/now/out_of_order_packets")),
        count(n("/out_of_order_max_packets")),
    );
    vec![resent, format!("{rtt}; {window}")]
}

fn qp_lines(out: &mut String, qp: &Qp) -> std::fmt::Result {
    let v = &qp.value;
    writeln!(out, "  {}", connection(qp))?;
    writeln!(out, "    {}", rate(&qp.rate, number(v, "/bytes_sent"), number(v, "/bytes_received")))?;
    for line in details(qp) {
        writeln!(out, "    {line}")?;
    }
    for line in paths(&qp.paths, number(v, "/now/paths_suspected")) {
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

/// A bar for each path, highest for the path that sent most; `x` for one that only lost.
pub fn paths(paths: &[Path1], suspected: u64) -> Vec<String> {
    let used: Vec<&Path1> = paths.iter().filter(|path| path.bytes > 0).collect();
    let Some(most) = used.iter().map(|path| path.bytes).max() else { return Vec::new() };
    let least = used.iter().map(|path| path.bytes).min().unwrap_or(0);
    let lost: u64 = paths.iter().map(|path| path.lost).sum();
    let dead = if suspected > 0 { format!(", {suspected} held dead") } else { String::new() };
    let mut lines = vec![format!(
        "{} paths, {} to {} each, {} packets lost on them{dead}",
        used.len(),
        bytes(least),
        bytes(most),
        count(lost)
    )];
    let end = paths.iter().map(|path| path.path as usize & 0xff).max().unwrap_or(0) + 1;
    let mut bars = vec!['·'; end];
    for path in paths {
        let one = if path.bytes == 0 && path.lost > 0 { 'x' } else { bar(path.bytes, most) };
        bars[path.path as usize & 0xff] = one;
    }
    for (row, bars) in bars.chunks(BARS_PER_LINE).enumerate() {
        lines.push(format!("{:3} {}", row * BARS_PER_LINE, bars.iter().collect::<String>()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_path_has_a_bar_at_its_place() {
        let path = |path, bytes, lost| Path1 { path, bytes, lost };
        let lines = paths(&[path(0, 100, 0), path(2, 50, 1), path(3, 0, 4), path(65, 100, 0)], 1);
        assert_eq!(lines[0], "3 paths, 50 B to 100 B each, 5 packets lost on them, 1 held dead");
        assert_eq!(lines[1], format!("  0 █·▄x{}", "·".repeat(60)));
        assert_eq!(lines[2], " 64 ·█");
        assert!(paths(&[], 0).is_empty());
    }

    #[test]
    fn a_queue_pair_is_told_with_causes_and_without_zeros() {
        let value = json!({
            "qpn": 18, "live": true, "state": "rts", "peer": "10.0.0.2:4791", "peer_qpn": 19, "failure": 0,
            "packets_sent": 1000, "retransmitted": {"age": 3, "rto": 0}, "lost": {"age": 4}, "ce_marked": 2,
            "rtt_ns": {"min": 1000, "smoothed": 2000, "max": 3000}, "window_bytes": 5000,
            "now": {"window_bytes": 6000, "inflight_bytes": 100, "out_of_order_packets": 12},
        });
        let qp = Qp { value, rate: Rate::default(), paths: Vec::new() };
        assert_eq!(connection(&qp), "QP 0x000012 to 10.0.0.2:4791 QP 0x000013, RTS");
        let details = details(&qp).join("\n");
        for part in [
            "resent 3 (3 age) of 1.00 k packets",
            "4 lost, 2 marked (ECN)",
            "round trip 2 µs",
            "6.00 kB",
            "by 12 packets",
        ] {
            assert!(details.contains(part), "{part} is not in {details}");
        }
        assert!(!details.contains("rto"), "{details}");
    }
}
