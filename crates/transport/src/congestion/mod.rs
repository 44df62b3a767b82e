//! The policy seam: how much may be in flight. One window for all paths of a peer, unless an ablation asks for one each
//! ([`PathWindows`]).
//!
//! A controller is a file with a type that has `new(initial, packet, max, target)` and implements [`Congestion`], its
//! `mod`, and a line in the table at the end of this file; from there it has its name in scenarios.

pub mod delay_window;
pub mod nscc;
mod per_path;
mod round;
pub mod swift;
mod window;

use srdma_seams::{Duration, Now};

pub(crate) use per_path::PathWindows;

/// What an acknowledgement says about the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Window bytes newly delivered.
    pub acked_bytes: u64,
    /// Queueing delay, smoothed over all paths.
    pub delay: Duration,
    /// Queueing delay of the newest unit that is reported; that of `delay` if none is.
    pub newest_delay: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Packets reported, and how many of them carried a congestion mark.
    pub packets: u32,
    /// See `packets`.
    pub ce: u32,
    /// The window, not the program or the receiver, limited what was in flight.
    pub limited: bool,
}

/// Decides the congestion window.
pub trait Congestion {
    /// Bytes that may be in flight, headers and overhead included.
    fn window_bytes(&self) -> u64;
    /// A full packet costs `bytes` of the window from now on.
    fn set_packet(&mut self, bytes: u64);
    /// An acknowledgement came.
    fn on_ack(&mut self, now: Now, sample: &Sample);
    /// Packets are held lost.
    fn on_loss(&mut self, now: Now, packets: u32);
    /// The retransmission time-out fired.
    fn on_timeout(&mut self, now: Now);
    /// A loss or time-out turned out to be none: what it did to the window is undone.
    fn undo(&mut self, now: Now);
}

/// Makes the table of controllers a type of their names, [`CongestionKind`], and one that is any of them,
/// [`Controller`]: a call is a jump by the kind, which is always the same, and no pointer is followed.
macro_rules! controllers {
    ($($(#[$about:meta])* $kind:ident, $name:literal, $controller:ty;)+) => {
        /// Which controller decides the window.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum CongestionKind {
            #[default]
            $($(#[$about])* $kind,)+
        }

        impl CongestionKind {
            /// All of them, by their names in scenarios.
            pub const ALL: &'static [(&'static str, CongestionKind)] =
                &[$(($name, CongestionKind::$kind)),+];
        }

        /// Any of the controllers.
        #[derive(Clone, Debug)]
        pub enum Controller {
            $($(#[$about])* $kind($controller),)+
        }

        impl Controller {
            /// Starts at `initial` bytes and stays below `max`; a full packet costs `packet` of them, and the network
            /// should queue for `target`.
            pub fn new(
                kind: CongestionKind,
                initial: u64,
                packet: u64,
                max: u64,
                target: Duration,
            ) -> Controller {
                match kind {
                    $(CongestionKind::$kind => {
                        Controller::$kind(<$controller>::new(initial, packet, max, target))
                    })+
                }
            }
        }

        impl Congestion for Controller {
            fn window_bytes(&self) -> u64 {
                match self { $(Controller::$kind(own) => own.window_bytes(),)+ }
            }

            fn set_packet(&mut self, bytes: u64) {
                match self { $(Controller::$kind(own) => own.set_packet(bytes),)+ }
            }

            fn on_ack(&mut self, now: Now, sample: &Sample) {
                match self { $(Controller::$kind(own) => own.on_ack(now, sample),)+ }
            }

            fn on_loss(&mut self, now: Now, packets: u32) {
                match self { $(Controller::$kind(own) => own.on_loss(now, packets),)+ }
            }

            fn on_timeout(&mut self, now: Now) {
                match self { $(Controller::$kind(own) => own.on_timeout(now),)+ }
            }

            fn undo(&mut self, now: Now) {
                match self { $(Controller::$kind(own) => own.undo(now),)+ }
            }
        }
    };
}

controllers! {
    /// Delay and marks by the round trip, rare loss ignored: the default.
    Delay, "delay", delay_window::DelayWindow;
    /// Swift, as published: delay alone, every loss a sign.
    Swift, "swift", swift::Swift;
    /// The network-signal controller of Ultra Ethernet: marks and delay by quadrant.
    Nscc, "nscc", nscc::Nscc;
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_seams::Rng;

    /// Whatever a network and a peer say, no controller panics, and a packet always fits.
    #[test]
    fn windows_stay_between_a_packet_and_the_most() {
        for (name, kind) in CongestionKind::ALL {
            for seed in 0..200 {
                let mut rng = Rng::stream(seed, name, 0);
                let (packet, max) = (1 + rng.below(1 << 16), 1 << rng.below(34));
                let target = Duration(1 << rng.below(30));
                let mut window = Controller::new(*kind, rng.below(1 << 30), packet, max, target);
                let mut now = Now(0);
                for _ in 0..500 {
                    let mut span = |bits| {
                        let most = 1 << rng.below(bits);
                        Duration(rng.below(most))
                    };
                    now += span(32);
                    let (rtt, delay, newest_delay) = (span(33), span(33), span(33));
                    let (packets, acked_bytes) = (rng.below(65) as u32, rng.below(1 << 26));
                    let (ce, limited) = (rng.below(u64::from(packets) + 1) as u32, rng.below(2) == 0);
                    let sample = Sample { acked_bytes, delay, newest_delay, rtt, packets, ce, limited };
                    match rng.below(8) {
                        0 => window.on_loss(now, packets),
                        1 => window.on_timeout(now),
                        2 => window.undo(now),
                        _ => window.on_ack(now, &sample),
                    }
                    let bytes = window.window_bytes();
                    assert!(bytes >= packet && bytes <= max.max(packet * 4), "{name}, seed {seed}: {bytes}");
                }
            }
        }
    }
}
