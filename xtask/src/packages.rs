//! Programs that the tests, the demo and the benchmark need, and the Debian packages they come from.

use std::collections::BTreeSet;

use anyhow::{bail, Result};

use crate::{process, report};

/// A program, or a file by its path, and the Debian 12 package that has it.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    program: &'static str,
    package: &'static str,
}

const fn need(program: &'static str, package: &'static str) -> Need {
    Need { program, package }
}

/// To link the libraries.
pub const BUILD: &[Need] = &[need("cc", "gcc"), need("/usr/include/stdio.h", "libc6-dev")];
/// To build the fuzz targets: libFuzzer is C++.
pub const FUZZ: &[Need] = &[need("c++", "g++")];
/// To build networks.
pub const FABRIC: &[Need] =
    &[need("ip", "iproute2"), need("tc", "iproute2"), need("nft", "nftables"), need("ethtool", "ethtool")];
/// To show and measure.
pub const PROGRAMS: &[Need] =
    &[need("ib_write_bw", "perftest"), need("iperf3", "iperf3"), need("ibv_rc_pingpong", "ibverbs-utils")];
/// To compile our own verbs program.
pub const HEADERS: &[Need] = &[need("/usr/include/infiniband/verbs.h", "libibverbs-dev")];
/// Another RDMA stack, to compare with.
pub const PEERS: &[Need] = &[need("ucx_perftest", "ucx-utils")];
/// To count instructions.
pub const PROFILERS: &[Need] = &[need("valgrind", "valgrind")];
/// To look into packets.
pub const CAPTURE: &[Need] = &[need("tshark", "tshark"), need("dumpcap", "wireshark-common")];

/// Installs what is missing if we are root, after saying so; otherwise names the exact line to run.
pub fn ensure(needs: &[&[Need]]) -> Result<()> {
    let missing: Vec<&Need> = needs.iter().copied().flatten().filter(|need| is_missing(need)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<&str> = missing.iter().map(|need| need.package).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let programs: Vec<&str> = missing.iter().map(|need| need.program).collect();
    let install = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    // SAFETY: geteuid(2) cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root || process::find("apt-get").is_none() {
        bail!(
            "missing: {}\nInstall them with\n\n    sudo {install}\n\nand run this again",
            programs.join(", ")
        );
    }
    report::note(&format!("missing: {}; installing with `{install}`", programs.join(", ")));
    let apt = |words: &str| {
        let mut words = words.split_whitespace();
        process::Program::new(words.next().unwrap_or("apt-get"))
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .limit(std::time::Duration::from_secs(600))
            .shown_as(&report::faint("  apt"))
            .run()
    };
    if apt(&install)?.code != Some(0) {
        apt("apt-get update")?.success()?;
        apt(&install)?.success()?;
    }
    match missing.iter().find(|need| is_missing(need)) {
        Some(need) => bail!("{} is still missing after installing {}", need.program, need.package),
        None => Ok(()),
    }
}

fn is_missing(need: &Need) -> bool {
    // A path replaces the folders of PATH when it is absolute.
    process::find(need.program).is_none()
}
