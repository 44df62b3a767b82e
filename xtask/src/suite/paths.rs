//! That bytes really travel over all paths: our counters, the kernel's, and a capture.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::{Setting, Step};
use crate::fabric::{difference, Fabric, Spec, SpineCount};
use crate::process::Program;
use crate::programs::capture::{source_ports, tshark, Capture};
use crate::programs::{Done, Pair};

/// All of them.
pub fn steps() -> Vec<Step> {
    vec![
        Step::new("fabric/loss-is-what-was-asked", |_| fabric_loses_as_told()),
        Step::new("fabric/spreads-evenly", |_| fabric_spreads_evenly()),
        Step::new("paths/128-everywhere", all_paths),
        Step::new("paths/single", single_path),
        Step::new("paths/tshark-understands", dissected),
        Step::new("paths/wireshark-names-every-field", traced),
    ]
}

/// Blasts datagrams by hand: the fabric itself loses what it should, packet by packet and burst by burst.
fn fabric_loses_as_told() -> Result<String> {
    let mut remarks = Vec::new();
    for bursts in [false, true] {
        let fabric = Fabric::build(Spec::spines(None).loss(&[100, 0, 0, 0], bursts))?;
        let report = crate::fabric::blast(&fabric, 64, 200, 8, 1000, false)?;
        let counts = fabric.counts()?;
        let lossy = counts[0];
        ensure!(counts[1..].iter().all(|spine| spine.dropped == 0), "another spine lost, too: {counts:?}");
        // A burst of 8 datagrams crosses the spine as one buffer, or as 8.
        let buffers = report.sent_on_spine[0] as f64 * if bursts { 1.0 / 8.0 } else { 1.0 };
        let share = lossy.dropped as f64 / buffers;
        ensure!((0.08..0.12).contains(&share), "dropped {} of {buffers} buffers", lossy.dropped);
        ensure!(report.sent > report.received, "nothing is missing at the far side");
        let missing = report.sent - report.received;
        let per_drop = missing as f64 / lossy.dropped as f64;
        let expected = if bursts { 8.0 } else { 1.0 };
        ensure!(
            (per_drop - expected).abs() < 0.5,
            "{missing} datagrams missing after {} drops",
            lossy.dropped
        );
        remarks.push(format!("{:.1} % of {}", share * 100.0, if bursts { "bursts" } else { "packets" }));
    }
    Ok(remarks.join(", "))
}

/// 128 ports, evened out, reach all spines alike: what the tests of our own spread build on.
fn fabric_spreads_evenly() -> Result<String> {
    if !std::path::Path::new("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists() {
        return Ok("skipped: this kernel has no seed of the multipath hash (it came with 6.11)".into());
    }
    let fabric = Fabric::build(Spec::spines(None))?;
    crate::fabric::blast(&fabric, 128, 20, 8, 1000, true)?;
    let counts = fabric.counts()?;
    let uneven = unevenness(&counts, &[1; 4]);
    ensure!(uneven < 0.1, "spines differ by {:.0} %: {counts:?}", uneven * 100.0);
    Ok(format!("within {:.1} %", uneven * 100.0))
}

/// A run whose spread is looked at: enough bytes for far more than 2,000 units.
fn long_write() -> Pair {
    Pair::new("ib_write_bw -F -n 8000").limit(120)
}

/// Largest deviation of a spine's bytes from its share of the paths, as a share of that. Where the kernel lets
/// [`Fabric::even_out`] do its work, the shares are equal to within a few percent.
fn unevenness(counts: &[SpineCount], paths: &[usize]) -> f64 {
    let bytes: u64 = counts.iter().map(|spine| spine.forward_bytes).sum();
    let all: usize = paths.iter().sum();
    let share = |(count, paths): (&SpineCount, &usize)| {
        let expected = bytes as f64 * *paths as f64 / all as f64;
        (count.forward_bytes as f64 - expected).abs() / expected
    };
    counts.iter().zip(paths).map(share).fold(0.0, f64::max)
}

fn all_paths(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let file = launcher.file(".pcapng");
    let capture = Capture::start(&fabric.h1, &file, 96, 60_000)?;
    let (mut before, mut expected) = (Vec::new(), Vec::new());
    let done = long_write()
        .run_while(launcher, &fabric, |client| {
            wait_for_bytes(&fabric, 20_000_000, || client.has_ended())?;
            fabric.even_out()?;
            expected = fabric.ports_on_spines(&fabric.h1)?;
            before = fabric.counts()?;
            Ok(())
        })?
        .success()?;
    let crossed = difference(&before, &fabric.counts()?);
    let ports = source_ports(&capture.stop()?, &fabric.h1)?;
    let (used, units) = (done.client_stats()?.paths_used(), done.client_stats()?.units_sent());
    ensure!(units >= 2_000, "only {units} units: too few to judge");
    ensure!(used == 128, "{used} paths used by our counters, {units} units");
    // The slot's own port sends acknowledgements and handshakes at most.
    let data_ports: BTreeSet<u16> = ports.into_iter().filter(|&port| port != 4791).collect();
    ensure!(data_ports.len() >= 128, "{} UDP source ports in the capture", data_ports.len());
    let uneven = unevenness(&crossed, &expected);
    ensure!(uneven <= 0.15, "spines differ by {:.0} %: {crossed:?}, ports {expected:?}", uneven * 100.0);
    let (ports, percent) = (data_ports.len(), uneven * 100.0);
    Ok(format!("{units} units, {ports} ports, {expected:?} of them by spine, bytes within {percent:.1} %"))
}

