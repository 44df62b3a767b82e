//! Printing that never fails the command: a reader that has gone away (`srdma … | head`) is no error.

use std::io::Write;

/// Writes `text` to standard output.
pub fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Writes one line to standard error, with the command's name before it.
pub fn complain(text: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "srdma: {text}");
}

/// `word` as a shell reads it back: bare if harmless, otherwise in single quotes.
pub fn shell_quoted(word: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_when_a_shell_would_change_them() {
        for (word, quoted) in [
            ("/usr/bin/ib_write_bw", "/usr/bin/ib_write_bw"),
            ("/a b/lib", "'/a b/lib'"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("*", "'*'"),
        ] {
            assert_eq!(shell_quoted(word), quoted);
        }
    }
}
