//! How devices behave towards the programs that use them: through the client's calls, over real sockets
//! on loopback addresses, in this process and in others.
#![allow(clippy::unwrap_used)]

mod ground;

mod crowd;
mod death;
mod descriptors;
mod errors;
mod events;
mod faults;
mod forks;
mod operations;
mod receivers;
mod refusals;
mod slots;
mod strangers;
mod vanishing;
mod virtual_devices;
mod watching;
