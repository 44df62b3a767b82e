//! Files that users write: scenarios, htsim's topologies and matrices, SimAI's workloads. Whatever they hold, they are read or
//! refused with their name and a line; nothing panics. The first byte says which reader it is.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run files`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    // Large networks are allowed and take long: fewer digits in a row keep them small.
    let text = String::from_utf8_lossy(rest);
    if text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 3) {
        return;
    }
    let error = match which % 4 {
        0 => srdma_sim::parse("file", &text, None, None).err(),
        1 => srdma_sim::read_matrix("file", &text).err(),
        2 => srdma_sim::read_topology("file", &text, srdma_sim::DEFAULT_QUEUE).err(),
        _ => srdma_sim::read_simai("file", &text).err(),
    };
    if let Some(error) = error {
        let lines = text.matches('\n').count() + 1;
        assert!(error.line >= 1 && error.line <= lines && !error.problem.is_empty(), "{error}");
    }
});
