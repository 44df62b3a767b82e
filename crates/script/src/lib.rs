//! Fault scripts: the text of `--fault` and `SRDMA_FAULT` as [`Faults`].
//!
//! This room reads; it must not know who injects the faults or how. A script is a list of clauses, separated by `;` or
//! new lines; `#` begins a comment. The first word says what happens, the others restrict it, in any order:
//!
//! ```text
//! drop 1%                                    # of the packets that we send
//! drop 30% burst on 0-31 from 2s to 5s       # whole bursts, on 32 paths, for three seconds
//! drop on 1mod4 for 50ms every 1s            # paths 1, 5, 9, …: dark for 50 ms of every second
//! delay 20ms 5% ack receive                  # acknowledgements that arrive, one in twenty
//! duplicate 1%; corrupt 0.1% data            # corrupt: a header bit. damage: any bit, unnoticed in the payload
//! freeze for 300ms every 2s from 1s          # the device makes no progress: sends nothing, takes nothing
//! fail send 1000 with NoAnswer               # the 1000th work request of each queue pair fails
//! fail receive 10 of qp 2 with LocalFault    # name or code of `srdma explain list`
//! ```
//!
//! Times count from the first queue pair of the device. Read [`parse`], then `clause`.
#![forbid(unsafe_code)]

mod clause;

use std::path::Path;

pub use srdma_seams::Faults;

/// A script is not as it should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, \"{clause}\": {problem}")]
pub struct ScriptError {
    /// Line in the script, from 1.
    pub line: usize,
    /// The clause.
    pub clause: String,
    /// What is wrong with it and what is allowed.
    pub problem: String,
}

/// Why there is no plan of faults.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The text is not as it should be.
    #[error("fault script, {0}")]
    Text(ScriptError),
    /// The file's text is not as it should be.
    #[error("fault script {file}, {error}")]
    File {
        /// Which file.
        file: String,
        /// What is wrong with it.
        error: ScriptError,
    },
    /// The file cannot be read.
    #[error("cannot read the fault script {file}: {error}")]
    Unreadable {
        /// Which file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
}

/// The faults that `text` describes.
pub fn parse(text: &str) -> Result<Faults, ScriptError> {
    let mut faults = Faults::default();
    for (index, line) in text.lines().enumerate() {
        let code = line.split('#').next().unwrap_or("");
        for clause in code.split(';').map(str::trim).filter(|clause| !clause.is_empty()) {
            let wrong = |problem| ScriptError { line: index + 1, clause: clause.to_owned(), problem };
            clause::parse(clause, &mut faults).map_err(wrong)?;
            faults.validate().map_err(|error| wrong(error.to_string()))?;
        }
    }
    Ok(faults)
}

/// The faults of the script in the file `value`, or if there is no such file, of `value` itself. A single word with
/// a `/` or a `.` in it can only be a file.
pub fn load(value: &str) -> Result<Faults, LoadError> {
    let file = || value.to_owned();
    let only_a_file = !value.contains(char::is_whitespace) && value.contains(['/', '.']);
    if only_a_file || Path::new(value).is_file() {
        let text =
            std::fs::read_to_string(value).map_err(|error| LoadError::Unreadable { file: file(), error })?;
        return parse(&text).map_err(|error| LoadError::File { file: file(), error });
    }
    parse(value).map_err(LoadError::Text)
}

#[cfg(test)]
mod tests;
