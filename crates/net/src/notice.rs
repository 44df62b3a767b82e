//! Words to the user on standard error. We live in somebody's program: a closed stderr must not panic.

use std::io::Write;

/// Writes one line.
pub(crate) fn tell(text: &str) {
    // One write: other threads and processes share the terminal.
    let _ = std::io::stderr().write_all(format!("srdma: {text}\n").as_bytes());
}
