//! A sweep's file: which scenario, which seeds, which values.

use toml::de::{DeTable, DeValue};
use toml::Spanned;

use super::{SweepError, POINTS_MAX};
use crate::reader::{FileError, Source, Table};

/// Values of a key, at most.
const VALUES_MAX: usize = 10_000;

/// What a sweep's file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepFile {
    /// The scenario's file, as seen from this one.
    pub scenario: String,
    pub(super) seeds: Vec<u64>,
    pub(super) axes: Vec<Axis>,
}

/// A key and its values, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub key: String,
    values: Vec<String>,
}

/// Reads the sweep `text`; `file` is what errors call it.
pub fn parse_sweep(file: &str, text: &str) -> Result<SweepFile, FileError> {
    let source = Source { file, text };
    let parsed = DeTable::parse(text).map_err(|error| {
        source.error(error.span().map_or(0, |span| span.start), error.message().replace('\n', "; "))
    })?;
    let root = Table::new(source, "", parsed.get_ref(), parsed.span());
    let scenario = root.text("scenario")?;
    let scenario = root.required("scenario", scenario)?.value.to_owned();
    let seeds = match root.value("seeds") {
        None => vec![1],
        Some(value) => read_seeds(source, value)?,
    };
    let mut axes = Vec::new();
    if let Some(vary) = root.value("vary") {
        let DeValue::Table(table) = vary.get_ref() else {
            return Err(source.error(vary.span().start, "vary: must be a table, [vary]"));
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let values = read_values(source, key.get_ref(), value)?;
            axes.push(Axis { key: key.get_ref().to_string(), values });
        }
    }
    root.finish()?;
    Ok(SweepFile { scenario, seeds, axes })
}

