//! The linked libraries: exactly the symbols of `symbols.txt`, and every program of the distribution
//! finds what it imports.
#![allow(clippy::unwrap_used)]

mod ground;

use ground::symbols::{Symbols, FILTERS, MAIN_LINK, MAIN_SONAME};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn list() -> Symbols {
    Symbols::parse(&std::fs::read_to_string(ground::here().join("symbols.txt")).unwrap()).unwrap()
}

/// `name@node` of all functions that a library defines for others.
fn exported(library: &Path) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    let text = ground::output(nm.args(["-D", "--with-symbol-versions", "--defined-only"]).arg(library));
    // Version nodes themselves are listed with type A.
    let symbols = text.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "A", _] => None,
        [_, _, name] => Some(name.replace("@@", "@")),
        _ => panic!("nm: {line}"),
    });
    symbols.collect()
}

/// What the nodes with this prefix should export.
fn expected(list: &Symbols, prefix: &str) -> BTreeSet<String> {
    let own = list
        .nodes_of(prefix)
        .flat_map(|node| node.symbols.iter().map(move |symbol| format!("{}@{}", symbol.name, node.name)));
    let aliases = list.aliases.iter().filter(|(_, node)| node.starts_with(prefix));
    own.chain(aliases.map(|(symbol, node)| format!("{symbol}@{node}"))).collect()
}

#[test]
fn each_library_exports_its_list_under_versions_and_nothing_else() {
    let Some(lib) = ground::lib() else { return };
    let list = list();
    let main = expected(&list, "");
    assert!(main.len() > 440, "the list is short: {}", main.len());
    assert_eq!(exported(&lib.join(MAIN_SONAME)), main);
    for filter in &FILTERS {
        assert_eq!(exported(&lib.join(filter.soname)), expected(&list, filter.nodes), "{}", filter.soname);
    }
}

#[test]
fn names_without_a_number_lead_to_the_libraries_beside_them() {
    let Some(lib) = ground::lib() else { return };
    let names = FILTERS.iter().map(|f| (f.link, f.soname)).chain([(MAIN_LINK, MAIN_SONAME)]);
    for (link, soname) in names {
        assert_eq!(std::fs::read_link(lib.join(link)).unwrap(), Path::new(soname), "relative, so movable");
    }
}

#[test]
fn the_library_needs_the_c_library_alone_and_its_own_calls_cannot_be_taken_over() {
    let Some(lib) = ground::lib() else { return };
    let library = lib.join(MAIN_SONAME);
    let dynamic = ground::output(Command::new("readelf").arg("-dW").arg(&library));
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux"];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
    assert!(!dynamic.contains("RUNPATH") && !dynamic.contains("RPATH"), "{dynamic}");
    for flag in ["NODELETE", "NOW"] {
        assert!(dynamic.contains(flag), "{flag}: {dynamic}");
    }
    let relocations = ground::output(Command::new("readelf").arg("-rW").arg(&library));
    let own = relocations
        .lines()
        .find(|line| line.contains(" ibv_") || line.contains(" rdma_") || line.contains(" _ibv_"));
    assert_eq!(own, None, "preemptible reference to ourselves");
}

/// Programs of perftest, ibverbs-utils and rdmacm-utils (Debian 12 names).
const PROGRAMS: [&str; 33] = [
    "ib_atomic_bw",
    "ib_atomic_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "raw_ethernet_burst_lat",
    "raw_ethernet_bw",
    "raw_ethernet_fs_rate",
    "raw_ethernet_lat",
    "ibv_asyncwatch",
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_srq_pingpong",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong",
    "ibv_xsrq_pingpong",
    "cmtime",
    "mckey",
    "rcopy",
    "rdma_client",
    "rdma_server",
    "rdma_xclient",
    "rdma_xserver",
    "riostream",
    "rping",
    "rstream",
    "ucmatose",
    "udaddy",
    "udpong",
];

/// rdma-core numbered its private symbols; a stand-in without IBVERBS_PRIVATE_34 keeps `ib_send_bw` of
/// Debian 12 from starting, as found when trying one.
#[test]
fn no_installed_program_misses_a_symbol_or_a_version() {
    let Some(lib) = ground::lib() else { return };
    let mut checked = Vec::new();
    for name in PROGRAMS {
        let program = Path::new("/usr/bin").join(name);
        if !program.is_file() {
            continue;
        }
        // ldd runs the loader, which tells of missing symbols on stderr and still succeeds.
        let out = ground::on_our_libraries(Path::new("ldd"), &lib).arg("-r").arg(&program).output().unwrap();
        let text =
            [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        for complaint in ["undefined symbol", "not found", "no version information"] {
            assert!(!text.contains(complaint), "{name}:\n{text}");
        }
        let ours = |line: &&str| line.contains("libibverbs.so.1 =>") && line.contains(lib.to_str().unwrap());
        assert!(text.lines().any(|line| ours(&line)), "{name} would not use our library:\n{text}");
        checked.push(name);
    }
    if checked.len() < PROGRAMS.len() {
        let missing: Vec<_> = PROGRAMS.iter().filter(|name| !checked.contains(name)).collect();
        ground::skip(&format!(
            "{missing:?} not installed (Debian: apt install perftest ibverbs-utils rdmacm-utils)"
        ));
    }
}