/// With one path everything takes one spine: the fabric is a fair witness.
fn single_path(setting: &Setting<'_>) -> Result<String> {
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let before = fabric.counts()?;
    let done: Done = Pair::new("ib_write_bw -F -n 1000")
        .options("--selector single")
        .limit(120)
        .run(setting.launcher()?, &fabric)?
        .success()?;
    let crossed = difference(&before, &fabric.counts()?);
    let total: u64 = crossed.iter().map(|spine| spine.forward_bytes).sum();
    let busiest = crossed.iter().map(|spine| spine.forward_bytes).max().unwrap_or(0);
    ensure!(busiest as f64 >= 0.98 * total as f64, "one path, but {crossed:?}");
    let used = done.client_stats()?.paths_used();
    ensure!(used == 1, "our counters say {used} paths");
    Ok(format!("{:.1} % over one spine", busiest as f64 / total as f64 * 100.0))
}

/// tshark reads slot 0 as RoCEv2, with no packet malformed.
fn dissected(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let fabric = Fabric::build(Spec { bursts: false, ..Spec::pair() })?;
    let file = launcher.file(".pcapng");
    let capture = Capture::start(&fabric.h1, &file, 2048, 20_000)?;
    Pair::new("ib_write_bw -F -n 50").run(launcher, &fabric)?.success()?;
    Pair::new("ib_read_lat -F -n 50").run(launcher, &fabric)?.success()?;
    Pair::new("ib_atomic_lat -F -n 50").run(launcher, &fabric)?.success()?;
    let file = capture.stop()?;
    let count = |filter: &str| -> Result<usize> {
        Ok(tshark(&file, &["-Y", filter, "-T", "fields", "-e", "frame.number"])?.lines().count())
    };
    let (all, understood) = (count("udp")?, count("infiniband.bth")?);
    ensure!(all > 1000, "only {all} packets captured");
    ensure!(all == understood, "tshark finds a BTH in {understood} of {all} packets");
    let malformed = count("_ws.malformed")?;
    ensure!(malformed == 0, "tshark calls {malformed} of {all} packets malformed");
    Ok(format!("{all} packets"))
}

/// What `--trace` writes opens in Wireshark with the dissector and the profile that are shipped: every packet is
/// named, none is malformed, whatever its slot, and the columns of the profile are filled.
fn traced(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let fabric = Fabric::build(Spec { bursts: false, ..Spec::pair() })?;
    let folder = launcher.file("-traces");
    let profiles = folder.join("profiles");
    std::fs::create_dir_all(&profiles)?;
    Program::new("cp").args(["-r"]).args([&launcher.shared("wireshark/Stellar"), &profiles]).success()?;
    let option = format!("--trace {}/%p.pcapng --loss 1%", folder.display());
    for line in
        ["ib_write_bw -F -n 100", "ib_read_lat -F -n 50", "ib_atomic_lat -F -n 50", "ib_send_lat -F -n 50"]
    {
        Pair::new(line).options(&option).run(launcher, &fabric)?.success()?;
    }
    let script = format!("lua_script:{}", launcher.shared("wireshark/stellar.lua").display());
    let (mut packets, mut names) = (0, BTreeSet::new());
    for entry in std::fs::read_dir(&folder)? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "pcapng") {
            continue;
        }
        let ask = |args: &[&str]| -> Result<String> {
            let tshark = Program::new("tshark").env("WIRESHARK_CONFIG_DIR", &folder);
            let tshark = tshark.args(["-n", "-C", "Stellar", "-X", &script, "-r"]).args([&file]).args(args);
            Ok(tshark.limit(Duration::from_secs(120)).success()?.stdout)
        };
        let all = ask(&["-Y", "udp", "-T", "fields", "-e", "stellar.opcode"])?;
        ensure!(all.lines().all(|line| !line.is_empty()), "{}: packets that are not ours", file.display());
        names.extend(all.lines().map(str::to_owned));
        packets += all.lines().count();
        let bad = ask(&[
            "-Y",
            "_ws.malformed || _ws.lua.error || stellar.cut",
            "-T",
            "fields",
            "-e",
            "frame.number",
        ])?;
        ensure!(bad.is_empty(), "{}: malformed: {}", file.display(), bad.lines().next().unwrap_or(""));
        let columns = ask(&["-Y", "stellar.msn && stellar.transmit", "-c", "500"])?;
        let filled =
            |line: &str| line.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count() >= 6;
        ensure!(columns.lines().all(filled), "{}: empty columns: {columns}", file.display());
    }
    let wanted = ["0xc0", "0xc3", "0xd0", "0xd2", "0xd4", "0xe0", "0xe1"];
    for opcode in wanted {
        ensure!(names.contains(opcode), "no packet with opcode {opcode} in {names:?}");
    }
    Ok(format!("{packets} packets, {} opcodes", names.len()))
}

/// Waits until `bytes` have crossed the spines, or `ended`; fails after 30 s.
pub fn wait_for_bytes(fabric: &Fabric, bytes: u64, mut ended: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let crossed = || -> Result<u64> {
        Ok(fabric.counts()?.iter().map(|spine| spine.forward_bytes + spine.backward_bytes).sum())
    };
    while crossed()? < bytes {
        ensure!(!ended(), "the program ended before {bytes} bytes had crossed");
        ensure!(Instant::now() < deadline, "{bytes} bytes have not crossed within 30 s");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