/// A number of seeds from 1 on, or a list.
fn read_seeds(source: Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Vec<u64>, FileError> {
    let wrong = || {
        source.error(value.span().start, "seeds: must be how many (from 1 on), or a list of whole numbers")
    };
    let whole = |value: &DeValue<'_>| match value {
        DeValue::Integer(number) => {
            u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
        }
        _ => None,
    };
    let seeds: Vec<u64> = match value.get_ref() {
        DeValue::Array(list) => {
            list.iter().map(|seed| whole(seed.get_ref()).ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        other => (1..=whole(other).filter(|&count| count <= POINTS_MAX as u64).ok_or_else(wrong)?).collect(),
    };
    match seeds.is_empty() {
        true => Err(wrong()),
        false => Ok(seeds),
    }
}

/// A list, or `{ from, to }` with `step` or `times`.
fn read_values(
    source: Source<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<String>, FileError> {
    let wrong = |at: usize, problem: &str| source.error(at, format!("vary.{key}: {problem}"));
    let start = value.span().start;
    let values: Vec<String> = match value.get_ref() {
        DeValue::Array(list) => {
            let each = list.iter().map(|value| match value.get_ref() {
                DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_) => {
                    Err(wrong(value.span().start, "a value must be a number, a text, true or false"))
                }
                _ => Ok(source.text.get(value.span()).unwrap_or_default().to_owned()),
            });
            each.collect::<Result<_, _>>()?
        }
        DeValue::Table(table) => {
            let name = format!("vary.{key}");
            range(&Table::new(source, &name, table, value.span()))?
        }
        _ => return Err(wrong(start, "must be a list, or { from, to, step } or { from, to, times }")),
    };
    match values.len() {
        0 => Err(wrong(start, "has no values")),
        count if count > VALUES_MAX => Err(wrong(start, "has more than 10000 values")),
        _ => Ok(values),
    }
}

fn range(table: &Table<'_>) -> Result<Vec<String>, FileError> {
    let any = f64::MIN..=f64::MAX;
    let from = table.required("from", table.number("from", any.clone())?)?;
    let to = table.required("to", table.number("to", any)?)?;
    let step = table.number("step", f64::MIN_POSITIVE..=f64::MAX)?;
    let times = table.number("times", 1.000_001..=f64::MAX)?;
    table.finish()?;
    let next: Box<dyn Fn(usize) -> f64> = match (step, times) {
        (Some(step), None) => Box::new(move |index| from + step * index as f64),
        (None, Some(times)) if from > 0.0 => Box::new(move |index| from * times.powi(index as i32)),
        (None, Some(_)) => return Err(table.error("from must be more than 0 if it is multiplied")),
        _ => return Err(table.error("needs either step or times")),
    };
    // What rounding adds to the last value does not make it too large.
    let most = to + to.abs() * 1e-9;
    Ok((0..=VALUES_MAX).map(next).take_while(|&value| value <= most).map(written).collect())
}

/// A number as TOML has it: whole ones without a point, so that they may stand where whole ones are wanted.
fn written(value: f64) -> String {
    match value.round() {
        whole if (value - whole).abs() < 1e-9 && whole.abs() < 1e15 => format!("{whole:.0}"),
        _ => format!("{value}"),
    }
}

impl SweepFile {
    /// All combinations of values; the last key varies fastest.
    pub(super) fn combinations(&self) -> Result<Vec<Vec<(String, String)>>, SweepError> {
        let count = self.axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.values.len()));
        let count = count.unwrap_or(usize::MAX);
        if count > POINTS_MAX {
            return Err(SweepError::Points(count));
        }
        let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for axis in &self.axes {
            all = all
                .iter()
                .flat_map(|before| {
                    axis.values.iter().map(|value| {
                        let mut next = before.clone();
                        next.push((axis.key.clone(), value.clone()));
                        next
                    })
                })
                .collect();
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_are_lists_or_ranges_and_the_last_key_varies_fastest() {
        let text = "scenario = \"s.toml\"\nseeds = 3\n[vary]\n\"b.x\" = [\"rr\", true]\n\
                    \"a.y\" = { from = 4, to = 16, times = 2 }\n";
        let file = parse_sweep("sweep.toml", text).unwrap();
        assert_eq!((file.seeds.as_slice(), file.axes.len()), (&[1, 2, 3][..], 2));
        let combinations = file.combinations().unwrap();
        assert_eq!(combinations.len(), 6);
        assert_eq!(
            combinations[1],
            [("b.x".to_owned(), "\"rr\"".to_owned()), ("a.y".to_owned(), "8".to_owned())]
        );
        let text = "scenario = \"s.toml\"\nseeds = [7]\n[vary]\nk = { from = 0.1, to = 0.3, step = 0.1 }";
        assert_eq!(parse_sweep("sweep.toml", text).unwrap().axes[0].values.len(), 3);
    }

    #[test]
    fn what_is_wrong_is_said_with_file_line_and_key() {
        for (text, said) in [
            ("", "sweep.toml:1: [scenario]: scenario is missing"),
            ("scenario = \"s\"\nseeds = 0", "sweep.toml:2: seeds: must be how many"),
            ("scenario = \"s\"\nseeds = [1, \"x\"]", "sweep.toml:2: seeds: must be"),
            ("scenario = \"s\"\nvary = 3", "sweep.toml:2: vary: must be a table"),
            ("scenario = \"s\"\n[vary]\nk = []", "sweep.toml:3: vary.k: has no values"),
            ("scenario = \"s\"\n[vary]\nk = [[1]]", "sweep.toml:3: vary.k: a value must be"),
            ("scenario = \"s\"\n[vary]\nk = { from = 1, to = 2 }", "needs either step or times"),
            ("scenario = \"s\"\n[vary]\nk = { from = 0, to = 2, times = 2 }", "from must be more than 0"),
            ("scenario = \"s\"\n[vary]\nk = { from = 0, to = 9e9, step = 1 }", "more than 10000 values"),
            ("scenario = \"s\"\n[vary]\nk = { from = 0, to = 9, step = 1, by = 1 }", "unknown key"),
            ("scenario = \"s\"\nvarry = 1", "sweep.toml:2: varry: unknown key"),
        ] {
            let error = parse_sweep("sweep.toml", text).expect_err(said).to_string();
            assert!(error.contains(said), "{error}\nwanted: {said}");
        }
    }
}
