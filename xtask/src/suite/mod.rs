//! The list of tests and how it is worked through.
//!
//! Steps that need only cargo come first, one after the other, because the later ones use what they build
//! and because a user namespace (see `ground`) cuts the process off from package registries. Steps that run
//! real programs each make a network of their own, so `--jobs` may run several at once.

mod attack;
mod chaos;
mod checks;
pub mod compat;
mod data;
mod faults;
mod matrix;
mod paths;
mod processes;
mod vdev;
mod verbs;
mod watching;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};

use crate::packages::{BUILD, CAPTURE, FABRIC, FUZZ, HEADERS, PROGRAMS};
use crate::programs::Launcher;
use crate::{ground, packages, report};
pub use paths::wait_for_bytes;

/// How thorough to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Every combination, more seeds, more time.
    pub soak: bool,
    /// Only steps whose name contains this.
    pub only: Option<String>,
    /// Only name the steps.
    pub list: bool,
    /// Networks at once.
    pub jobs: usize,
    /// The tree to test, already built; `None` builds it.
    pub dist: Option<PathBuf>,
    /// Only steps that run other people's programs; what they did becomes the table of `COMPAT.md`.
    pub write_compat: bool,
}

/// What a step has at hand.
pub struct Setting<'a> {
    /// See [`Options::soak`].
    pub soak: bool,
    launcher: Option<&'a Launcher>,
}

impl Setting<'_> {
    /// The built tree; steps that run programs need it.
    pub fn launcher(&self) -> Result<&Launcher> {
        match self.launcher {
            Some(launcher) => Ok(launcher),
            None => bail!("there is no target/dist to test"),
        }
    }
}

/// What a step does; what it says on success goes into its line.
type Work = Box<dyn Fn(&Setting<'_>) -> Result<String> + Send + Sync>;

/// A test.
pub struct Step {
    name: String,
    run: Work,
    case: Option<compat::Case>,
}

impl Step {
    /// Named `area/what`.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn(&Setting<'_>) -> Result<String> + Send + Sync + 'static,
    ) -> Step {
        Step { name: name.into(), run: Box::new(run), case: None }
    }

    /// It shows whether a program of somebody else's runs.
    pub fn covering(mut self, case: compat::Case) -> Step {
        self.case = Some(case);
        self
    }
}

struct Line {
    name: String,
    case: Option<compat::Case>,
    took: Duration,
    result: Result<String>,
}

/// Where cargo puts what it builds.
pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// The checkout.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The tree at `given`, or else one built now.
pub fn built_tree(given: Option<PathBuf>) -> Result<PathBuf> {
    given.map_or_else(|| checks::dist_tree(false), Ok)
}

/// Works through the list; true if everything passed.
pub fn run(options: &Options) -> Result<bool> {
    let (cargo, real) = chosen(options)?;
    if options.list {
        cargo.iter().chain(&real).for_each(|step| report::plain(&step.name));
        return Ok(true);
    }
    if cargo.is_empty() && real.is_empty() {
        bail!("no step has {:?} in its name; `--list` shows all", options.only.as_deref().unwrap_or(""));
    }
    let needs: &[&[packages::Need]] = match real.is_empty() {
        true => &[BUILD, FUZZ],
        false => &[BUILD, FUZZ, FABRIC, PROGRAMS, HEADERS, CAPTURE],
    };
    packages::ensure(needs)?;

    let total = cargo.len() + real.len();
    let mut lines = Vec::new();
    for step in &cargo {
        announce(step, lines.len() + 1, total);
        lines.push(perform(step, &Setting { soak: options.soak, launcher: None }));
    }
    if !real.is_empty() {
        // Last moment with the outside network: the tree must be there before the ground is chosen.
        let dist = match &options.dist {
            Some(dist) => dist.clone(),
            None => checks::dist_tree(cargo.iter().any(|step| step.name == checks::DIST))?,
        };
        let launcher = Launcher::new(&dist);
        ground::stand();
        if let Err(error) = &launcher {
            report::note(&format!("{error:#}"));
        }
        let setting = Setting { soak: options.soak, launcher: launcher.as_ref().ok() };
        lines.extend(perform_all(&real, &setting, options.jobs.max(1), lines.len(), total));
    }
    let passed = summarise(&lines);
    if options.write_compat {
        let outcomes = lines.iter().filter_map(|line| Some((line.case.as_ref()?, line.result.is_ok())));
        report::say(&format!("written to {}", compat::write(outcomes)?.display()));
    }
    Ok(passed)
}

