//! ibverbs-utils: listing devices, and ping-pong; and whether every program finds its symbols.

use std::net::UdpSocket;

use anyhow::{ensure, Context, Result};

use super::compat::Case;
use super::Step;
use crate::fabric::{inside, Fabric, Spec};
use crate::ground::{self, Ground};
use crate::process::find;
use crate::programs::{Launcher, Pair};

/// All of them.
pub fn steps() -> Vec<Step> {
    let mut steps = vec![
        Step::new("verbs/symbols", |setting| symbols_resolve(setting.launcher()?)),
        Step::new("verbs/ibv_devices", |setting| ibv_devices(setting.launcher()?))
            .covering(case("ibv_devices", "")),
        Step::new("verbs/ibv_devinfo", |setting| ibv_devinfo(setting.launcher()?))
            .covering(case("ibv_devinfo", "-v")),
        Step::new("verbs/moved-and-unprivileged", |setting| moved_and_unprivileged(setting.launcher()?)),
        Step::new("verbs/says-why-no-device", |setting| says_why(setting.launcher()?)),
        Step::new("verbs/exit-code", |setting| exit_code_passes(setting.launcher()?)),
    ];
    let lines = [
        "",
        "-e",
        "-g 0",
        "-s 1",
        "-s 4095",
        "-s 65536",
        "-s 1048576",
        "-s 4194304 -n 100",
        "-e -s 1048576 -n 100",
    ];
    for line in lines {
        let name = format!("verbs/ibv_rc_pingpong {line}");
        let step = Step::new(name.trim_end(), move |setting| {
            let fabric = Fabric::build(Spec::pair())?;
            pingpong(setting.launcher()?, &fabric, line)
        });
        steps.push(step.covering(case("ibv_rc_pingpong", &with_gid(line))));
    }
    steps
}

fn case(program: &str, flags: &str) -> Case {
    Case { program: program.into(), flags: flags.into(), refused: false, network: "cable" }
}

/// Without -g the program sends to a LID, which an Ethernet port does not have.
fn with_gid(flags: &str) -> String {
    match flags.contains("-g") {
        true => flags.to_owned(),
        false => format!("-g 0 {flags}").trim_end().to_owned(),
    }
}

/// Each program that links our libraries starts, with every symbol and version resolved at once.
fn symbols_resolve(launcher: &Launcher) -> Result<String> {
    let programs = [
        "ib_write_bw",
        "ib_write_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_send_bw",
        "ib_send_lat",
        "ib_atomic_bw",
        "ib_atomic_lat",
        "ibv_devices",
        "ibv_devinfo",
        "ibv_rc_pingpong",
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong",
        "ibv_asyncwatch",
    ];
    let mut ours = 0;
    for name in programs {
        let path = find(name).with_context(|| format!("{name} is not installed"))?;
        let line = ["ldd".into(), "-r".into(), path.display().to_string()];
        let out = launcher.program(&[], &launcher.file(".json"), &line).env("LD_BIND_NOW", "1").success()?;
        for text in out.stdout.lines().chain(out.stderr.lines()) {
            let wrong = ["undefined symbol", "not found", "no version information"];
            ensure!(!wrong.iter().any(|word| text.contains(word)), "{name}: {text}");
        }
        let verbs = out.stdout.lines().find(|line| line.contains("libibverbs.so.1")).unwrap_or("");
        ensure!(!verbs.contains("=> /lib") && !verbs.contains("=> /usr/lib"), "{name} uses {verbs}");
        ours += 1;
    }
    Ok(format!("{ours} programs"))
}

fn ibv_devices(launcher: &Launcher) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let out = launcher.run(&fabric.h1, &["ibv_devices"])?.success()?;
    ensure!(out.stdout.contains("stellar0"), "no stellar0 in:\n{}", out.stdout);
    Ok("stellar0".into())
}

