//! Loss, dead links and silent black holes under programs that must not notice.

use anyhow::{ensure, Result};

use super::paths::wait_for_bytes;
use super::{Setting, Step};
use crate::fabric::{difference, Fabric, Spec};
use crate::programs::Pair;

/// All of them.
pub fn steps(soak: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let losses: [(&str, &'static [u32]); 3] =
        [("1%-one-spine", &[10]), ("3%-one-spine", &[30]), ("1%-all-spines", &[10, 10, 10, 10])];
    let lines: [&'static str; 4] = [
        "ib_write_bw -F -n 2000",
        "ib_read_bw -F -n 1000",
        "ib_send_bw -F -n 1000",
        "ib_send_lat -F -n 2000",
    ];
    for (name, per_mille) in losses {
        for bursts in [false, true] {
            // CI takes two programs for each kind of loss, soak all four.
            let skip = usize::from(bursts) * 2;
            for &line in lines.iter().skip(if soak { 0 } else { skip }).take(if soak { 4 } else { 2 }) {
                let kind = if bursts { "bursts" } else { "packets" };
                steps.push(Step::new(format!("loss/{name}-of-{kind} {line}"), move |setting| {
                    survives_loss(setting, line, per_mille, bursts)
                }));
            }
        }
    }
    steps.push(Step::new("faults/spine-down", |setting| spine_fails(setting, Fault::LinksDown)));
    steps.push(Step::new("faults/spine-swallows", |setting| spine_fails(setting, Fault::Swallows)));
    steps.push(Step::new("faults/peer-killed", peer_killed));
    for line in ["ib_write_bw -F -D 6", "ib_read_bw -F -D 6"] {
        steps
            .push(Step::new(format!("faults/spine-flaps {line}"), move |setting| spine_flaps(setting, line)));
        steps.push(Step::new(format!("faults/uplink-flaps {line}"), move |setting| {
            interrupted(setting, line, Spec::spines(Some(200)), uplink_flaps).map(|end| end.to_string())
        }));
        steps.push(Step::new(format!("faults/mtu-lowered {line}"), move |setting| {
            let spec = Spec { mtu_bytes: 9000, ..Spec::spines(None).loss(&[], false) };
            interrupted(setting, line, spec, mtu_lowered).map(|end| end.to_string())
        }));
    }
    steps.push(Step::new("faults/address-removed", address_removed));
    steps
}

/// Codes that a network's failing may end a connection with: no answer, no way, the peer's end, a path become too
/// narrow.
const NETWORK: [u64; 5] = [40, 42, 43, 46, 1];

/// How a run ended that the network interrupted.
enum End {
    /// As if nothing had been.
    Well,
    /// With these codes.
    Named(Vec<u64>),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Well => f.write_str("went on"),
            End::Named(codes) => write!(f, "ended, codes {codes:?}"),
        }
    }
}

/// Runs `line`, lets `meanwhile` befall the network in mid-run: the run goes on, or both sides end with an error of the
/// table that is the network's. Neither hangs.
fn interrupted(
    setting: &Setting<'_>,
    line: &str,
    spec: Spec,
    meanwhile: fn(&Fabric) -> Result<()>,
) -> Result<End> {
    let fabric = Fabric::build(spec)?;
    let mut before = Vec::new();
    let done = Pair::new(line).limit(60).run_while(setting.launcher()?, &fabric, |client| {
        wait_for_bytes(&fabric, 50_000_000, || client.has_ended())?;
        meanwhile(&fabric)?;
        before = fabric.counts()?;
        Ok(())
    })?;
    for side in [&done.client, &done.server] {
        ensure!(!side.timed_out, "a side hangs: {}", side.story());
    }
    let codes: Vec<u64> =
        [&done.client_stats, &done.server_stats].into_iter().flatten().flat_map(|s| s.failures()).collect();
    if codes.is_empty() {
        done.success()?;
        let after = difference(&before, &fabric.counts()?);
        let bytes: u64 = after.iter().map(|spine| spine.forward_bytes + spine.backward_bytes).sum();
        ensure!(bytes > 20_000_000, "ended well, but only {bytes} bytes crossed afterwards");
        return Ok(End::Well);
    }
    ensure!(codes.iter().all(|code| NETWORK.contains(code)), "codes {codes:?}: {}", done.client.story());
    ensure!(codes.iter().any(|code| *code != 1), "nobody says why: {}", done.client.story());
    Ok(End::Named(codes))
}

/// A spine's links go and come back: nobody notices.
fn spine_flaps(setting: &Setting<'_>, line: &str) -> Result<String> {
    let end = interrupted(setting, line, Spec::spines(Some(200)), |fabric| {
        fabric.set_spine_up(0, false)?;
        std::thread::sleep(std::time::Duration::from_secs(2));
        fabric.set_spine_up(0, true)
    })?;
    ensure!(matches!(end, End::Well), "{end}");
    Ok(end.to_string())
}

