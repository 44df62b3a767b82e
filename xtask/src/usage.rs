//! The command line of `cargo xtask`: one entry per command, from which help is printed and options are accepted.

use std::fmt::Write;

/// A command and what it takes.
#[derive(Debug)]
pub struct Command {
    /// The word after `cargo xtask`.
    pub name: &'static str,
    /// What it is for, in a line.
    what: &'static str,
    /// What follows the name.
    synopsis: &'static str,
    /// Each option as it is written, and what it does.
    options: &'static [(&'static str, &'static str)],
    /// What else is worth knowing; lines of their own.
    more: &'static str,
}

const DIST: (&str, &str) = ("--dist DIR", "use the tree in DIR instead of building one");
const JSON: (&str, &str) = ("--json FILE", "write everything measured to FILE");
const ONLY: (&str, &str) =
    ("--only PATTERN", "only steps whose name contains PATTERN, or is NAME with =NAME");
const LIST: (&str, &str) = ("--list", "name the steps and run none");
const JOBS: (&str, &str) = ("--jobs N", "networks at once; 1 if not given");

/// Every command there is.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        what: "real RDMA programs over 4 spines, beside TCP, in three minutes",
        synopsis: "[OPTIONS]",
        options: &[JSON, DIST],
        more: "Exit code 1 if data could not be verified.\n",
    },
    Command {
        name: "test",
        what: "everything that CI runs",
        synopsis: "[OPTIONS]",
        options: &[
            ONLY,
            LIST,
            JOBS,
            DIST,
            ("--write-compat", "only run other people's programs, and write the table of COMPAT.md"),
        ],
        more: "Exit code 1 if a step failed. Steps on real networks need root or an unprivileged user namespace.\n",
    },
    Command {
        name: "soak",
        what: "the same with every combination, more seeds and more time",
        synopsis: "[OPTIONS]",
        options: &[ONLY, LIST, JOBS, DIST],
        more: "Takes many hours; --only and --list choose.\n",
    },
    Command {
        name: "bench",
        what: "speed beside TCP, and limits in real time",
        synopsis: "[PART] [OPTIONS]",
        options: &[
            JSON,
            ("--check", "exit code 1 if something is slower than it must be"),
            ("--pairs N", "interleaved pairs of a measurement; 5 if not given"),
            ("--only PART", "only parts whose name contains PART, or is NAME with =NAME, as [PART] says"),
            DIST,
            ("--htsim FILE", "program htsim_uec of uet-htsim, to compare the simulator with"),
        ],
        more: "Measures what this machine can do: close other programs first.\n",
    },
    Command {
        name: "dist",
        what: "the relocatable tree in target/dist",
        synopsis: "[OPTIONS]",
        options: &[
            ("--out DIR", "put the tree in DIR"),
            ("--lib-only", "only the libraries, without the command"),
            ("--lines", "leave in the library which line is where, for profilers"),
        ],
        more: "",
    },
    Command {
        name: "tidy",
        what: "house rules: dependencies, no_std, file lengths, names",
        synopsis: "",
        options: &[],
        more: "Exit code 1 if there are findings.\n",
    },
    Command {
        name: "fabric",
        what: "build and measure the test network; remove leftovers",
        synopsis: "show | clean [--all]",
        options: &[("--all", "with clean: networks of runs that are still alive, too")],
        more: "",
    },
];

/// The command of that name.
pub fn command(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

impl Command {
    /// Whether it has an option `--name`.
    pub fn takes(&self, name: &str) -> bool {
        let known = |option: &str| option.trim_start_matches("--").split(' ').next() == Some(name);
        self.options.iter().any(|(option, _)| known(option))
    }

    /// Its help.
    pub fn help(&self) -> String {
        let mut text = format!("cargo xtask {} {}", self.name, self.synopsis).trim_end().to_owned();
        // Writing to a String cannot fail.
        let _ = write!(text, "\n\n{}\n", capitalised(self.what));
        if !self.options.is_empty() {
            text.push_str("\nOptions:\n");
        }
        for (option, what) in self.options {
            let _ = writeln!(text, "  {option:<15} {what}");
        }
        if !self.more.is_empty() {
            let _ = write!(text, "\n{}", self.more);
        }
        text
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

/// Help of all commands.
pub fn overview() -> String {
    let mut text = "cargo xtask COMMAND\n\n".to_owned();
    for command in COMMANDS {
        let _ = writeln!(text, "  {:<8} {}", command.name, command.what);
    }
    text.push_str("\n`cargo xtask COMMAND --help` lists a command's options.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_help_that_names_its_options() {
        let all = overview();
        for command in COMMANDS {
            assert!(all.contains(&format!("\n  {} ", command.name)), "{}", command.name);
            let help = command.help();
            assert!(help.starts_with(&format!("cargo xtask {}", command.name)), "{help}");
            for (option, what) in command.options {
                assert!(help.contains(option) && help.contains(what), "{help}");
            }
        }
    }

    #[test]
    fn options_are_known_by_name_alone() {
        let bench =
            command("bench").map(|bench| ["json", "check", "htsim", "all", ""].map(|o| bench.takes(o)));
        assert_eq!(bench, Some([true, true, true, false, false]));
        assert!(command("fly").is_none());
    }
}
