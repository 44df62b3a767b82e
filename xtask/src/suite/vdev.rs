//! Virtual devices: a daemon on each host owns the RNIC, programs reach it through a socket.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde_json::Value;

use super::{Setting, Step};
use crate::fabric::{Fabric, Host, Spec};
use crate::process::{Outcome, Program, Running};
use crate::programs::stats::Stats;
use crate::programs::{wait_until_it_listens, Launcher};

/// TCP port of perftest.
const PORT: u16 = 18515;

/// All of them.
pub fn steps() -> Vec<Step> {
    vec![
        Step::new("vdev/perftest-through-two-daemons", perftest_through_two_daemons),
        Step::new("vdev/ends-of-programs-and-daemons", ends),
        Step::new("vdev/two-tenants-without-privilege", without_privilege),
        Step::new("vdev/idle-devices-cost-no-wake-up", idle),
    ]
}

/// A daemon that serves, with one device.
struct Daemon<'a> {
    launcher: &'a Launcher,
    host: &'a Host,
    directory: PathBuf,
    stats: PathBuf,
    running: Running,
}

impl<'a> Daemon<'a> {
    fn start(launcher: &'a Launcher, host: &'a Host) -> Result<Daemon<'a>> {
        let directory = launcher.file(".vdev");
        Daemon::start_at(launcher, host, directory)
    }

    fn start_at(launcher: &'a Launcher, host: &'a Host, directory: PathBuf) -> Result<Daemon<'a>> {
        let stats = launcher.file(".daemon.json");
        let program =
            launcher.srdma().args(["daemon", "--stats"]).args([&stats]).args(["--at"]).args([&directory]);
        let program = program.args(["--store"]).args([&directory.with_extension("redb")]);
        let mut running = program.on(host).limit(Duration::from_secs(300)).start()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let list = || launcher.srdma().args(["vdev", "list", "--at"]).args([&directory]).on(host).run();
        while list()?.code != Some(0) {
            if running.has_ended() {
                bail!("the daemon ended: {}", running.wait()?.story());
            }
            ensure!(Instant::now() < deadline, "the daemon does not serve {}", directory.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Daemon { launcher, host, directory, stats, running })
    }

    /// `srdma vdev` of this daemon.
    fn vdev(&self, words: &[&str]) -> Program {
        self.launcher.srdma().args(["vdev"]).args(words).args(["--at"]).args([&self.directory]).on(self.host)
    }

    /// `argv` on the device `name`.
    fn program(&self, name: &str, argv: &[&str]) -> Program {
        let run = self.launcher.srdma().args(["run", "--vdev", name, "--at"]).args([&self.directory]);
        run.args(["--"]).args(argv).on(self.host).limit(Duration::from_secs(60))
    }

    fn shown(&self, name: &str) -> Result<Value> {
        let out = self.vdev(&["show", name, "--json"]).success()?;
        serde_json::from_str(&out.stdout).with_context(|| out.stdout.clone())
    }

    /// Nothing is left of programs that have ended.
    fn is_clean(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let used = self.shown(name)?["used"].clone();
            let left = used.as_object().is_none_or(|used| used.values().any(|amount| *amount != 0));
            if !left {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "device {name} still has {used}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as systemd would; its counters.
    fn end(self) -> Result<Stats> {
        self.running.signal(libc::SIGTERM);
        self.running.let_end(Duration::from_secs(10))?.success()?;
        ensure!(!self.directory.join("control").exists(), "the daemon has left its socket");
        Stats::read(&self.stats)
    }
}

/// A pair of programs, the server on the second host.
fn pair(client: &Daemon<'_>, server: &Daemon<'_>, name: &str, line: &str) -> Result<(Outcome, Outcome)> {
    let argv: Vec<&str> = line.split_whitespace().collect();
    let mut there = server.program(name, &argv).start()?;
    wait_until_it_listens(server.host, PORT, &mut there)?;
    let address = server.host.address.to_string();
    let here = client.program(name, &[&argv[..], &[&address]].concat()).run()?;
    let there = if here.code == Some(0) {
        there.let_end(Duration::from_secs(10))?
    } else {
        there.stop(Duration::from_secs(1))?
    };
    Ok((here, there))
}

/// Of each program, how much payload crosses.
const PROGRAMS: [(&str, u64); 8] = [
    ("ib_write_bw -F -s 65536 -n 2000", 65_536 * 2_000),
    ("ib_write_bw -F -s 1048576 -n 100 -q 4", 1_048_576 * 100 * 4),
    ("ib_read_bw -F -s 65536 -n 1000", 65_536 * 1_000),
    ("ib_send_bw -F -s 4096 -n 5000", 4_096 * 5_000),
    ("ib_send_bw -F -s 64 -n 5000 -I 64", 64 * 5_000),
    ("ib_send_lat -F -s 64 -n 500 -e", 64 * 500 * 2),
    ("ib_write_lat -F -s 8 -n 500", 8 * 500 * 2),
    ("ib_atomic_bw -F -n 500", 0),
];

/// perftest as it is, through devices of two daemons: all bytes are the daemons', none the programs'.
fn perftest_through_two_daemons(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let fabric = Fabric::build(Spec::pair())?;
    let (client, server) = (Daemon::start(launcher, &fabric.h1)?, Daemon::start(launcher, &fabric.h2)?);
    for daemon in [&client, &server] {
        daemon.vdev(&["create", "--name", "a", "--tenant", "blue", "--max-qps", "16"]).success()?;
    }
    let mut wanted = 0;
    for (line, bytes) in PROGRAMS {
        let (here, there) = pair(&client, &server, "a", line)?;
        ensure!(
            here.code == Some(0) && there.code == Some(0),
            "{line}\n  client {}\n  server {}",
            here.story(),
            there.story()
        );
        client.is_clean("a").and_then(|()| server.is_clean("a")).with_context(|| line.to_owned())?;
        wanted += bytes;
    }
    // Each has one more queue pair than it may.
    let many = pair(&client, &server, "a", "ib_write_bw -F -n 5 -q 17")?.0;
    ensure!(many.code != Some(0), "17 queue pairs on a device of 16");
    client.is_clean("a")?;
    for daemon in [&client, &server] {
        daemon.vdev(&["destroy", "a"]).success()?;
    }
    let (here, there) = (client.end()?, server.end()?);
    let moved = here.payload_received() + there.payload_received();
    ensure!(moved >= wanted, "{moved} bytes of payload were received, {wanted} were to be moved");
    ensure!(here.failures().is_empty() && there.failures().is_empty(), "queue pairs have failed");
    Ok(format!("{} programs, {} MB", PROGRAMS.len(), moved >> 20))
}

/// Two tenants on each host at the same time, as nobody, without a capability, with 64 KiB that may be locked, and with
/// nothing of the daemon's but one socket each.
fn without_privilege(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let nobody = launcher.moved_and_unprivileged()?;
    let fabric = Fabric::build(Spec::pair())?;
    let (client, server) = (Daemon::start(launcher, &fabric.h1)?, Daemon::start(launcher, &fabric.h2)?);
    let mut running = Vec::new();
    for (tenant, port) in [("blue", "18600"), ("green", "18601")] {
        let argv = ["ib_write_bw", "-F", "-s", "65536", "-n", "1000", "-p", port];
        let program = |daemon: &Daemon<'_>, more: &[&str]| -> Result<Program> {
            daemon.vdev(&["create", "--name", tenant, "--tenant", tenant, "--owner", "65534"]).success()?;
            let socket = daemon.vdev(&["expose", tenant]).success()?.stdout;
            let run = nobody.srdma().args(["run", "--vdev", socket.trim(), "--"]).args(argv).args(more);
            Ok(run.on(daemon.host).limit(Duration::from_secs(60)))
        };
        let mut there = program(&server, &[])?.start()?;
        wait_until_it_listens(server.host, port.parse()?, &mut there)?;
        let here = program(&client, &[&server.host.address.to_string()])?.start()?;
        running.push((here, there));
    }
    for (here, there) in running {
        here.wait()?.success()?;
        there.let_end(Duration::from_secs(10))?.success()?;
    }
    for (daemon, tenant) in [(&client, "blue"), (&client, "green"), (&server, "blue"), (&server, "green")] {
        daemon.is_clean(tenant)?;
    }
    let (sent, received) = (client.end()?, server.end()?.payload_received());
    ensure!(received >= 2 * 65_536 * 1_000, "{received} bytes of payload were received");
    ensure!(sent.failures().is_empty(), "queue pairs have failed");
    Ok(format!("{} MB", received >> 20))
}

