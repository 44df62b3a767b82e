//! What befalls processes: stopped, killed, forked, ended.
//!
//! A run either ends well or with the documented error, and nothing of it remains.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::paths::wait_for_bytes;
use super::{Setting, Step};
use crate::fabric::{Fabric, Spec};
use crate::process::Running;
use crate::programs::{Done, Launcher, Pair};

/// Codes of the error table by which a queue pair may end that nobody answers, or whose peer has said goodbye.
const SILENCE: [u64; 2] = [40, 42];

/// All of them.
pub fn steps(soak: bool) -> Vec<Step> {
    let cycles = if soak { 1_000 } else { 12 };
    let children = if soak { 2_000 } else { 100 };
    vec![
        Step::new("faults/client-stopped", |setting| stopped(setting, true)),
        Step::new("faults/server-stopped", |setting| stopped(setting, false)),
        Step::new("faults/client-killed", client_killed),
        Step::new("faults/forks-under-traffic", move |setting| forks(setting.launcher()?, children)),
        Step::new("faults/exit-under-traffic", exit_under_traffic),
        Step::new("faults/connect-and-kill", move |setting| connect_and_kill(setting.launcher()?, cycles)),
    ]
}

/// One side of a bandwidth run is stopped for three seconds: it ends well, or with a documented error; it never hangs.
fn stopped(setting: &Setting<'_>, client_is: bool) -> Result<String> {
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let pair = Pair::new("ib_write_bw -F -n 6000").limit(120);
    let done = pair.run_while_both(setting.launcher()?, &fabric, |client, server| {
        wait_for_bytes(&fabric, 50_000_000, || client.has_ended())?;
        stop_for_a_while(if client_is { client } else { server });
        Ok(())
    })?;
    for side in [&done.client, &done.server] {
        ensure!(!side.timed_out, "hangs: {}", side.story());
    }
    // A server whose client has failed is ended by us.
    ensure!(done.client.signal.is_none(), "{}", done.client.story());
    ensure!(done.server.signal.is_none_or(|signal| signal == libc::SIGINT), "{}", done.server.story());
    let ended = judge(&done)?;
    nothing_remains(&fabric)?;
    Ok(ended)
}

fn stop_for_a_while(program: &Running) {
    program.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(3));
    program.signal(libc::SIGCONT);
}

/// Both sides ended well, or the client's queue pair failed as documented.
fn judge(done: &Done) -> Result<String> {
    if done.client.code == Some(0) {
        let again = done.client_stats()?.retransmitted();
        return Ok(format!("went on, {again} packets sent again"));
    }
    let codes = done.client_stats()?.failures();
    ensure!(!codes.is_empty(), "the client failed, but no queue pair: {}", done.client.story());
    ensure!(codes.iter().all(|code| SILENCE.contains(code)), "codes {codes:?}: {}", done.client.story());
    Ok(format!("ended as documented, codes {codes:?}, after {:.1} s", done.client.wall.as_secs_f64()))
}

/// Every port of a slot on both hosts is free again, a little after the programs have ended.
fn nothing_remains(fabric: &Fabric) -> Result<()> {
    if !fabric.is_real() {
        return Ok(());
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let mut held = Vec::new();
        for host in [&fabric.h1, &fabric.h2] {
            let slots = |port: &u16| *port == 4791 || (61_001..=61_255).contains(port);
            held.extend(host.udp_ports()?.into_iter().filter(slots));
        }
        if held.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "ports {held:?} are still bound");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The client is killed under way: the server, which waits for it, ends too.
fn client_killed(setting: &Setting<'_>) -> Result<String> {
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let pair = Pair::new("ib_write_bw -F -n 20000").limit(120);
    let done = pair.run_while_both(setting.launcher()?, &fabric, |client, _| {
        wait_for_bytes(&fabric, 20_000_000, || client.has_ended())?;
        client.signal(libc::SIGKILL);
        Ok(())
    })?;
    ensure!(
        done.client.signal == Some(libc::SIGKILL) || done.client.code != Some(0),
        "{}",
        done.client.story()
    );
    ensure!(!done.server.timed_out, "the server hangs: {}", done.server.story());
    nothing_remains(&fabric)?;
    Ok(String::new())
}

fn objects(launcher: &Launcher, fabric: &Fabric, words: &[&str], seconds: u64) -> Result<String> {
    let mut argv = vec![launcher.c_program("objects")?.display().to_string()];
    argv.extend(words.iter().map(|&word| word.to_owned()));
    let program = launcher.program(&[], &launcher.file(".json"), &argv).on(&fabric.h1);
    let out = program.limit(Duration::from_secs(seconds)).success()?;
    Ok(out.stdout.trim().to_owned())
}

/// Children that end, run the exit handlers, run another program, or use what is their parent's, while it is at work.
fn forks(launcher: &Launcher, children: u32) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let said = objects(launcher, &fabric, &["forks", &children.to_string()], 60 + u64::from(children))?;
    nothing_remains(&fabric)?;
    Ok(said)
}

/// A program that ends with requests under way ends at once and well, time after time.
fn exit_under_traffic(setting: &Setting<'_>) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    for _ in 0..5 {
        objects(setting.launcher()?, &fabric, &["leave"], 20)?;
    }
    nothing_remains(&fabric)?;
    Ok(String::new())
}

/// Pairs that connect, move some bytes and are killed, both sides in turn first: every slot and path socket of the
/// hosts is free again.
fn connect_and_kill(launcher: &Launcher, cycles: u32) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let pair = Pair::new("ib_write_bw -F -n 1000000").limit(60);
    for cycle in 0..cycles {
        let start = fabric.host_count()?.tx_bytes;
        let done = pair.run_while_both(launcher, &fabric, |client, server| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while fabric.is_real() && fabric.host_count()?.tx_bytes < start + 2_000_000 && !client.has_ended()
            {
                ensure!(Instant::now() < deadline, "cycle {cycle}: no bytes move");
                std::thread::sleep(Duration::from_millis(5));
            }
            let (first, second) = if cycle % 2 == 0 { (client, server) } else { (server, client) };
            first.signal(libc::SIGKILL);
            second.signal(libc::SIGKILL);
            Ok(())
        })?;
        ensure!(done.client.code != Some(0), "cycle {cycle} ended by itself: {}", done.client.story());
        nothing_remains(&fabric)?;
    }
    Ok(format!("{cycles} cycles"))
}
