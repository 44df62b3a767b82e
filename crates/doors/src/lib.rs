//! How a client reaches a device. There are two doors: the device lives in the client's own process ([`inproc`]), or in a
//! daemon behind a socket ([`socket`]). Virtual machines get their own.
//!
//! A door hands over rings and carries control calls; [`Door`] is any of them. It must not know what libibverbs is, nor what
//! the device does with what lies in the rings.

pub mod door;
pub mod inproc;
pub mod shape;
pub mod socket;

pub use door::{Door, DoorError, QpMade};
