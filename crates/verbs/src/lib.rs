//! libibverbs for programs that nobody here wrote: its C functions, on a Stellar device.
//!
//! Built as a static library, from which `cargo xtask dist` links `libibverbs.so.1` with the symbol
//! versions that programs ask for, and filter libraries for `librdmacm.so.1` and three more, whose
//! functions are stubs here. This room turns C structs into the calls of `srdma_client` and back.
//! It must not know how a device carries them out, and keeps no state that the device has too.
//!
//! Promises: nothing runs before the first call; any thread may call anything; a fault of ours is EIO
//! for the caller (and an error of the queue pair where one is at hand), never an abort; standard output
//! is the program's alone. Handles are pointers to objects whose C part comes first; null, freed and foreign ones are
//! refused, as far as `handles` can tell them.
//!
//! Read [`LAYOUTS`] and `abi_c` for the structs, `border` for how calls fail, `handles` for which objects exist, `context` for what an open
//! device is made of, then `qp`, `post`, `cq`. `symbols.txt` lists everything exported.
#![cfg(target_os = "linux")]

mod abi_c;
mod border;
mod channel;
mod context;
mod cq;
mod cq_ex;
mod device;
mod environment;
mod events;
mod handles;
mod memory;
mod post;
mod qp;
mod qp_ex;
mod query;
mod stubs;
mod text;

pub use abi_c::{Layout, LAYOUTS};
