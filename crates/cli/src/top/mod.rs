//! `srdma top`: the running queue pairs on a terminal, busiest first.
//!
//! One thread asks the processes, this one draws and reads keys: a process that is slow to answer does not
//! hold up the keys. Read [`state`] (what is shown, what keys do), [`draw`].

mod draw;
mod state;

use crate::print::complain;
use crate::stats::attach;
use crate::stats::sample::{Sample, Sampler, Wanted};
use crate::USAGE;
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::DefaultTerminal;
use state::{Answer, State};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Between two samples to begin with.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for a key before looking whether a sample has come.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// `srdma top`: its options.
#[derive(Args)]
#[command(after_help = "Keys are shown on the last line. For a file or a pipe: srdma stats --watch")]
pub struct TopCommand {
    /// Only these processes [default: all of this user; of root: all]
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
}

/// Carries out `srdma top`.
pub fn top(command: &TopCommand) -> ExitCode {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        complain(&"top needs a terminal; for a file or a pipe there is `srdma stats --watch`");
        return ExitCode::from(USAGE);
    }
    let mut terminal = match ratatui::try_init() {
        Ok(terminal) => terminal,
        Err(error) => {
            complain(&format!("this terminal cannot be used: {error}; there is `srdma stats --watch`"));
            return ExitCode::from(1);
        }
    };
    let result = run(&mut terminal, command);
    ratatui::restore();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(1)
        }
    }
}

fn run(terminal: &mut DefaultTerminal, command: &TopCommand) -> io::Result<()> {
    let (questions, asked) = mpsc::channel();
    let (answers, samples) = mpsc::channel();
    std::thread::Builder::new().name("sampler".into()).spawn(move || take_samples(&asked, &answers))?;
    let mut state = State::new(INTERVAL);
    let ask = |state: &State| {
        let wanted = Wanted { pids: command.pids.clone(), selected: state.selection(), ..Wanted::default() };
        // The other end lives as long as this one.
        let _ = questions.send((wanted, state.interval));
    };
    ask(&state);
    loop {
        terminal.draw(|frame| draw::draw(frame, &state))?;
        while event::poll(KEY_WAIT)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    if state.press(key) == Answer::Quit {
                        return Ok(());
                    }
                    ask(&state);
                    break;
                }
                Event::Resize(..) => break,
                _ => {}
            }
        }
        while let Ok(sample) = samples.try_recv() {
            state.show(&sample);
            ask(&state);
        }
    }
}

/// Takes a sample at each interval; what is wanted, and how often, may change in between.
fn take_samples(asked: &Receiver<(Wanted, Duration)>, answers: &Sender<Sample>) {
    let mut sampler = Sampler::new(attach::directories());
    let Ok((mut wanted, mut interval)) = asked.recv() else { return };
    loop {
        if answers.send(sampler.take(&wanted)).is_err() {
            return;
        }
        let next = std::time::Instant::now() + interval;
        loop {
            match asked.recv_timeout(next.saturating_duration_since(std::time::Instant::now())) {
                Ok(newer) => (wanted, interval) = newer,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