fn ibv_devinfo(launcher: &Launcher) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let out = launcher.run(&fabric.h1, &["ibv_devinfo", "-v"])?.success()?;
    let std::net::IpAddr::V4(address) = fabric.h1.address else { return Ok(String::new()) };
    let gid = format!("::ffff:{address}");
    let long: Vec<String> = std::net::Ipv6Addr::from(address.to_ipv6_mapped().octets())
        .segments()
        .iter()
        .map(|part| format!("{part:04x}"))
        .collect();
    let long = long.join(":");
    for wanted in ["PORT_ACTIVE", "Ethernet", "RoCE v2"] {
        ensure!(out.stdout.contains(wanted), "no {wanted:?} in:\n{}", out.stdout);
    }
    let has_gid = out.stdout.contains(&gid) || out.stdout.contains(&long);
    ensure!(has_gid, "no GID {gid} in:\n{}", out.stdout);
    Ok(gid)
}

/// The tree works from another place, for a user who may do nothing and lock next to no memory.
fn moved_and_unprivileged(launcher: &Launcher) -> Result<String> {
    if *ground::stand() != Ground::Root {
        return Ok("not root: every step shows it".into());
    }
    let fabric = Fabric::build(Spec::pair())?;
    let moved = launcher.moved_and_unprivileged()?;
    let who = moved.run(&fabric.h1, &["sh", "-c", "id -u; ulimit -l"])?.success()?;
    ensure!(who.stdout.split_whitespace().eq(["65534", "64"]), "{}", who.stdout);
    pingpong(&moved, &fabric, "-s 65536 -n 200")
}

/// The program's exit code comes through, and a program that is not there is an error of its own.
fn exit_code_passes(launcher: &Launcher) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let out = launcher.run(&fabric.h1, &["sh", "-c", "exit 37"])?;
    ensure!(out.code == Some(37), "{}", out.story());
    let missing = launcher.run(&fabric.h1, &["srdma-no-such-program"])?;
    let one_line =
        missing.stderr.trim().lines().count() == 1 && missing.stderr.contains("srdma-no-such-program");
    ensure!(missing.code == Some(127) && one_line, "{}", missing.story());
    Ok(String::new())
}

/// A device that cannot start says why in one line of ours, whatever the program makes of it.
fn says_why(launcher: &Launcher) -> Result<String> {
    let fabric = Fabric::build(Spec::pair())?;
    let pingpong = ["ibv_rc_pingpong", "-g", "0"];
    let ours = |stderr: &str| -> Vec<String> {
        stderr.lines().filter(|line| line.starts_with("srdma: ")).map(str::to_owned).collect()
    };
    // A directory cannot be written as a file, not even by root.
    let trace = std::env::temp_dir();
    let options = ["--trace".to_owned(), trace.display().to_string()];
    let argv = pingpong.map(str::to_owned);
    let out = launcher.program(&options, &launcher.file(".json"), &argv).on(&fabric.h1).run()?;
    let said = ours(&out.stderr);
    ensure!(out.code != Some(0) && said.len() == 1, "{}", out.story());
    ensure!(said[0].contains(&*trace.to_string_lossy()), "the file is not named: {}", said[0]);
    // Every slot of the address taken by somebody else.
    let address = fabric.h1.address;
    let held: Vec<UdpSocket> = inside(fabric.h1.namespace.as_deref(), || {
        let ports = std::iter::once(4791).chain(61001..=61255);
        Ok(ports.map(|port| UdpSocket::bind((address, port))).collect::<std::io::Result<_>>()?)
    })?;
    let out = launcher.run(&fabric.h1, &pingpong)?;
    drop(held);
    let said = ours(&out.stderr);
    ensure!(out.code != Some(0) && said.len() == 1, "{}", out.story());
    for part in ["every slot", &address.to_string(), "4791", "61255"] {
        ensure!(said[0].contains(part), "{part} is missing in: {}", said[0]);
    }
    Ok(String::new())
}

fn pingpong(launcher: &Launcher, fabric: &Fabric, flags: &str) -> Result<String> {
    let done =
        Pair::new(&format!("ibv_rc_pingpong {} -c", with_gid(flags))).run(launcher, fabric)?.success()?;
    ensure!(done.client.stdout.contains("bytes in"), "{}", done.client.story());
    for (side, out) in [("client", &done.client), ("server", &done.server)] {
        ensure!(!out.stdout.contains("invalid data"), "{side}: data is wrong:\n{}", out.stdout);
    }
    let moved = done.client_stats()?.payload_received();
    ensure!(moved > 0, "our counters saw no byte");
    let line = done.client.stdout.lines().last().unwrap_or("").trim().to_owned();
    Ok(line)
}
