//! What `run` sets for a program and `env` prints: the loader's variables and ours.

use crate::options::{NicOptions, OptionError};
use crate::print::{complain, out, shell_quoted};
use crate::tree::{Libraries, TreeError};
use crate::USAGE;
use clap::{Args, ValueEnum};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// `srdma env`: its options.
#[derive(Args)]
#[command(after_help = "Examples:\n  eval \"$(srdma env)\"\n  srdma env --format docker --prefix /opt/srdma")]
pub struct EnvCommand {
    /// How to print it
    #[arg(long, value_enum, default_value = "sh")]
    format: Format,

    /// Where the distribution (bin/, lib/) will be, if not where this binary is; not checked
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,

    #[command(flatten)]
    nic: NicOptions,
}

/// How the environment is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// `export` lines for eval
    Sh,
    /// `ENV` lines for a Dockerfile
    Docker,
    /// One object
    Json,
}

/// Why no environment can be made.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// An option is wrong.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The libraries are not to be found.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Names and values, in the order in which they are printed.
#[derive(Debug, PartialEq, Eq)]
pub struct Environment(pub Vec<(&'static str, String)>);

impl Environment {
    /// The environment of a program that uses `libraries`. `inherited` gives the present value of a
    /// variable: the loader's lists are extended, not replaced.
    pub fn new(
        libraries: &Libraries,
        nic: &NicOptions,
        inherited: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Environment, OptionError> {
        let search =
            prepend(std::slice::from_ref(&libraries.directory), inherited("LD_LIBRARY_PATH"), &[':', ';']);
        let preload = prepend(&libraries.preload(), inherited("LD_PRELOAD"), &[':', ' ']);
        let mut set = vec![("LD_LIBRARY_PATH", search), ("LD_PRELOAD", preload)];
        set.extend(nic.variables()?);
        Ok(Environment(set))
    }

    /// The text of `format`.
    pub fn format(&self, format: Format) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            // Writing to a String cannot fail.
            let _ = match format {
                Format::Sh => writeln!(text, "export {name}={}", shell_quoted(value)),
                Format::Docker => writeln!(text, "ENV {name}=\"{}\"", docker_escaped(value)),
                Format::Json => Ok(()),
            };
        }
        if format == Format::Json {
            let object: serde_json::Map<_, _> =
                self.0.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
            let _ = writeln!(text, "{:#}", serde_json::Value::Object(object));
        }
        text
    }
}

/// `ours` before what was there; nothing twice, so that `srdma run -- srdma run -- …` is harmless.
fn prepend(ours: &[String], inherited: Option<String>, splitters: &[char]) -> String {
    let theirs = inherited.unwrap_or_default();
    let theirs =
        theirs.split(splitters).filter(|part| !part.is_empty() && !ours.iter().any(|our| our == part));
    ours.iter().map(String::as_str).chain(theirs).collect::<Vec<_>>().join(":")
}

/// Inside double quotes a Dockerfile expands `$` and takes `\` as escape.
fn docker_escaped(value: &str) -> String {
    let mut escaped = String::new();
    for c in value.chars() {
        if ['\\', '"', '$'].contains(&c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The present value of a variable, if it is text.
pub fn inherited(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Carries out `srdma env`.
pub fn env(command: &EnvCommand) -> ExitCode {
    // A Dockerfile is read on another machine: what this shell has set is not part of it.
    let nothing = |_: &str| None;
    let foreign = command.format == Format::Docker || command.prefix.is_some();
    let from: &dyn Fn(&str) -> Option<String> = if foreign { &nothing } else { &inherited };
    let libraries = match &command.prefix {
        Some(root) => Libraries::elsewhere(root),
        None => Libraries::find(),
    };
    let environment = libraries
        .map_err(EnvironmentError::from)
        .and_then(|libraries| Ok(Environment::new(&libraries, &command.nic, from)?));
    match environment {
        Ok(environment) => {
            out(&environment.format(command.format));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error);
            ExitCode::from(match error {
                EnvironmentError::Option(_) => USAGE,
                EnvironmentError::Tree(_) => 1,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn environment(root: &str, present: &[(&str, &str)]) -> Environment {
        let libraries = Libraries::elsewhere(Path::new(root)).unwrap();
        let nic = NicOptions { paths: Some(4), ..NicOptions::default() };
        let inherited =
            |name: &str| present.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Environment::new(&libraries, &nic, &inherited).unwrap()
    }

    const PRELOAD: &str = "/o/lib/libibverbs.so.1:/o/lib/librdmacm.so.1:/o/lib/libmlx5.so.1:\
                           /o/lib/libefa.so.1:/o/lib/libibumad.so.3";

    #[test]
    fn the_loader_finds_ours_first_and_keeps_what_was_there_once() {
        for (path, preload, path_after, preload_after) in [
            ("", "", "/o/lib", PRELOAD.to_owned()),
            ("/x:/y", "/z.so", "/o/lib:/x:/y", format!("{PRELOAD}:/z.so")),
            ("/o/lib", PRELOAD, "/o/lib", PRELOAD.to_owned()),
            ("/x:/o/lib", "/a.so /b.so", "/o/lib:/x", format!("{PRELOAD}:/a.so:/b.so")),
        ] {
            let set = environment("/o", &[("LD_LIBRARY_PATH", path), ("LD_PRELOAD", preload)]);
            assert_eq!(set.0[0], ("LD_LIBRARY_PATH", path_after.to_owned()), "{path}");
            assert_eq!(set.0[1], ("LD_PRELOAD", preload_after), "{preload}");
        }
    }

    #[test]
    fn every_format_says_the_same() {
        let set = environment("/my $tools", &[]);
        let bare = "libibverbs.so.1:librdmacm.so.1:libmlx5.so.1:libefa.so.1:libibumad.so.3";
        assert_eq!(
            set.format(Format::Sh),
            format!(
                "export LD_LIBRARY_PATH='/my $tools/lib'\nexport LD_PRELOAD={bare}\nexport SRDMA_PATHS=4\n"
            )
        );
        assert_eq!(
            set.format(Format::Docker),
            format!(
                "ENV LD_LIBRARY_PATH=\"/my \\$tools/lib\"\nENV LD_PRELOAD=\"{bare}\"\nENV SRDMA_PATHS=\"4\"\n"
            )
        );
        let object: serde_json::Value = serde_json::from_str(&set.format(Format::Json)).unwrap();
        assert_eq!(object["LD_LIBRARY_PATH"], "/my $tools/lib");
        assert_eq!(object["LD_PRELOAD"], bare);
        assert_eq!(object["SRDMA_PATHS"], "4");
    }
}
