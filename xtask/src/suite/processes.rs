//! What befalls processes: stopped, killed, forked, ended.
//!
//! A run either ends well or with the documented error, and nothing of it remains.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use super::paths::wait_for_bytes;
use super::{Setting, Step};
use crate::fabric::{Fabric, Spec};
use crate::process::Running;
use crate::programs::{verify, Done, Launcher, Pair};

/// Memory by which a process that has lost many peers may be larger than after its first ones, KiB: no 4 for each of a
/// thousand.
const GROWTH_KIB: u64 = 3_000;
/// Codes of the error table by which a queue pair may end that nobody answers, or whose peer has said goodbye.
const SILENCE: [u64; 2] = [40, 42];

/// All of them.
pub fn steps(soak: bool) -> Vec<Step> {
    let cycles = if soak { 1_000 } else { 12 };
    let children = if soak { 2_000 } else { 100 };
    vec![
        Step::new("faults/client-stopped", |setting| stopped(setting, true)),
        Step::new("faults/server-stopped", |setting| stopped(setting, false)),
        Step::new("faults/clocks-jump ib_write_bw", |setting| {
            clocks_jump(setting.launcher()?, "ib_write_bw")
        }),
        Step::new("faults/clocks-jump ib_read_bw", |setting| clocks_jump(setting.launcher()?, "ib_read_bw")),
        Step::new("faults/client-killed", client_killed),
        Step::new("faults/forks-under-traffic", move |setting| forks(setting.launcher()?, children)),
        Step::new("faults/exit-under-traffic", exit_under_traffic),
        Step::new("faults/connect-and-kill", move |setting| connect_and_kill(setting.launcher()?, cycles)),
        Step::new("faults/survives-its-peers", move |setting| survivor(setting.launcher()?, cycles)),
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

/// Under traffic the wall clocks of both sides jump there and back by an hour, and the monotonic ones leap ahead by one, as
/// in a virtual machine that was paused: nobody was silent for that long, and all goes on.
fn clocks_jump(launcher: &Launcher, program: &str) -> Result<String> {
    // The last leap is 4.3 s after a program's start; a side that ends before has not met it.
    const LEAPS_OVER: Duration = Duration::from_millis(4_300);
    let fabric = Fabric::build(Spec::spines(Some(200)))?;
    let clock = launcher.c_library("jumping_clock")?;
    let mut pair = Pair::new("env JUMPS=5 JUMP_S=3600").limit(60);
    pair.argv.push(format!("LD_PRELOAD={}", clock.display()));
    pair.argv.extend([program, "-F", "-n", "8000"].map(str::to_owned));
    let done = pair.run(launcher, &fabric)?.success()?;
    for side in [&done.client, &done.server] {
        ensure!(side.wall > LEAPS_OVER, "ended before the last leap: {}", side.story());
    }
    nothing_remains(&fabric)?;
    Ok(format!("{} packets sent again", done.client_stats()?.retransmitted()))
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

/// What a process holds.
#[derive(Debug)]
struct Holdings {
    descriptors: usize,
    threads: u64,
    memory_kib: u64,
    udp_ports: usize,
}

impl Holdings {
    fn of(process: i32, fabric: &Fabric) -> Result<Holdings> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let number = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).with_context(|| format!("no {name} in its status"))
        };
        Ok(Holdings {
            descriptors: std::fs::read_dir(format!("/proc/{process}/fd"))?.count(),
            threads: number("Threads:")?,
            memory_kib: number("VmRSS:")?,
            udp_ports: fabric.h2.udp_ports()?.len(),
        })
    }

    /// Whether nothing has been kept since `before` of those who are gone.
    fn is_no_more_than(&self, before: &Holdings) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.memory_kib <= before.memory_kib + GROWTH_KIB
            && self.udp_ports <= before.udp_ports
    }
}

/// One process whose peers connect, move some bytes and are killed, one after the other: it keeps no descriptor,
/// thread, port or memory of them, and serves the next.
fn survivor(launcher: &Launcher, cycles: u32) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let mut server =
        verify::listen(launcher, &fabric, Duration::from_secs(60 + 10 * u64::from(cycles)), &[])?;
    // One that ends well and the first that do not make it open what it keeps: path sockets, buffers.
    verify::lead(launcher, &fabric, 1).limit(Duration::from_secs(60)).success()?;
    let first_ones = cycles / 4;
    let mut before = None;
    for cycle in 0..cycles {
        if cycle == first_ones {
            before = Some(settled(&server, &fabric, None)?);
        }
        let start = fabric.host_count()?.tx_bytes;
        let mut client = verify::lead(launcher, &fabric, 60).limit(Duration::from_secs(60)).start()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while fabric.is_real() && fabric.host_count()?.tx_bytes < start + 1_000_000 {
            ensure!(!client.has_ended(), "cycle {cycle}: {}", client.wait()?.story());
            ensure!(Instant::now() < deadline, "cycle {cycle}: no bytes move");
            std::thread::sleep(Duration::from_millis(5));
        }
        client.signal(libc::SIGKILL);
        client.wait()?;
        ensure!(!server.has_ended(), "cycle {cycle}: {}", server.wait()?.story());
    }
    let after = settled(&server, &fabric, before.as_ref())?;
    verify::lead(launcher, &fabric, 1).limit(Duration::from_secs(60)).success()?;
    server.stop(Duration::from_secs(5))?;
    nothing_remains(&fabric)?;
    Ok(format!("{cycles} peers killed; {before:?} after the first {first_ones}, then {after:?}"))
}

/// What `server` holds once its last peer's end is dealt with: no more than `before`, or if that is not known, the same
/// twice in a row.
fn settled(server: &Running, fabric: &Fabric, before: Option<&Holdings>) -> Result<Holdings> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last = Holdings::of(server.pid, fabric)?;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = Holdings::of(server.pid, fabric)?;
        if now.is_no_more_than(before.unwrap_or(&last)) {
            return Ok(now);
        }
        ensure!(Instant::now() < deadline, "the process keeps {now:?}, of {before:?}");
        last = now;
    }
}