/// Devices are defined, some of them attached, and nothing happens: the daemon sleeps.
fn idle(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let fabric = Fabric::build(Spec::pair())?;
    let daemon = Daemon::start(launcher, &fabric.h1)?;
    for number in 0..40 {
        daemon.vdev(&["create", "--name", &format!("d{number}")]).success()?;
    }
    let mut servers = Vec::new();
    for number in 0..4_u16 {
        let port = PORT + number;
        let argv = ["ib_send_lat", "-F", "-e", "-p", &port.to_string()];
        let mut server = daemon.program(&format!("d{number}"), &argv).start()?;
        wait_until_it_listens(daemon.host, port, &mut server)?;
        servers.push(server);
    }
    let attached = |daemon: &Daemon<'_>| -> Result<u64> {
        let shown = serde_json::from_str::<Value>(&daemon.vdev(&["list", "--json"]).success()?.stdout)?;
        let rows = shown.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(rows.iter().filter_map(|row| row["used"]["programs"].as_u64()).sum())
    };
    ensure!(attached(&daemon)? == 4, "{} programs are attached", attached(&daemon)?);
    let switches = || -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.running.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Ok(line.context("the kernel does not count wake-ups")?.trim().parse()?)
    };
    let before = switches()?;
    std::thread::sleep(Duration::from_secs(1));
    let woken = switches()? - before;
    ensure!(woken <= 2, "the daemon woke {woken} times in a second in which nothing happened");
    for server in servers {
        server.stop(Duration::from_secs(1))?;
    }
    daemon.end()?;
    Ok(format!("{woken} wake-ups in a second"))
}

