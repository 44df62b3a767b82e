//! `cargo xtask dist`: a relocatable tree of libraries and the command, in `target/dist`.
//!
//! rustc cannot give one library many symbol versions, so the verbs are built as a static library and
//! linked here by the C compiler with a version script made from `crates/verbs/symbols.txt`. The other
//! library names are *filters* (`DT_FILTER`): files of names only, whose every lookup the loader sends to
//! `libibverbs.so.1`, so that one device engine serves them all. Nothing in the tree is an absolute path.

#[path = "../../crates/verbs/build/symbols.rs"]
mod symbols;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use symbols::{Filter, Symbols, FILTERS, MAIN_LINK, MAIN_SONAME};

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Where the tree goes; `target/dist` of the repository if not given.
    out: Option<PathBuf>,
    /// Leave out `bin/`.
    lib_only: bool,
    /// Leave the tables in the library that tell a profiler from which line an instruction comes.
    lines: bool,
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--out" => {
                let dir = args.next().ok_or("--out needs a directory")?;
                options.out = Some(PathBuf::from(dir));
            }
            "--lib-only" => options.lib_only = true,
            "--lines" => options.lines = true,
            other => return Err(format!("dist: unknown argument {other} (--out DIR, --lib-only, --lines)")),
        }
    }
    Ok(options)
}

/// Builds everything in release mode and writes the tree. `args` follow `cargo xtask dist`.
pub fn run(args: &[String]) -> Result<(), String> {
    let options = options(args)?;
    let root = root()?;
    let out = options.out.unwrap_or_else(|| root.join("target/dist"));
    let list = fs::read_to_string(root.join("crates/verbs/symbols.txt"))
        .map_err(|e| format!("reading crates/verbs/symbols.txt: {e}"))?;
    let list = Symbols::parse(&list)?;

    println!("dist: building the libraries");
    cargo(&root, &["rustc", "--release", "-p", "srdma-verbs", "--lib", "--crate-type", "staticlib"])?;
    let built = target_dir(&root).join("release");
    let parts = out.join("build");
    let lib = fresh(&out.join("lib"))?;
    fresh(&parts)?;

    main_library(&list, &built.join("libsrdma_verbs.a"), &parts, &lib, options.lines)?;
    for filter in &FILTERS {
        filter_library(&list, filter, &parts, &lib)?;
    }
    fs::remove_dir_all(&parts).map_err(|e| format!("removing {}: {e}", parts.display()))?;

    if !options.lib_only {
        println!("dist: building the command");
        cargo(&root, &["build", "--release", "-p", "srdma-cli"])?;
        command(&built.join("srdma"), &fresh(&out.join("bin"))?)?;
        // The command knows its own options: it writes its manual pages and completions.
        let share = fresh(&out.join("share"))?;
        call(Command::new(out.join("bin/srdma")).arg("pages").arg(&share))?;
        for folder in ["share/wireshark", "share/scenarios", "share/sweeps", "share/workloads"] {
            call(Command::new("cp").arg("-r").arg(root.join(folder)).arg(&share))?;
        }
    }
    println!("dist: {}", out.display());
    Ok(())
}

/// The repository: where the workspace of this program lies.
fn root() -> Result<PathBuf, String> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = manifest.parent().ok_or("xtask lies in no workspace")?;
    root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))
}

/// Where cargo puts what it builds.
fn target_dir(root: &Path) -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    }
}

fn cargo(root: &Path, args: &[&str]) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    // A configured target would move the artifacts to another folder.
    call(Command::new(cargo).args(args).arg("--quiet").current_dir(root).env_remove("CARGO_BUILD_TARGET"))
}

/// The C compiler; `CC` names another.
fn cc() -> Command {
    let cc = env::var_os("CC").filter(|cc| !cc.is_empty()).unwrap_or_else(|| OsString::from("cc"));
    Command::new(cc)
}

fn call(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} failed ({status}): {command:?}")),
        Err(e) => Err(format!("{name} cannot be started: {e}; install it (Debian: apt install gcc)")),
    }
}

/// An empty directory at `path`.
fn fresh(path: &Path) -> Result<PathBuf, String> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("removing {}: {e}", path.display()));
        }
        _ => {}
    }
    fs::create_dir_all(path).map_err(|e| format!("making {}: {e}", path.display()))?;
    Ok(path.to_path_buf())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("writing {}: {e}", path.display()))
}

