//! Settings of a device, as plain values. Files and environment are read elsewhere.

use std::path::PathBuf;

use srdma_rnic::Order;
use srdma_seams::Faults;
use srdma_transport::SelectorKind;

/// Settings of one in-process device.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Paths per connection, 1–256.
    pub paths: u16,
    /// How the next path is chosen.
    pub selector: SelectorKind,
    /// How much reordering a program may see.
    pub order: Order,
    /// Seed of spraying and of `faults`; drawn from the system if not given.
    pub seed: Option<u64>,
    /// What is to go wrong on purpose. Times count from the first queue pair.
    pub faults: Faults,
    /// Write counters as JSON to this file when the process exits; `%p` becomes the process id.
    pub stats: Option<PathBuf>,
    /// Write every packet to this pcapng file; `%p` becomes the process id.
    pub trace: Option<PathBuf>,
    /// Answer with counters at a socket in this directory while the process runs; nowhere if not given.
    pub watch: Option<PathBuf>,
    /// Say on stderr why something optional could not be had.
    pub log: bool,
    /// Do not use segmentation offload.
    pub no_gso: bool,
    /// Bytes of receive socket buffer to ask for.
    pub receive_buffer_bytes: u32,
    /// No socket asks for more buffer than this, bytes, whether it sends or receives.
    pub socket_buffer_bytes_max: u32,
    /// Packets that travel together on one path, at most.
    pub unit_packets_max: u8,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            paths: 128,
            selector: SelectorKind::default(),
            order: Order::Default,
            seed: None,
            faults: Faults::default(),
            stats: None,
            trace: None,
            watch: None,
            log: false,
            no_gso: false,
            receive_buffer_bytes: 8 << 20,
            socket_buffer_bytes_max: u32::MAX,
            unit_packets_max: 64,
        }
    }
}

/// Replaces `%p` by the process id, so that client and server of one command line do not share a file.
pub fn for_this_process(path: &std::path::Path) -> PathBuf {
    let text = path.to_string_lossy();
    if text.contains("%p") {
        PathBuf::from(text.replace("%p", &std::process::id().to_string()))
    } else {
        path.to_path_buf()
    }
}