/// A killed program leaves nothing, its peer hears of it; a killed daemon's programs end, and its directory can be
/// served again.
fn ends(setting: &Setting<'_>) -> Result<String> {
    let launcher = setting.launcher()?;
    let fabric = Fabric::build(Spec::pair())?;
    let (client, server) = (Daemon::start(launcher, &fabric.h1)?, Daemon::start(launcher, &fabric.h2)?);
    for daemon in [&client, &server] {
        daemon.vdev(&["create", "--name", "a"]).success()?;
    }
    let begin = |seconds: &str| -> Result<(Running, Running)> {
        let argv = ["ib_write_bw", "-F", "-D", seconds];
        let mut there = server.program("a", &argv).start()?;
        wait_until_it_listens(server.host, PORT, &mut there)?;
        let address = server.host.address.to_string();
        let here = client.program("a", &[&argv[..], &[&address]].concat()).start()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while server.shown("a")?["used"]["qps"] != 1 || client.shown("a")?["used"]["qps"] != 1 {
            ensure!(Instant::now() < deadline, "the programs have no queue pairs");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok((here, there))
    };
    let (here, there) = begin("20")?;
    here.signal(libc::SIGKILL);
    client.is_clean("a")?;
    drop(here);
    there.stop(Duration::from_secs(1))?;
    server.is_clean("a")?;

    let (here, there) = begin("20")?;
    let Daemon { running, directory, .. } = client;
    running.signal(libc::SIGKILL);
    let began = Instant::now();
    let end = here.let_end(Duration::from_secs(15))?;
    ensure!(
        end.code.is_some_and(|code| code != 0),
        "the program went on without its daemon: {}",
        end.story()
    );
    there.stop(Duration::from_secs(1))?;
    drop(running);
    let again = Daemon::start_at(launcher, &fabric.h1, directory)?;
    ensure!(again.shown("a")?["state"] == "defined", "device a is not as it was defined");
    again.vdev(&["create", "--name", "b"]).success()?;
    again.end()?;
    server.end()?;
    Ok(format!("a program ended {} ms after its daemon", began.elapsed().as_millis()))
}