/// `-Wl,NAME=PATH`
fn with_path(option: &str, path: &Path) -> OsString {
    let mut out = OsString::from(option);
    out.push(path);
    out
}

/// Links `libibverbs.so.1` from the archive, all names under their versions and nothing else visible.
fn main_library(
    list: &Symbols,
    archive: &Path,
    parts: &Path,
    lib: &Path,
    keep_lines: bool,
) -> Result<(), String> {
    let map = parts.join("libibverbs.map");
    let aliases = parts.join("libibverbs.s");
    write(&map, &list.version_map(""))?;
    write(&aliases, &list.alias_assembly(env::consts::ARCH)?)?;
    println!("dist: linking {MAIN_SONAME}");
    let mut link = cc();
    link.arg("-shared").arg("-o").arg(lib.join(MAIN_SONAME)).arg(&aliases);
    link.arg(format!("-Wl,-soname,{MAIN_SONAME}")).arg(with_path("-Wl,--version-script=", &map));
    link.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    // Calls between our own functions must not be taken over by another libibverbs in the process; and
    // the library stays when a plugin that brought it is closed, as its threads may be running.
    link.args(["-Wl,--gc-sections", "-Wl,-Bsymbolic-functions", "-Wl,-z,nodelete,-z,defs,-z,now,-z,relro"]);
    if !keep_lines {
        link.arg("-Wl,--strip-debug");
    }
    link.args(["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"]);
    call(&mut link)?;
    unversioned(lib, MAIN_SONAME, MAIN_LINK)
}

/// Assembles and links one filter library.
fn filter_library(list: &Symbols, filter: &Filter, parts: &Path, lib: &Path) -> Result<(), String> {
    let Filter { soname, nodes, link: link_name } = *filter;
    let map = parts.join(format!("{soname}.map"));
    let names = parts.join(format!("{soname}.s"));
    write(&map, &list.version_map(nodes))?;
    write(&names, &list.filter_assembly(nodes, env::consts::ARCH)?)?;
    println!("dist: linking {soname}, a filter for {MAIN_SONAME}");
    let mut link = cc();
    link.args(["-shared", "-nostdlib", "-o"]).arg(lib.join(soname)).arg(&names);
    link.arg(format!("-Wl,-soname,{soname}")).arg(with_path("-Wl,--version-script=", &map));
    link.arg(format!("-Wl,-F,{MAIN_SONAME}")).arg("-Wl,-z,nodelete");
    call(&mut link)?;
    unversioned(lib, soname, link_name)
}

/// The name without a number, which `dlopen` calls of some programs use.
fn unversioned(lib: &Path, soname: &str, link: &str) -> Result<(), String> {
    std::os::unix::fs::symlink(soname, lib.join(link)).map_err(|e| format!("linking {link}: {e}"))
}

/// Copies the command.
fn command(from: &Path, bin: &Path) -> Result<(), String> {
    let to = bin.join("srdma");
    fs::copy(from, &to).map_err(|e| format!("copying {} to {}: {e}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn options_are_read_and_mistakes_named() {
        assert_eq!(options(&[]), Ok(Options::default()));
        let both = Options { out: Some("x".into()), lib_only: true, ..Options::default() };
        assert_eq!(options(&words("--lib-only --out x")), Ok(both));
        for (line, named) in [("--out", "--out"), ("--uot x", "--uot")] {
            let error = options(&words(line)).expect_err(line);
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn maps_hold_each_node_once_and_hide_the_rest_once() {
        let list = Symbols::parse(
            "node A_1\nf int real\nnode A_2 A_1\ng ptr out=2:8\neach A_P 1 3 f\nnode B_1\nh void\n",
        )
        .expect("a good list");
        let map = list.version_map("A_");
        assert_eq!(map.matches("local: *;").count(), 1);
        assert!(map.contains("A_1 { global: f; local: *; };"), "{map}");
        assert!(map.contains("A_2 { global: g; } A_1;"), "{map}");
        for n in 1..=3 {
            assert!(map.contains(&format!("A_P_{n} {{ }};")), "{map}");
        }
        assert!(!map.contains('h'), "{map}");
        let filter = list.filter_assembly("B_", "x86_64").expect("a known architecture");
        assert!(filter.contains(".globl h") && !filter.contains(".globl f"), "{filter}");
        assert!(Symbols::parse("node A\nf nonsense\n").is_err());
    }
}
