//! What a wire does to packets besides carrying them: loss in bursts, corruption, marks that are washed out. Kept apart
//! from the link, because nearly all links do nothing of it.

use srdma_seams::Rng;

/// What became of a packet on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It came through.
    Comes,
    /// It came through, and its congestion mark did not.
    Bleached,
    /// It was lost.
    Lost,
    /// It came with wrong bits, which the next device sees by its checksum and throws it away.
    Corrupt,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Flaws {
    bursts: Option<Bursts>,
    corrupt_ppm: u32,
    /// Congestion marks are washed out.
    pub bleaches: bool,
    rng: Rng,
}

/// Two states (Gilbert 1960): in the one every packet is lost, in the other none.
#[derive(Clone, Copy, Debug)]
struct Bursts {
    is_bad: bool,
    /// Chance that a packet finds the good state over, and the bad one; parts per million.
    begin_ppm: u32,
    end_ppm: u32,
}

impl Flaws {
    pub fn new(rng: Rng) -> Flaws {
        Flaws { bursts: None, corrupt_ppm: 0, bleaches: false, rng }
    }

    /// Loses `loss_ppm` of all packets, in bursts of `burst_packets` on average.
    pub fn set_bursts(&mut self, loss_ppm: u32, burst_packets: u32) {
        const MILLION: u64 = 1_000_000;
        let (loss, burst) = (u64::from(loss_ppm).min(MILLION), u64::from(burst_packets.max(1)));
        let end = MILLION / burst;
        // In the long run as many bursts begin as end: begin × (1 − loss) = end × loss.
        let begin = (end * loss).checked_div(MILLION - loss).unwrap_or(MILLION);
        let end_ppm = if loss == MILLION { 0 } else { end as u32 };
        let bursts = Bursts { is_bad: false, begin_ppm: begin.min(MILLION) as u32, end_ppm };
        self.bursts = (loss > 0).then_some(bursts);
    }

    /// Spoils `corrupt_ppm` of all packets.
    pub fn set_corruption(&mut self, corrupt_ppm: u32) {
        self.corrupt_ppm = corrupt_ppm;
    }

    /// Whether there is nothing to do any more.
    pub fn is_none(&self) -> bool {
        self.bursts.is_none() && self.corrupt_ppm == 0 && !self.bleaches
    }

    /// What becomes of the next packet.
    pub fn judge(&mut self) -> Fate {
        if let Some(bursts) = &mut self.bursts {
            let turns = if bursts.is_bad { bursts.end_ppm } else { bursts.begin_ppm };
            bursts.is_bad ^= self.rng.chance_ppm(turns);
            if bursts.is_bad {
                return Fate::Lost;
            }
        }
        match self.corrupt_ppm > 0 && self.rng.chance_ppm(self.corrupt_ppm) {
            true => Fate::Corrupt,
            false if self.bleaches => Fate::Bleached,
            false => Fate::Comes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of packets lost, and mean length of a run of losses.
    fn measured(flaws: &mut Flaws) -> (f64, f64) {
        let (packets, mut lost, mut runs, mut before) = (400_000, 0, 0, false);
        for _ in 0..packets {
            let is_lost = flaws.judge() == Fate::Lost;
            lost += u32::from(is_lost);
            runs += u32::from(is_lost && !before);
            before = is_lost;
        }
        (f64::from(lost) / f64::from(packets), f64::from(lost) / f64::from(runs.max(1)))
    }

    #[test]
    fn bursts_have_the_share_and_the_length_asked_for() {
        for (loss_ppm, burst) in [(10_000, 1), (10_000, 20), (100_000, 50), (500_000, 10)] {
            let mut flaws = Flaws::new(Rng::new(7));
            flaws.set_bursts(loss_ppm, burst);
            let (share, length) = measured(&mut flaws);
            let (wanted_share, wanted) = (f64::from(loss_ppm) / 1e6, f64::from(burst));
            assert!((share / wanted_share - 1.0).abs() < 0.15, "{loss_ppm} {burst}: {share}");
            assert!((length / wanted - 1.0).abs() < 0.15, "{loss_ppm} {burst}: {length}");
        }
    }

    #[test]
    fn nothing_loses_nothing_and_everything_loses_all() {
        let mut flaws = Flaws::new(Rng::new(7));
        assert!(flaws.is_none() && measured(&mut flaws).0 == 0.0);
        flaws.set_bursts(1_000_000, 3);
        assert_eq!(measured(&mut flaws).0, 1.0);
        flaws.set_bursts(0, 3);
        flaws.set_corruption(250_000);
        let corrupt = (0..100_000).filter(|_| flaws.judge() == Fate::Corrupt).count();
        assert!((24_000..26_000).contains(&corrupt), "{corrupt}");
        assert!(!flaws.is_none());
    }
}
