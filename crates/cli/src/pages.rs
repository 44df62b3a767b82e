//! What is written from the definitions of the arguments: completions for shells, and manual pages.

use crate::print::{complain, out};
use crate::Arguments;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code when pages could not be written.
const FAILED: u8 = 1;

/// `srdma completions`: its options.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  srdma completions bash > ~/.local/share/bash-completion/completions/srdma\n  \
                  srdma completions fish > ~/.config/fish/completions/srdma.fish\n  \
                  srdma completions zsh > \"${fpath[1]}/_srdma\""
)]
pub struct CompletionsCommand {
    /// Shell to complete for
    shell: Shell,
}

/// Carries out `srdma completions`.
pub fn completions(command: &CompletionsCommand) -> ExitCode {
    out(&String::from_utf8_lossy(&completion(command.shell)));
    ExitCode::SUCCESS
}

fn completion(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "srdma", &mut script);
    script
}

/// `srdma pages`: its options. For those who package: hidden from the list of commands.
#[derive(Args)]
pub struct PagesCommand {
    /// A `share` directory: man/man1 and completions for all shells are put in it
    directory: PathBuf,
}

/// Carries out `srdma pages`.
pub fn pages(command: &PagesCommand) -> ExitCode {
    match write_all(&command.directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format_args!("cannot write to {}: {error}", command.directory.display()));
            ExitCode::from(FAILED)
        }
    }
}

fn write_all(share: &Path) -> io::Result<()> {
    let manuals = share.join("man/man1");
    std::fs::create_dir_all(&manuals)?;
    for (name, page) in manual()? {
        std::fs::write(manuals.join(name), page)?;
    }
    for (shell, file) in [
        (Shell::Bash, "bash-completion/completions/srdma"),
        (Shell::Zsh, "zsh/site-functions/_srdma"),
        (Shell::Fish, "fish/vendor_completions.d/srdma.fish"),
    ] {
        let file = share.join(file);
        std::fs::create_dir_all(file.parent().unwrap_or(share))?;
        std::fs::write(file, completion(shell))?;
    }
    Ok(())
}

/// File name and text of each manual page: one for the command, one for each command of it that is not hidden.
fn manual() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    let mut pages = vec![("srdma.1".to_owned(), page(root.clone())?)];
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("srdma-{}", command.get_name());
        // The page is found by its name, so the name is what stands at its head.
        let full: &'static str = name.clone().leak();
        pages.push((format!("{name}.1"), page(command.clone().name(full))?));
    }
    Ok(pages)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).manual("Stellar").render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::ValueEnum;

    fn commands() -> Vec<String> {
        let root = Arguments::command();
        let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
        shown.map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn every_command_has_a_page_that_lists_its_options() {
        let pages = manual().unwrap();
        let text = |name: &str| {
            let page = &pages.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("no {name}")).1;
            String::from_utf8(page.clone()).unwrap().replace("\\-", "-")
        };
        assert!(commands().len() >= 5);
        for name in commands() {
            assert!(text("srdma.1").contains(&format!("srdma-{name}(1)")), "{name}");
            assert!(text(&format!("srdma-{name}.1")).contains(&format!("srdma-{name}")), "{name}");
        }
        for option in ["--paths", "--selector", "--loss", "SRDMA_PATHS", "The exit code is the program"] {
            assert!(text("srdma-run.1").contains(option), "{option}:\n{}", text("srdma-run.1"));
        }
        assert!(pages.iter().all(|(name, _)| name != "srdma-pages.1"), "a hidden command is not shown");
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(completion(*shell)).unwrap();
            for name in commands() {
                assert!(script.contains(&name), "{shell} does not know {name}");
            }
        }
    }

    #[test]
    fn a_share_directory_gets_pages_and_completions() {
        let share = std::env::temp_dir().join(format!("srdma-pages-{}", std::process::id()));
        write_all(&share).unwrap();
        for file in ["man/man1/srdma.1", "man/man1/srdma-run.1", "zsh/site-functions/_srdma"] {
            assert!(share.join(file).metadata().unwrap().len() > 100, "{file}");
        }
        std::fs::remove_dir_all(&share).unwrap();
    }
}
