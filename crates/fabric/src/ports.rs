//! The ports of a host's RNIC, and by which of them a packet leaves.
//!
//! As on a NIC whose ports are bonded: the five-tuple is folded by exclusive or (the `layer3+4` policy of Linux's bonding
//! driver) and not mixed, so that source ports in a row take turns, and half of a connection's paths use each of two
//! ports exactly. A port whose link is down is not used as long as another is up: a NIC sees that of its own cable.

use crate::link::Link;
use crate::time::Time;

/// Ports of an RNIC, at most.
pub const PORTS_MAX: usize = 8;

/// Links out of a host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ports {
    links: [u32; PORTS_MAX],
    count: u8,
}

impl Ports {
    /// One more. Those beyond [`PORTS_MAX`] are not used; such a network is refused before.
    pub fn add(&mut self, link: u32) {
        if let Some(place) = self.links.get_mut(usize::from(self.count)) {
            *place = link;
            self.count += 1;
        }
    }

    /// Every one of them.
    pub fn all(&self) -> &[u32] {
        &self.links[..usize::from(self.count)]
    }

    /// The link for packets of the flow and path that `folded` stands for.
    pub fn choose(&self, links: &[Link], folded: u32) -> u32 {
        if self.count <= 1 {
            return self.links[0];
        }
        let count = u32::from(self.count);
        let first = self.links[(folded % count) as usize];
        if links[first as usize].is_up() {
            return first;
        }
        let up = || self.all().iter().copied().filter(|&link| links[link as usize].is_up());
        match up().count() {
            0 => first,
            left => up().nth((folded / count) as usize % left).unwrap_or(first),
        }
    }

    /// The moment from which one of the links that are up has nothing to send; of all if none is.
    pub fn idle_at(&self, links: &[Link]) -> Time {
        if self.count <= 1 {
            return links[self.links[0] as usize].busy_until();
        }
        let of = |link: &u32| &links[*link as usize];
        let up = self.all().iter().map(of).filter(|link| link.is_up()).map(Link::busy_until).min();
        up.or_else(|| self.all().iter().map(|link| of(link).busy_until()).min()).unwrap_or_default()
    }
}

/// What a NIC makes of the five-tuple of a packet.
pub(crate) fn fold(from: u32, to: u32, source_port: u16, port: u16) -> u32 {
    let hash = (u32::from(source_port) << 16 | u32::from(port)) ^ from ^ to;
    let hash = hash ^ hash >> 16;
    (hash ^ hash >> 8) & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::QueueLimits;
    use crate::time::Rate;
    use alloc::vec::Vec;
    use srdma_seams::Rng;

    fn links(count: u32) -> (Vec<Link>, Ports) {
        let rate = Rate::from_bits_per_second(8_000_000_000).expect("in range");
        let new = |_| Link::new(rate, Time::from_nanos(500), QueueLimits::UNLIMITED, Rng::new(1));
        let mut ports = Ports::default();
        (0..count).for_each(|link| ports.add(link));
        ((0..count).map(new).collect(), ports)
    }

    fn spread(links: &[Link], ports: &Ports, from: u32, to: u32) -> Vec<u32> {
        let mut counts = alloc::vec![0; links.len()];
        for path in 0..128 {
            counts[ports.choose(links, fold(from, to, 49_152 + path, 4791)) as usize] += 1;
        }
        counts
    }

    #[test]
    fn paths_are_spread_over_ports_evenly_and_move_off_one_that_is_down() {
        for (from, to) in [(0, 1), (1, 0), (77, 4_000), (300_000, 2)] {
            let (mut two, ports) = links(2);
            assert_eq!(spread(&two, &ports, from, to), [64, 64], "{from} to {to}");
            two[1].take_down(Time(0));
            assert_eq!(spread(&two, &ports, from, to), [128, 0]);
            two[0].take_down(Time(0));
            assert_eq!(spread(&two, &ports, from, to), [64, 64], "there is none to prefer");
            let (mut four, ports) = links(4);
            assert_eq!(spread(&four, &ports, from, to), [32; 4]);
            four[2].take_down(Time(0));
            let moved = spread(&four, &ports, from, to);
            assert!(moved[2] == 0 && moved.iter().all(|&count| count == 0 || count >= 40), "{moved:?}");
        }
    }

    #[test]
    fn a_port_is_idle_when_one_that_is_up_is() {
        let (mut links, ports) = links(2);
        links[0].offer(Time(0), 3_000, false).expect("unlimited");
        links[1].offer(Time(0), 1_000, false).expect("unlimited");
        assert_eq!(ports.idle_at(&links), Time::from_nanos(1_000));
        links[1].take_down(Time(1));
        assert_eq!(ports.idle_at(&links), Time::from_nanos(3_000));
    }
}
