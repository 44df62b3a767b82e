//! What the tests of the command share: a tree to start it from, and namespaces to check across.
#![allow(clippy::unwrap_used, dead_code)] // each test file uses its part

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The command as built.
pub const SRDMA: &str = env!("CARGO_BIN_EXE_srdma");

/// A number that no other test of this or another run uses now.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A directory that is removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("{name}-{}", unique()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where a distribution has the command.
pub fn binary_of(root: &Path) -> PathBuf {
    root.join("bin/srdma")
}

/// A copy of the command in `root/bin` with stand-ins for our libraries in `root/lib`: real shared
/// objects, so that the dynamic linker can be asked whether it loaded them.
pub fn plant_tree(root: &Path) {
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::create_dir_all(root.join("lib")).unwrap();
    std::fs::copy(SRDMA, binary_of(root)).unwrap();
    let source = root.join("empty.c");
    std::fs::write(&source, "int srdma_stand_in;\n").unwrap();
    for name in ["libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libefa.so.1", "libibumad.so.3"] {
        let built = Command::new("cc")
            .args(["-shared", "-nostdlib", "-o"])
            .arg(root.join("lib").join(name))
            .arg(&source)
            .status()
            .unwrap();
        assert!(built.success());
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `srdma check --listen --json`, ended at the end.
pub struct Listening {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    pub port: u64,
    pub slot: u64,
}

impl Listening {
    /// Starts it as `command` (which may enter a namespace first) and waits until it has its slot.
    pub fn start(mut command: Command, arguments: &[&str]) -> Listening {
        command.args(["check", "--listen", "--json", "--for", "300"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let number = |key: &str| told[key].as_u64().unwrap();
        Listening { port: number("port"), slot: number("slot"), child, _stdout: stdout }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `srdma check … --json` as `command`; the exit code and what it said.
pub fn check(mut command: Command, arguments: &[&str]) -> (i32, Value) {
    let output = command.arg("check").args(arguments).arg("--json").output().unwrap();
    let told = serde_json::from_str(&stdout(&output));
    (output.status.code().unwrap(), told.unwrap_or_else(|_| panic!("{output:?}")))
}

/// Whether namespaces can be made. Without root the test says why it does nothing, unless
/// `SRDMA_REQUIRE_ROOT=1` forbids that.
pub fn namespaces_possible(test: &str) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let missing = ["ip", "nft", "sysctl"].into_iter().find(|tool| {
        !Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap().status.success()
    });
    let why = match (root, missing) {
        (true, None) => return true,
        (false, _) => "it needs root for network namespaces".to_owned(),
        (true, Some(tool)) => format!("it needs `{tool}`, which is not installed"),
    };
    assert!(std::env::var_os("SRDMA_REQUIRE_ROOT").is_none_or(|value| value != "1"), "{test}: {why}");
    eprintln!("{test}: skipped, {why}");
    false
}

/// Network namespaces, removed at the end.
pub struct Namespaces {
    prefix: String,
    names: Vec<&'static str>,
}

impl Namespaces {
    pub fn new(names: &[&'static str]) -> Namespaces {
        let made = Namespaces { prefix: format!("cli-{}-", unique()), names: names.to_vec() };
        for name in names {
            sh(&format!("ip netns add {0} && ip -n {0} link set lo up", made.name(name)));
        }
        made
    }

    fn name(&self, short: &str) -> String {
        format!("{}{short}", self.prefix)
    }

    /// A command that runs `program` in a namespace.
    pub fn command(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(name), program]);
        command
    }

    /// Runs a shell line in a namespace; it must succeed.
    pub fn sh(&self, name: &str, line: &str) {
        let output = self.command(name, "sh").args(["-ec", line]).output().unwrap();
        assert!(output.status.success(), "{name}: {line}: {output:?}");
    }

    /// Joins two namespaces with a link: (namespace, interface, IPv4 address of a /24).
    pub fn link(&self, a: (&str, &str, &str), b: (&str, &str, &str)) {
        let (ns_a, ns_b) = (self.name(a.0), self.name(b.0));
        sh(&format!("ip link add {} netns {ns_a} type veth peer name {} netns {ns_b}", a.1, b.1));
        for (namespace, interface, address) in [a, b] {
            self.sh(namespace, &format!("ip addr add {address}/24 dev {interface}"));
            self.sh(namespace, &format!("ip link set {interface} up"));
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", &self.name(name)]).output();
        }
    }
}

fn sh(line: &str) {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
}