/// The steps that are wanted: those that need only cargo, and those that run programs in networks.
fn chosen(options: &Options) -> Result<(Vec<Step>, Vec<Step>)> {
    ensure!(!options.write_compat || options.only.is_none(), "--write-compat chooses the steps itself");
    let wanted = |step: &Step| {
        let named = options.only.as_deref().is_none_or(|word| match word.strip_prefix('=') {
            Some(whole) => step.name == whole,
            None => step.name.contains(word),
        });
        named && (step.case.is_some() || !options.write_compat)
    };
    let cargo = checks::steps(options.soak).into_iter().chain(attack::steps());
    let real = real_steps(options.soak)?.into_iter();
    Ok((cargo.filter(wanted).collect(), real.filter(wanted).collect()))
}

/// Steps that run programs in networks.
pub fn real_steps(soak: bool) -> Result<Vec<Step>> {
    let mut steps = verbs::steps();
    steps.extend(matrix::steps(soak)?);
    steps.extend(paths::steps());
    steps.extend(faults::steps(soak));
    steps.extend(processes::steps(soak));
    steps.extend(data::steps());
    steps.extend(chaos::steps());
    steps.extend(watching::steps());
    steps.extend(vdev::steps());
    Ok(steps)
}

fn announce(step: &Step, number: usize, total: usize) {
    report::say(&format!("{} {}", report::faint(&format!("{number:3}/{total}")), step.name));
}

fn perform(step: &Step, setting: &Setting<'_>) -> Line {
    let start = Instant::now();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (step.run)(setting)))
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the step itself panicked")));
    let took = start.elapsed();
    let seconds = took.as_secs_f64();
    match &result {
        Ok(remark) => report::say(&format!("    {} {seconds:.1} s  {remark}", report::good("ok"))),
        Err(error) => {
            report::say(&format!("    {} {} {seconds:.1} s\n{error:#}", report::bad("FAILED"), step.name))
        }
    }
    Line { name: step.name.clone(), case: step.case.clone(), took, result }
}

fn perform_all(steps: &[Step], setting: &Setting<'_>, jobs: usize, done: usize, total: usize) -> Vec<Line> {
    let queue: Mutex<VecDeque<(usize, &Step)>> = Mutex::new(steps.iter().enumerate().collect());
    let lines: Mutex<Vec<(usize, Line)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(steps.len()) {
            scope.spawn(|| loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some((index, step)) = next else { break };
                announce(step, done + index + 1, total);
                let line = perform(step, setting);
                lines.lock().unwrap_or_else(PoisonError::into_inner).push((index, line));
            });
        }
    });
    let mut lines = lines.into_inner().unwrap_or_else(PoisonError::into_inner);
    lines.sort_by_key(|(index, _)| *index);
    lines.into_iter().map(|(_, line)| line).collect()
}

fn summarise(lines: &[Line]) -> bool {
    report::plain("");
    let mut table = report::Table::new(&["step", "seconds", "result"]);
    for line in lines {
        let result = if line.result.is_ok() { report::good("passed") } else { report::bad("FAILED") };
        table.row(&[line.name.clone(), format!("{:.1}", line.took.as_secs_f64()), result]);
    }
    table.print();
    let failed: Vec<&Line> = lines.iter().filter(|line| line.result.is_err()).collect();
    for line in &failed {
        if let Err(error) = &line.result {
            let text = format!("{error:#}");
            let first = text.lines().next().unwrap_or("");
            report::plain(&format!("{} {}: {first}", report::bad("FAILED"), line.name));
        }
    }
    let took = report::elapsed().as_secs_f64();
    report::plain(&format!("\n{} passed, {} failed ({took:.0} s)", lines.len() - failed.len(), failed.len()));
    failed.is_empty()
}
