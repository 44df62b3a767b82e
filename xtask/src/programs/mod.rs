//! Running RDMA programs that we did not write: a server on one host, a client on the other, both through
//! `target/dist/bin/srdma run`, and what they and their devices say afterwards.

pub mod capture;
pub mod iperf3;
pub mod perftest;
pub mod stats;
pub mod ucx;
pub mod verify;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

use crate::fabric::{Fabric, Host};
use crate::process::{Outcome, Program, Running};
use stats::Stats;

/// Where the built tree is and where the statistics of runs go.
#[derive(Debug)]
pub struct Launcher {
    srdma: PathBuf,
    work: PathBuf,
    /// Names of our C programs that are compiled already.
    built: Mutex<Vec<String>>,
    /// Command that drops privileges and then becomes what follows; empty if none are dropped.
    unprivileged: Vec<String>,
}

/// Becomes nobody, without a capability and with 64 KiB of memory that may be locked.
const AS_NOBODY: [&str; 8] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--bounding-set=-all",
    "sh",
    "-c",
    "ulimit -l 64 && exec \"$0\" \"$@\"",
];

impl Launcher {
    /// The tree at `dist`; files that runs leave go to a directory of their own beside it.
    pub fn new(dist: &Path) -> Result<Launcher> {
        let srdma = dist.join("bin/srdma");
        ensure!(srdma.is_file(), "{} is not there; run `cargo xtask dist`", srdma.display());
        let work = std::env::temp_dir().join(format!("srdma-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&work)?;
        Ok(Launcher { srdma, work, built: Mutex::default(), unprivileged: Vec::new() })
    }

    /// The same tree copied to another place, used by nobody. Only root can become nobody.
    pub fn moved_and_unprivileged(&self) -> Result<Launcher> {
        let (from, to) = (self.srdma.with_file_name(".."), self.file("-moved"));
        Program::new("cp").args(["-a"]).args([&from, &to]).success()?;
        let mut launcher = Launcher::new(&to)?;
        launcher.unprivileged = AS_NOBODY.map(str::to_owned).to_vec();
        launcher.work = self.file("-work");
        std::fs::create_dir_all(&launcher.work)?;
        Program::new("chmod").args(["777"]).args([&launcher.work]).success()?;
        Ok(launcher)
    }

    /// A fresh file name.
    pub fn file(&self, suffix: &str) -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        self.work.join(format!("{}{suffix}", COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// A file that the tree has under `share`.
    pub fn shared(&self, name: &str) -> PathBuf {
        self.srdma.with_file_name("../share").join(name)
    }

    /// The command itself, for `srdma check` and the like.
    pub fn srdma(&self) -> Program {
        match self.unprivileged.split_first() {
            Some((first, rest)) => Program::new(first).args(rest).args([&self.srdma]),
            None => Program::new(&self.srdma),
        }
    }

    /// A C program of our own, `xtask/pattern/NAME.c`, compiled once against the installed header.
    pub fn c_program(&self, name: &str) -> Result<PathBuf> {
        let library = self.srdma.with_file_name("../lib/libibverbs.so.1").display().to_string();
        self.compiled(name, name, &[&library])
    }

    /// The same as a library to be loaded under a program, `NAME.so`.
    pub fn c_library(&self, name: &str) -> Result<PathBuf> {
        self.compiled(name, &format!("{name}.so"), &["-shared", "-fPIC"])
    }

    fn compiled(&self, name: &str, to: &str, more: &[&str]) -> Result<PathBuf> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.work.join(to);
        if !built.iter().any(|known| known == to) {
            let source = crate::suite::workspace().join("xtask/pattern").join(name).with_extension("c");
            let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"];
            Program::new("cc").args(flags).args([&file, &source]).args(more).success()?;
            built.push(to.to_owned());
        }
        Ok(file)
    }

    /// `argv` with our library under it.
    pub fn program(&self, options: &[String], stats: &Path, argv: &[String]) -> Program {
        self.srdma().args(["run", "--stats"]).args([stats]).args(options).args(["--"]).args(argv)
    }

    /// One program on `host` by itself.
    pub fn run(&self, host: &Host, argv: &[&str]) -> Result<Outcome> {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        self.program(&[], &self.file(".json"), &argv).on(host).run()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if std::env::var_os("SRDMA_XTASK_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.work);
        }
    }
}

/// A program of which one instance serves and the other names it.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Program and arguments, the same on both sides.
    pub argv: Vec<String>,
    /// More arguments of the client, before the server's address.
    pub client_args: Vec<String>,
    /// Options of `srdma run`, both sides.
    pub options: Vec<String>,
    /// TCP port that it meets on.
    pub port: u16,
    /// How long each side may take.
    pub limit: Duration,
    /// How long the server may take until it listens.
    pub listens_within: Duration,
}

/// What a pair did.
#[derive(Debug)]
pub struct Done {
    /// The side on h1.
    pub client: Outcome,
    /// The side on h2.
    pub server: Outcome,
    /// The client's statistics, if it wrote any.
    pub client_stats: Option<Stats>,
    /// The server's.
    pub server_stats: Option<Stats>,
}

impl Pair {
    /// `line` split at blanks.
    pub fn new(line: &str) -> Pair {
        Pair {
            argv: line.split_whitespace().map(str::to_owned).collect(),
            client_args: Vec::new(),
            options: Vec::new(),
            port: 18515,
            limit: Duration::from_secs(60),
            listens_within: LISTENS_WITHIN,
        }
    }

    /// With options of `srdma run`.
    pub fn options(mut self, options: &str) -> Pair {
        self.options = options.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// With another time limit.
    pub fn limit(mut self, seconds: u64) -> Pair {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Runs both sides to their ends.
    pub fn run(&self, launcher: &Launcher, fabric: &Fabric) -> Result<Done> {
        self.run_while(launcher, fabric, |_| Ok(()))
    }

    /// The same; `meanwhile` is called once the client has started and gets it in its hand.
    pub fn run_while(
        &self,
        launcher: &Launcher,
        fabric: &Fabric,
        meanwhile: impl FnOnce(&mut Running) -> Result<()>,
    ) -> Result<Done> {
        self.run_while_both(launcher, fabric, |client, _| meanwhile(client))
    }

    /// The same, with both sides in its hand.
    pub fn run_while_both(
        &self,
        launcher: &Launcher,
        fabric: &Fabric,
        meanwhile: impl FnOnce(&mut Running, &mut Running) -> Result<()>,
    ) -> Result<Done> {
        let (client_file, server_file) = (launcher.file(".client.json"), launcher.file(".server.json"));
        let mut server = launcher
            .program(&self.options, &server_file, &self.argv)
            .on(&fabric.h2)
            .limit(self.limit)
            .start()?;
        if let Err(error) = wait_for_port(&fabric.h2, self.port, &mut server, self.listens_within) {
            let server = server.stop(Duration::from_millis(200))?;
            bail!("{error}: {}", server.story());
        }
        let mut argv = self.argv.clone();
        argv.extend(self.client_args.iter().cloned());
        argv.push(fabric.h2.address.to_string());
        let client = launcher.program(&self.options, &client_file, &argv).on(&fabric.h1).limit(self.limit);
        let mut client = client.start()?;
        if let Err(error) = meanwhile(&mut client, &mut server) {
            bail!("{error:#}: {}", client.stop(Duration::from_millis(200))?.story());
        }
        let client = client.wait()?;
        let server = if client.code == Some(0) {
            server.let_end(Duration::from_secs(10))?
        } else {
            server.stop(Duration::from_secs(2))?
        };
        let read = |file: &Path| Stats::read(file).ok();
        Ok(Done { client_stats: read(&client_file), server_stats: read(&server_file), client, server })
    }
}

impl Done {
    /// Itself if both sides exited with 0.
    pub fn success(self) -> Result<Done> {
        if self.client.code == Some(0) && self.server.code == Some(0) {
            return Ok(self);
        }
        let why = |stats: &Option<Stats>| {
            let codes = stats.as_ref().map(Stats::failures).unwrap_or_default();
            codes
                .first()
                .map_or(String::new(), |code| format!("\n    queue pair failed: srdma explain {code}"))
        };
        let (client, server) = (self.client.story(), self.server.story());
        bail!("client {client}{}\n  server {server}{}", why(&self.client_stats), why(&self.server_stats))
    }

    /// The client's statistics, or an error: without them nothing proves that our library carried the bytes.
    pub fn client_stats(&self) -> Result<&Stats> {
        self.client_stats.as_ref().ok_or_else(|| anyhow::anyhow!("the client left no statistics"))
    }

    /// The server's.
    pub fn server_stats(&self) -> Result<&Stats> {
        self.server_stats.as_ref().ok_or_else(|| anyhow::anyhow!("the server left no statistics"))
    }
}

/// How long a server may take until it listens, at the usual speed.
const LISTENS_WITHIN: Duration = Duration::from_secs(20);

/// Waits for a server's TCP port; fails if it ends first or takes more than 20 s.
pub fn wait_until_it_listens(host: &Host, port: u16, server: &mut Running) -> Result<()> {
    wait_for_port(host, port, server, LISTENS_WITHIN)
}

fn wait_for_port(host: &Host, port: u16, server: &mut Running, within: Duration) -> Result<()> {
    let deadline = Instant::now() + within;
    while !host.listens(port)? {
        ensure!(!server.has_ended(), "the server ended before it listened on port {port}");
        ensure!(Instant::now() < deadline, "the server does not listen on port {port}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