/// The host's own link goes for two seconds, its routes with it, and both come back.
fn uplink_flaps(fabric: &Fabric) -> Result<()> {
    fabric.h1.ip("link set eth0 down")?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    fabric.h1.ip("link set eth0 up\nroute add default via 10.77.1.1")
}

/// Every spine lets only packets of 1500 bytes pass from now on, and says so to nobody.
fn mtu_lowered(fabric: &Fabric) -> Result<()> {
    fabric.narrow_spines(1500)
}

/// The address that a device has is taken from the host: its queue pairs end, and the error names it.
fn address_removed(setting: &Setting<'_>) -> Result<String> {
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let address = fabric.h1.address.to_string();
    let done =
        Pair::new("ib_write_bw -F -D 8").limit(60).run_while(setting.launcher()?, &fabric, |client| {
            wait_for_bytes(&fabric, 50_000_000, || client.has_ended())?;
            fabric.h1.ip(&format!("address del {address}/24 dev eth0"))
        })?;
    ensure!(!done.client.timed_out && !done.server.timed_out, "a side hangs: {}", done.client.story());
    ensure!(done.client.code.is_some_and(|code| code != 0), "{}", done.client.story());
    let codes = done.client_stats()?.failures();
    ensure!(codes.iter().all(|code| NETWORK.contains(code)) && !codes.is_empty(), "codes {codes:?}");
    ensure!(done.client.stderr.contains(&address), "nothing names {address}: {}", done.client.story());
    Ok(format!("ended after {:.1} s, codes {codes:?}", done.client.wall.as_secs_f64()))
}

/// The server is killed under way: the client ends with an error of its own, and does not hang.
fn peer_killed(setting: &Setting<'_>) -> Result<String> {
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let pair = Pair::new("ib_write_bw -F -n 20000").limit(120);
    let done = pair.run_while_both(setting.launcher()?, &fabric, |client, server| {
        wait_for_bytes(&fabric, 20_000_000, || client.has_ended())?;
        server.signal(libc::SIGKILL);
        Ok(())
    })?;
    ensure!(!done.client.timed_out, "the client hangs: {}", done.client.story());
    ensure!(done.client.code.is_some_and(|code| code != 0), "{}", done.client.story());
    let failures = done.client_stats()?.failures();
    ensure!(!failures.is_empty(), "no queue pair failed by our counters");
    Ok(format!("ended after {:.1} s, code {failures:?}", done.client.wall.as_secs_f64()))
}

fn survives_loss(setting: &Setting<'_>, line: &str, per_mille: &[u32], bursts: bool) -> Result<String> {
    let fabric = Fabric::build(Spec::spines(Some(200)).loss(per_mille, bursts))?;
    let done = Pair::new(line).limit(180).run(setting.launcher()?, &fabric)?.success()?;
    let lost: u64 = fabric.counts()?.iter().map(|spine| spine.dropped).sum();
    let again = done.client_stats()?.retransmitted() + done.server_stats()?.retransmitted();
    ensure!(lost > 0, "the fabric lost nothing: nothing was tested");
    if lost > 100 {
        ensure!(again > 0, "the fabric lost {lost} buffers, yet nothing was sent again by our counters");
    }
    Ok(format!("{lost} lost, {again} packets sent again"))
}

#[derive(Clone, Copy)]
enum Fault {
    LinksDown,
    Swallows,
}

/// A spine fails in mid-run and the run ends well; what came after the fault crossed the other three. How
/// fast is a matter for `cargo xtask bench`.
fn spine_fails(setting: &Setting<'_>, fault: Fault) -> Result<String> {
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let mut at_fault = Vec::new();
    let done = Pair::new("ib_write_bw -F -n 8000")
        .limit(180)
        .run_while(setting.launcher()?, &fabric, |client| {
            wait_for_bytes(&fabric, 50_000_000, || client.has_ended())?;
            match fault {
                Fault::LinksDown => fabric.set_spine_up(0, false)?,
                Fault::Swallows => fabric.set_loss(0, 1000)?,
            }
            at_fault = fabric.counts()?;
            Ok(())
        })?
        .success()?;
    let after = difference(&at_fault, &fabric.counts()?);
    let others: u64 = after[1..].iter().map(|spine| spine.forward_bytes).sum();
    ensure!(others > 200_000_000, "only {others} bytes crossed the other spines after the fault");
    ensure!(
        after[1..].iter().all(|spine| spine.forward_bytes > 10_000_000),
        "a healthy spine lay idle: {after:?}"
    );
    if let Fault::Swallows = fault {
        ensure!(after[0].dropped > 0, "the black hole swallowed nothing");
    }
    let again = done.client_stats()?.retransmitted();
    ensure!(again > 0, "nothing was sent again by our counters");
    Ok(format!("{} over three spines afterwards, {again} packets sent again", crate::report::bytes(others)))
}
