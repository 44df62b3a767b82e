//! Running a program: inside a namespace, with a time limit, its output captured and, if wanted, shown live.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::fabric::Host;
use crate::{interrupt, report};

/// A program about to be started.
pub struct Program {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Option<String>,
    namespace: Option<String>,
    limit: Duration,
    shown_as: Option<String>,
    directory: Option<std::path::PathBuf>,
}

/// How it went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The command line, for messages.
    pub line: String,
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// We killed it because its time was up.
    pub timed_out: bool,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// From start to end.
    pub wall: Duration,
    /// User plus system time of it and the children it waited for.
    pub cpu: Duration,
    /// Most memory that any of them had at once.
    pub memory_bytes: u64,
}

impl Program {
    /// `name` as found on PATH, or a path.
    pub fn new(name: impl AsRef<OsStr>) -> Program {
        Program {
            argv: vec![name.as_ref().to_owned()],
            env: Vec::new(),
            stdin: None,
            namespace: None,
            limit: Duration::from_secs(60),
            shown_as: None,
            directory: None,
        }
    }

    /// Runs it in `directory`.
    pub fn in_directory(mut self, directory: &Path) -> Program {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Program {
        self.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Feeds `text` to its standard input.
    pub fn stdin(mut self, text: impl Into<String>) -> Program {
        self.stdin = Some(text.into());
        self
    }

    /// Runs it on `host`.
    pub fn on(mut self, host: &Host) -> Program {
        self.namespace = host.namespace.clone();
        self
    }

    /// Kills it after this long.
    pub fn limit(mut self, limit: Duration) -> Program {
        self.limit = limit;
        self
    }

    /// Shows its output live, each line after `prefix`.
    pub fn shown_as(mut self, prefix: &str) -> Program {
        self.shown_as = Some(prefix.to_owned());
        self
    }

    fn line(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// Starts it.
    pub fn start(self) -> Result<Running> {
        let line = self.line();
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).process_group(0);
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        for (name, value) in &self.env {
            command.env(name, value);
        }
        let namespace = match &self.namespace {
            Some(name) => {
                let path = Path::new("/run/netns").join(name);
                Some(File::open(&path).with_context(|| format!("cannot open {}", path.display()))?)
            }
            None => None,
        };
        // SAFETY: the closure only makes system calls on descriptors and static strings; it allocates nothing.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                match &namespace {
                    Some(file) => enter_as_a_host(file.as_raw_fd()),
                    None => Ok(()),
                }
            });
        }
        let started = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", self.argv[0].display()))?;
        let pid = child.id() as i32;
        interrupt::add_group(pid);
        if let (Some(text), Some(mut pipe)) = (self.stdin, child.stdin.take()) {
            std::thread::spawn(move || pipe.write_all(text.as_bytes()));
        }
        let stdout = child.stdout.take().map(|pipe| collect(pipe, self.shown_as.clone()));
        let stderr = child.stderr.take().map(|pipe| collect(pipe, self.shown_as.clone()));
        Ok(Running { line, pid, started, limit: self.limit, stdout, stderr, ended: None })
    }

    /// Runs it to its end.
    pub fn run(self) -> Result<Outcome> {
        self.start()?.wait()
    }

    /// Runs it and fails, with what it said, unless it exits with 0.
    pub fn success(self) -> Result<Outcome> {
        self.run()?.success()
    }
}

/// In the child: joins the network namespace and sees that namespace's /sys, as `ip netns exec` does.
fn enter_as_a_host(namespace_fd: i32) -> std::io::Result<()> {
    // SAFETY: plain system calls with static strings.
    unsafe {
        if libc::setns(namespace_fd, libc::CLONE_NEWNET) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // Without the mounts everything but /sys/class/net is right, so a refusal is not an error.
        if libc::unshare(libc::CLONE_NEWNS) == 0 {
            let none = std::ptr::null();
            libc::mount(none, c"/".as_ptr(), none, libc::MS_SLAVE | libc::MS_REC, none.cast());
            libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, none.cast());
        }
    }
    Ok(())
}

struct Collected {
    text: Arc<Mutex<String>>,
    thread: JoinHandle<()>,
}

