//! Generates the bodies of all exported functions that `src/` does not implement, and for the tests a table of all
//! exported functions.

#[path = "build/symbols.rs"]
mod symbols;

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=symbols.txt");
    println!("cargo:rerun-if-changed=build/symbols.rs");
    let list = symbols::Symbols::parse(&fs::read_to_string("symbols.txt")?)?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("stubs.rs"), list.stubs())?;
    fs::write(out.join("exports.rs"), list.table())?;
    Ok(())
}
