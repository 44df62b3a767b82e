//! How a client reaches a device. Today there is one door: the device lives in the client's own
//! process ([`inproc`]). Sockets and virtual machines get their own.
//!
//! A door hands over rings and carries control calls. It must not know what libibverbs is, nor what
//! the device does with what lies in the rings.

pub mod inproc;
