//! Names of devices and tenants.

use super::layout::{In, Layout, Out};

/// Bytes of a name's field; a name is shorter by at least one zero.
pub const NAME_BYTES: usize = 64;

/// A text of up to 63 bytes, padded with zeros. What comes from outside may be anything: [`Name::text`] says whether
/// it is a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name([u8; NAME_BYTES]);

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name has 1 to 63 letters a-z, digits and hyphens, and begins and ends with a letter or digit (RFC 1123)"
)]
pub struct BadName;

impl Name {
    /// The name `text`: a label of RFC 1123, so that it can be a file, a host and a Kubernetes object.
    pub fn new(text: &str) -> Result<Name, BadName> {
        let bytes = text.as_bytes();
        let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fine = !bytes.is_empty()
            && bytes.len() < NAME_BYTES
            && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
            && bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric);
        if !fine {
            return Err(BadName);
        }
        let mut name = [0; NAME_BYTES];
        name[..bytes.len()].copy_from_slice(bytes);
        Ok(Name(name))
    }

    /// The text, if the bytes are a name as [`Name::new`] makes them.
    pub fn text(&self) -> Result<&str, BadName> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(BadName)?;
        let (text, padding) = self.0.split_at(end);
        let text = core::str::from_utf8(text).map_err(|_| BadName)?;
        let whole = padding.iter().all(|&byte| byte == 0) && Name::new(text)? == *self;
        whole.then_some(text).ok_or(BadName)
    }
}

impl Default for Name {
    /// All zeros: no name.
    fn default() -> Name {
        Name([0; NAME_BYTES])
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.text() {
            Ok(text) => write!(f, "{text:?}"),
            Err(_) => write!(f, "no name"),
        }
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text().unwrap_or("(no name)"))
    }
}

impl Layout for Name {
    const BYTES: usize = NAME_BYTES;
    fn put(&self, out: &mut Out<'_>) {
        self.0.put(out);
    }
    fn get(from: &mut In<'_>) -> Name {
        Name(Layout::get(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_nothing_else() {
        for (text, fine) in [
            ("a", true),
            ("gpu-7", true),
            ("0", true),
            ("a123456789012345678901234567890123456789012345678901234567890ab", true),
            ("a123456789012345678901234567890123456789012345678901234567890abc", false),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a/b", false),
            ("..", false),
            ("a\0b", false),
            ("é", false),
        ] {
            assert_eq!(Name::new(text).is_ok(), fine, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_name_have_no_text() {
        let mut bytes = [0; NAME_BYTES];
        assert_eq!(Name(bytes).text(), Err(BadName));
        bytes[0] = b'a';
        assert_eq!(Name(bytes).text(), Ok("a"));
        bytes[2] = b'b';
        assert_eq!(Name(bytes).text(), Err(BadName), "something behind the end");
        assert_eq!(Name([b'a'; NAME_BYTES]).text(), Err(BadName), "no end");
    }
}
