//! When a copy goes to a dead path: counted in units, so that copies are a share of the traffic, and a clock is not needed.

/// Units between two copies, as powers of two: after a path came back, which others may have done, too; after a loss; and
/// at most.
const GAP_BACK: u8 = 2;
const GAP_LOSS: u8 = 5;
const GAP_MAX: u8 = 9;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// Units until the next; zero while no path is dead. Then what it began with, as a power of two.
    left: u16,
    gap: u8,
}

impl Probes {
    /// A unit leaves. Whether a copy is due instead.
    pub fn are_due(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.gap = (self.gap + 1).min(GAP_MAX);
        self.left = 1 << self.gap;
        true
    }

    /// A path died, or `came_back`, and so many are dead now.
    pub fn news(&mut self, came_back: bool, dead: u16) {
        self.gap = if came_back { GAP_BACK } else { GAP_LOSS };
        let soon = 1 << self.gap;
        self.left = match dead {
            0 => 0,
            _ if self.left == 0 => soon,
            _ => self.left.min(soon),
        };
    }
}