fn collect(pipe: impl Read + Send + 'static, shown_as: Option<String>) -> Collected {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    let thread = std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let words = String::from_utf8_lossy(&line);
            if let Some(prefix) = &shown_as {
                report::say(&format!("{prefix} {}", words.trim_end()));
            }
            sink.lock().unwrap_or_else(PoisonError::into_inner).push_str(&words);
            line.clear();
        }
    });
    Collected { text, thread }
}

/// A program that runs. Dropping it kills it.
pub struct Running {
    line: String,
    /// Its process, leader of its own group.
    pub pid: i32,
    started: Instant,
    limit: Duration,
    stdout: Option<Collected>,
    stderr: Option<Collected>,
    ended: Option<(i32, libc::rusage)>,
}

impl Running {
    /// Whether it has ended, without waiting.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            let mut status = 0;
            // SAFETY: rusage is plain data for which zeros are valid.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: both pointers are to locals; the pid is our own child, not yet waited for.
            let got = unsafe { libc::wait4(self.pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
            if got == self.pid {
                self.ended = Some((status, usage));
                interrupt::remove_group(self.pid);
            }
        }
        self.ended.is_some()
    }

    /// Sends `signal` to its group.
    pub fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: no memory effects; the group is ours and its leader not yet waited for.
            unsafe { libc::kill(-self.pid, signal) };
        }
    }

    /// Waits for its end, killing it when its time is up.
    pub fn wait(mut self) -> Result<Outcome> {
        let mut timed_out = false;
        let mut pause = Duration::from_micros(200);
        while !self.has_ended() {
            if !timed_out && self.started.elapsed() > self.limit {
                timed_out = true;
                self.signal(libc::SIGKILL);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        let wall = self.started.elapsed();
        // Grandchildren may hold the pipes open; they are in the group.
        // SAFETY: the group may be empty by now, then nothing happens.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        let take = |collected: Option<Collected>| {
            let Some(Collected { text, thread }) = collected else { return String::new() };
            let _ = thread.join();
            let text = text.lock().unwrap_or_else(PoisonError::into_inner);
            text.clone()
        };
        let (stdout, stderr) = (take(self.stdout.take()), take(self.stderr.take()));
        let Some((status, usage)) = self.ended else { bail!("{} was not waited for", self.line) };
        let span = |t: libc::timeval| Duration::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
        Ok(Outcome {
            line: self.line.clone(),
            code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
            timed_out,
            stdout,
            stderr,
            wall,
            cpu: span(usage.ru_utime) + span(usage.ru_stime),
            memory_bytes: usage.ru_maxrss as u64 * 1024,
        })
    }

    /// Waits for its end, but only for `patience` from now.
    pub fn let_end(mut self, patience: Duration) -> Result<Outcome> {
        self.limit = self.limit.min(self.started.elapsed() + patience);
        self.wait()
    }

    /// Stops it politely (SIGINT), then by force after `patience`.
    pub fn stop(mut self, patience: Duration) -> Result<Outcome> {
        self.signal(libc::SIGINT);
        self.limit = self.started.elapsed() + patience;
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(libc::SIGKILL);
            while !self.has_ended() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Outcome {
    /// Itself if the program exited with 0, otherwise an error with its last lines.
    pub fn success(self) -> Result<Outcome> {
        if self.code == Some(0) {
            return Ok(self);
        }
        bail!("{}", self.story())
    }

    /// How it ended, in words that follow its name.
    pub fn end(&self) -> String {
        match (self.timed_out, self.code, self.signal) {
            (true, ..) => format!("did not end within {:.0?} and was killed", self.wall),
            (_, Some(code), _) => format!("exited with {code}"),
            (_, _, Some(signal)) => format!("was ended by signal {signal}"),
            _ => "ended in an unknown way".to_owned(),
        }
    }

    /// How it ended and what it said last, for a person.
    pub fn story(&self) -> String {
        let mut story = format!("`{}` {}", self.line, self.end());
        for text in [&self.stdout, &self.stderr] {
            let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            for line in &lines[lines.len().saturating_sub(12)..] {
                story.push_str("\n    | ");
                story.push_str(line);
            }
        }
        story
    }
}

/// Where `name` is on PATH (system directories of root included, which a user's PATH may lack).
pub fn find(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(Into::into));
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}
