//! An observer that counts, and refuses events that make no sense.

use std::collections::HashSet;

use srdma_seams::{Event, Now, Observer};

#[derive(Default, Debug)]
pub struct Counts {
    pub hellos: u64,
    pub units: u64,
    pub packets: u64,
    pub units_on: Vec<u64>,
    pub ce_on: Vec<u64>,
    /// Packets sent again, by cause.
    pub again: [u64; 7],
    pub lost: [u64; 7],
    pub undone: u64,
    pub tail_probes: u64,
    pub timeouts: u64,
    pub suspected: u64,
    pub restored: u64,
    pub suspects: HashSet<u16>,
    pub suspects_max: usize,
    pub connected_mtu: Option<u16>,
    /// Sizes that the path was found to be narrowed to.
    pub narrowed: Vec<u16>,
    /// Sizes that it was found to pass again.
    pub widened: Vec<u16>,
    pub nonsense: Option<String>,
    pub last: Now,
}

impl Counts {
    pub fn packets_again(&self) -> u64 {
        self.again.iter().sum()
    }

    fn refuse(&mut self, what: impl Into<String>) {
        self.nonsense.get_or_insert(what.into());
    }
}

fn at(list: &mut Vec<u64>, index: u16) -> &mut u64 {
    let index = usize::from(index);
    if list.len() <= index {
        list.resize(index + 1, 0);
    }
    &mut list[index]
}

impl Observer for Counts {
    fn event(&mut self, now: Now, event: Event) {
        if now < self.last {
            self.refuse("time went backwards");
        }
        self.last = now;
        match event {
            Event::HelloSent { .. } => self.hellos += 1,
            Event::Connected { mtu_bytes, .. } => {
                let before = self.connected_mtu.replace(mtu_bytes);
                if before.is_some() {
                    self.refuse("connected twice");
                }
            }
            Event::PathNarrowed { mtu_bytes, .. } => self.narrowed.push(mtu_bytes),
            Event::PathWidened { mtu_bytes, .. } => self.widened.push(mtu_bytes),
            Event::UnitSent { path, packets, retransmission, .. } => {
                self.units += 1;
                self.packets += u64::from(packets);
                *at(&mut self.units_on, path.0) += 1;
                if packets == 0 || packets > 64 {
                    self.refuse(format!("a unit of {packets} packets"));
                }
                if let Some(cause) = retransmission {
                    self.again[cause as usize] += u64::from(packets);
                }
            }
            Event::UnitAcked { path, packets, ce, .. } => {
                *at(&mut self.ce_on, path.0) += u64::from(ce);
                if packets == 0 || ce > packets {
                    self.refuse(format!("{ce} of {packets} packets marked"));
                }
            }
            Event::UnitLost { packets, cause, .. } => {
                self.lost[cause as usize] += u64::from(packets);
            }
            Event::LossUndone { .. } => self.undone += 1,
            Event::TailProbe { .. } => self.tail_probes += 1,
            Event::Rto { attempt, .. } => {
                self.timeouts += 1;
                if attempt == 0 {
                    self.refuse("time-out number 0");
                }
            }
            Event::PathSuspected { path, .. } => {
                self.suspected += 1;
                if !self.suspects.insert(path.0) {
                    self.refuse(format!("path {path} suspected twice"));
                }
                self.suspects_max = self.suspects_max.max(self.suspects.len());
            }
            Event::PathRestored { path, .. } => {
                self.restored += 1;
                if !self.suspects.remove(&path.0) {
                    self.refuse(format!("path {path} restored but not suspected"));
                }
            }
            _ => {}
        }
    }
}
