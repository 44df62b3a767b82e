//! Every path once per cycle, in an order drawn anew for each, in five bytes: steps of one length, which shares no factor
//! with the number of paths, from a random path on.

use srdma_seams::Rng;

/// See the module.
#[derive(Debug)]
pub(super) struct Turns {
    last: u8,
    at: u8,
    stride: u8,
    left: u8,
    /// Counts cycles.
    pub cycle: u8,
}

impl Turns {
    /// Over `paths` paths, 1–256.
    pub fn new(paths: u16) -> Turns {
        Turns { last: (paths - 1) as u8, at: 0, stride: 1, left: 0, cycle: 0 }
    }

    /// Number of paths.
    pub fn count(&self) -> u16 {
        u16::from(self.last) + 1
    }

    /// The path whose turn is next.
    pub fn next(&mut self, rng: &mut Rng) -> u8 {
        if self.left == 0 {
            self.begin(rng);
        } else {
            self.left -= 1;
            let next = u16::from(self.at) + u16::from(self.stride);
            self.at = (if next >= self.count() { next - self.count() } else { next }) as u8;
        }
        self.at
    }

    fn begin(&mut self, rng: &mut Rng) {
        self.at = rng.below(self.count().into()) as u8;
        self.left = self.last;
        self.cycle = self.cycle.wrapping_add(1);
        loop {
            self.stride = 1 + rng.below(u64::from(self.last).max(1)) as u8;
            if gcd(self.stride.into(), self.count()) == 1 {
                return;
            }
        }
    }
}

fn gcd(a: u16, b: u16) -> u16 {
    if a == 0 {
        b
    } else {
        gcd(b % a, a)
    }
}
