//! Tests that need processes of their own: the test binary starts itself again with one test and a part.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const PART: &str = "SRDMA_TEST_PART";
/// Marks what a part says among what the test framework prints.
const MARK: &str = "@@ ";
/// A part that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(40);

/// Name of the test that contains this, as the test framework knows it.
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::ground::part::name_of(here)
    }};
}
pub(crate) use this_test;

pub fn name_of<T>(_: T) -> &'static str {
    let name = std::any::type_name::<T>();
    let name = name.strip_suffix("::here").unwrap_or(name);
    name.split_once("::").map_or(name, |(_, rest)| rest)
}

/// The part that this process plays, with its arguments; `None` in the process that runs the tests.
pub fn part() -> Option<Vec<String>> {
    let text = std::env::var(PART).ok()?;
    Some(text.split(' ').map(str::to_owned).collect())
}

/// Says a line to the process that started this one.
pub fn say(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{text}").unwrap();
    out.flush().unwrap();
}

/// The next line from the process that started this one. Ends this process if that one is gone.
pub fn hear() -> String {
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(3);
    }
    line.trim_end().to_owned()
}

/// Runs `body` in a process where no other test runs.
pub fn alone(test: &str, body: impl FnOnce()) {
    if part().is_some() {
        return body();
    }
    let (status, log) = Part::start(test, "alone").finish();
    assert!(status.success() && log.contains("1 passed"), "{test}: {status}\n{log}");
}

/// A process that plays a part. Killed on drop.
pub struct Part {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: String,
}

impl Part {
    /// Starts `test` in a new process as `part`.
    pub fn start(test: &str, part: &str) -> Part {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let forward = |from: Box<dyn std::io::Read + Send>| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(from).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        };
        forward(Box::new(out));
        forward(Box::new(err));
        let input = child.stdin.take();
        Part { child, input, lines, log: String::new() }
    }

    pub fn say(&mut self, text: impl std::fmt::Display) {
        let input = self.input.as_mut().unwrap();
        // A part that has ended is noticed by what it does not say.
        let _ = writeln!(input, "{text}");
        let _ = input.flush();
    }

    /// The next line that the part says.
    pub fn hear(&mut self) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.log += &line;
                    self.log.push('\n');
                    if let Some(said) = line.strip_prefix(MARK) {
                        return said.to_owned();
                    }
                }
                Err(error) => panic!("the part says nothing: {error}\n{}", self.log),
            }
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end; how it ended, and everything it printed.
    pub fn finish(mut self) -> (ExitStatus, String) {
        self.input = None;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.log += &format!("{line}\n"),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.kill();
                    self.log += "(killed: it did not end)\n";
                }
            }
        }
        (self.child.wait().unwrap(), std::mem::take(&mut self.log))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Best effort: it may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
