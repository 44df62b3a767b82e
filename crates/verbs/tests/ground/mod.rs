//! What the tests of the linked libraries stand on: the tree of `cargo xtask dist`, a C compiler with
//! rdma-core's headers, and programs from the distribution.
#![allow(dead_code)] // each test file takes a part of it
#![allow(clippy::unwrap_used)]

#[path = "../../build/symbols.rs"]
pub mod symbols;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The crate's own directory.
pub fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Skips a test whose ground is missing: with a word on stderr, or, where `SRDMA_REQUIRE_DIST` is set
/// (as the full test run does), as a failure.
pub fn skip(why: &str) {
    assert!(std::env::var_os("SRDMA_REQUIRE_DIST").is_none(), "{why}");
    eprintln!("SKIPPED: {why}");
}

/// `lib` of the dist tree: that of `SRDMA_DIST`, or the repository's `target/dist`.
pub fn lib() -> Option<PathBuf> {
    let dist = std::env::var_os("SRDMA_DIST").map_or_else(|| here().join("../../target/dist"), PathBuf::from);
    let lib = dist.join("lib");
    if lib.join("libibverbs.so.1").is_file() {
        return Some(lib.canonicalize().unwrap());
    }
    skip(&format!("no libraries in {}; run `cargo xtask dist`, or set SRDMA_DIST", dist.display()));
    None
}

/// Output of a command that must succeed.
pub fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}{err}");
    out.into_owned()
}

/// A command that runs `program` on our libraries and the loopback device.
pub fn on_our_libraries(program: &Path, lib: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", lib).env("LD_BIND_NOW", "1").env("SRDMA_ADDR", "127.0.0.1");
    command
}

/// Whether C programs for verbs can be compiled.
fn can_compile() -> bool {
    let header = Path::new("/usr/include/infiniband/verbs.h").is_file();
    header && Command::new("cc").arg("--version").output().is_ok()
}

/// Compiles `source` (text of a C program) with `args`; `None`, after [`skip`], where that is not possible.
pub fn compile(name: &str, source: &str, args: &[&str]) -> Option<PathBuf> {
    if !can_compile() {
        skip("no C compiler, or no <infiniband/verbs.h> (Debian: apt install gcc libibverbs-dev)");
        return None;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, program) = (directory.join(format!("{name}.c")), directory.join(name));
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-o"]);
    cc.arg(&program).arg(&file).arg("-I").arg(here().join("tests/c"));
    output(cc.args(args));
    Some(program)
}

/// Compiles `tests/c/NAME.c` against our libibverbs.
pub fn compile_for_us(name: &str, lib: &Path) -> Option<PathBuf> {
    let source = std::fs::read_to_string(here().join(format!("tests/c/{name}.c"))).unwrap();
    let library = lib.join("libibverbs.so.1");
    compile(name, &source, &[library.to_str().unwrap(), "-ldl"])
}
