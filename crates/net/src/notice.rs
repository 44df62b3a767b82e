//! Words to the user on standard error. We live in somebody's program: a closed stderr must not panic.

use std::io::Write;

/// Writes one line.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "srdma: {text}");
}
