//! Input files of htsim (csg-htsim, uet-htsim), as they are: topologies (`.topo`) and connection matrices (`.cm`).
//!
//! Both are lines of words; `#` begins a comment. What such a file can say that is not simulated here is refused by
//! line, not passed over.

mod matrix;
mod topo;

pub use matrix::read_matrix;
pub use topo::read_topology;

use crate::reader::{FileError, Source};

/// The words of each line that has any, with the line's offset in the text.
fn lines<'a>(source: Source<'a>) -> impl Iterator<Item = (usize, Vec<&'a str>)> {
    let start = source.text.as_ptr() as usize;
    source.text.lines().filter_map(move |line| {
        let said = line.split('#').next().unwrap_or("");
        let words: Vec<&str> = said.split_whitespace().collect();
        (!words.is_empty()).then_some((line.as_ptr() as usize - start, words))
    })
}

/// A whole number.
fn number(source: Source<'_>, at: usize, key: &str, word: Option<&&str>) -> Result<u64, FileError> {
    let Some(word) = word else { return Err(source.error(at, format!("{key}: a number is missing"))) };
    word.parse().map_err(|_| source.error(at, format!("{key}: must be a whole number, not \"{word}\"")))
}
