//! Addresses of this machine.
