//! Tables of a TOML file that know their lines, and refuse what nobody asked for.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use toml::Spanned;

/// A file is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct FileError {
    /// Which file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Key, and what is wrong with it.
    pub problem: String,
}

/// A text and what it is called.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    pub fn error(&self, at: usize, problem: impl Into<String>) -> FileError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        FileError { file: self.file.to_owned(), line, problem: problem.into() }
    }
}

/// A table under inspection.
pub(crate) struct Table<'a> {
    source: Source<'a>,
    /// What errors call it: empty for the whole file.
    name: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
}

/// A value and where it stands.
pub(crate) struct Found<T> {
    pub value: T,
    pub at: usize,
}

impl<'a> Table<'a> {
    pub fn new(source: Source<'a>, name: &str, table: &'a DeTable<'a>, span: Range<usize>) -> Table<'a> {
        Table { source, name: name.to_owned(), span, table, asked: RefCell::default() }
    }

    fn find(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.borrow_mut().push(key);
        self.table.get(key)
    }

    /// `key` as errors name it.
    fn full(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    pub fn error_at(&self, at: usize, key: &str, problem: &str) -> FileError {
        self.source.error(at, format!("{}: {problem}", self.full(key)))
    }

    /// The path of `file` that stands in the same folder as this file, unless it is absolute.
    pub fn beside(&self, file: &str) -> PathBuf {
        Path::new(self.source.file).parent().map_or_else(|| PathBuf::from(file), |folder| folder.join(file))
    }

    /// An error that concerns the table as a whole.
    pub fn error(&self, problem: &str) -> FileError {
        let name = if self.name.is_empty() { "scenario" } else { &self.name };
        self.source.error(self.span.start, format!("[{name}]: {problem}"))
    }

    /// An error that concerns the value of `key`.
    pub fn error_on(&self, key: &str, problem: &str) -> FileError {
        let at = self.table.get(key).map_or(self.span.start, |value| value.span().start);
        self.error_at(at, key, problem)
    }

    fn wrong<T>(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) -> Result<T, FileError> {
        let found = value.get_ref().type_str();
        Err(self.error_at(value.span().start, key, &format!("must be {wanted}, not {found}")))
    }

    /// A value of any type.
    pub fn value(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.find(key)
    }

    /// A number within `range`, whole or not.
    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Result<Option<f64>, FileError> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let text = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return self.wrong(key, value, "a number"),
        };
        let number: Option<f64> = text.replace('_', "").parse().ok();
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let problem = format!("must be {} to {}, not {text}", range.start(), range.end());
                Err(self.error_at(value.span().start, key, &problem))
            }
        }
    }

    /// A whole number within `range`.
    pub fn whole(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>, FileError> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let DeValue::Integer(number) = value.get_ref() else {
            return self.wrong(key, value, "a whole number");
        };
        let digits = number.as_str().replace('_', "");
        match u64::from_str_radix(&digits, number.radix()).ok().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let problem =
                    format!("must be {} to {}, not {}", range.start(), range.end(), number.as_str());
                Err(self.error_at(value.span().start, key, &problem))
            }
        }
    }

    pub fn truth(&self, key: &'static str) -> Result<Option<bool>, FileError> {
        match self.find(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Boolean(truth) => Ok(Some(*truth)),
                _ => self.wrong(key, value, "true or false"),
            },
        }
    }

    pub fn text(&self, key: &'static str) -> Result<Option<Found<&'a str>>, FileError> {
        match self.find(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::String(text) => Ok(Some(Found { value: text.as_ref(), at: value.span().start })),
                _ => self.wrong(key, value, "a text in quotes"),
            },
        }
    }

    /// One of some words.
    pub fn choice<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<Found<T>>, FileError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == text.value) {
            Some(&(_, value)) => Ok(Some(Found { value, at: text.at })),
            None => {
                let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let problem = format!("must be one of {}, not \"{}\"", all.join(", "), text.value);
                Err(self.error_at(text.at, key, &problem))
            }
        }
    }

    /// What must be there.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, FileError> {
        value.ok_or_else(|| self.error(&format!("{key} is missing")))
    }

    pub fn table(&self, key: &'static str) -> Result<Option<Table<'a>>, FileError> {
        match self.find(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Table(table) => {
                    Ok(Some(Table::new(self.source, &self.full(key), table, value.span())))
                }
                _ => self.wrong(key, value, &format!("a table, [{key}]")),
            },
        }
    }

    /// Each table of `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Result<Vec<Table<'a>>, FileError> {
        let Some(value) = self.find(key) else { return Ok(Vec::new()) };
        let DeValue::Array(array) = value.get_ref() else {
            return self.wrong(key, value, &format!("tables, [[{key}]]"));
        };
        let each = array.iter().map(|entry| match entry.get_ref() {
            DeValue::Table(table) => Ok(Table::new(self.source, &self.full(key), table, entry.span())),
            _ => self.wrong(key, entry, &format!("tables, [[{key}]]")),
        });
        each.collect()
    }

    /// These keys may be there, whatever they say.
    pub fn ignore(&self, keys: &[&'static str]) {
        self.asked.borrow_mut().extend(keys);
    }

    /// Refuses keys that nobody asked for.
    pub fn finish(&self) -> Result<(), FileError> {
        let asked = self.asked.borrow();
        let unknown = self.table.keys().filter(|key| !asked.contains(&key.get_ref().as_ref()));
        let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
        let mut known: Vec<&str> = asked.clone();
        known.sort_unstable();
        known.dedup();
        let problem = format!("unknown key; known here: {}", known.join(", "));
        Err(self.error_at(key.span().start, key.get_ref(), &problem))
    }
}
