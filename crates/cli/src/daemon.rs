//! `srdma daemon`: the RNIC of this host as a process of its own, for virtual devices.

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use srdma_daemon::{Saved, Store, StoreError};
use srdma_doors::socket::server::Keeper;
use srdma_doors::socket::{Server, ServerError};
use srdma_vstellar::host::Change;

use crate::environment::inherited;
use crate::options::{NicOptions, OptionError};
use crate::print::complain;
use crate::USAGE;

/// Names the daemon's directory, for it and for whoever looks for it.
pub const DIRECTORY: &str = "SRDMA_DAEMON";

/// Where the daemon is.
#[derive(Args, Clone, Debug, Default)]
pub struct At {
    /// The daemon's directory [default: /run/srdma, or srdma-daemon in $XDG_RUNTIME_DIR for other users than root]
    /// [env: SRDMA_DAEMON]
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
}

impl At {
    /// The directory, absolute.
    pub fn directory(&self) -> PathBuf {
        let named = self
            .at
            .clone()
            .or_else(|| inherited(DIRECTORY).filter(|text| !text.is_empty()).map(PathBuf::from));
        let directory = named.unwrap_or_else(usual);
        // Only a lost working directory has no absolute form.
        std::path::absolute(&directory).unwrap_or(directory)
    }
}

fn usual() -> PathBuf {
    // SAFETY: no preconditions, cannot fail.
    let user = unsafe { libc::geteuid() };
    match inherited("XDG_RUNTIME_DIR").filter(|text| text.starts_with('/')) {
        _ if user == 0 => "/run/srdma".into(),
        Some(runtime) => Path::new(&runtime).join("srdma-daemon"),
        None => format!("/tmp/srdma-daemon-{user}").into(),
    }
}

/// `srdma daemon`: its options.
#[derive(Args)]
#[command(after_help = "Ends on SIGTERM or SIGINT; attached programs are told (IBV_EVENT_DEVICE_FATAL).\n\n\
                        Examples:\n  srdma daemon\n  srdma vdev create --name a && srdma run --vdev a -- ib_write_bw")]
pub struct DaemonCommand {
    #[command(flatten)]
    at: At,

    /// Keep definitions of devices and tenants in this file, across restarts [default: none are kept]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,

    #[command(flatten)]
    nic: NicOptions,
}

/// Why the daemon does not serve.
#[derive(Debug, thiserror::Error)]
enum DaemonError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("no usable address: this host has no interface that is up with a routable address; --addr names another")]
    NoAddress,
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
}

/// The address that a program would get without `--addr`.
fn address(command: &DaemonCommand) -> Result<IpAddr, DaemonError> {
    let asked = inherited("SRDMA_ADDR").and_then(|text| text.parse().ok());
    if let Some(address) = command.nic.addr.or(asked) {
        return Ok(address);
    }
    let system = |source| DaemonError::System { what: "Listing the addresses of this host".into(), source };
    let list = srdma_probe::address::usable().map_err(system)?;
    list.first().map(|found| found.ip).ok_or(DaemonError::NoAddress)
}

/// A descriptor that can be read once somebody wants us to end; the signals do nothing else from here on.
fn stop_signals() -> io::Result<OwnedFd> {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by the first call and lives through the others; the result is checked before it
    // is owned.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
        let fd = libc::signalfd(-1, signals.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Defines what was kept; what cannot be is named, and stays in the store.
fn restore(server: &mut Server, saved: &Saved) {
    let tenants = saved.tenants.iter().map(|tenant| (tenant.tenant, Change::Tenant(*tenant)));
    let devices = saved.devices.iter().map(|device| (device.name, Change::Device(*device)));
    for (name, change) in tenants.chain(devices) {
        if let Err(text) = server.restore(&change) {
            eprintln!("srdma: {name} is not restored: {text}");
        }
    }
    for name in &saved.unread {
        eprintln!("srdma: {name} is not restored: it was stored by another version");
    }
}

fn serve(command: &DaemonCommand) -> Result<(), DaemonError> {
    command.nic.variables()?;
    let options = command.nic.settings(&inherited)?;
    let stats = options.stats.clone();
    let system = |what: &str| {
        let what = what.to_owned();
        move |source| DaemonError::System { what, source }
    };
    let stop = stop_signals().map_err(system("signalfd"))?;
    let (address, directory) = (address(command)?, command.at.directory());
    let (store, saved) = match &command.store {
        Some(path) => {
            let store = Store::open(path)?;
            let saved = store.load()?;
            (Some(Box::new(store) as Box<dyn Keeper>), saved)
        }
        None => (None, Saved::default()),
    };
    let mut server = Server::open(address, &directory, options, store)?;
    restore(&mut server, &saved);
    let port = server.slot_port().unwrap_or(0);
    eprintln!("srdma: serves {address} (UDP port {port}) at {}", directory.display());
    server.run(stop.as_fd())?;
    if let Some(path) = stats {
        let path = srdma_client::for_this_process(&path);
        let what = format!("Writing {}", path.display());
        std::fs::write(&path, server.report()).map_err(system(&what))?;
    }
    Ok(())
}

/// Carries out `srdma daemon`.
pub fn daemon(command: &DaemonCommand) -> ExitCode {
    match serve(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(if matches!(error, DaemonError::Option(_)) { USAGE } else { 1 })
        }
    }
}
