//! A responder that knows what should come, and complains about anything else.

use std::collections::{HashMap, HashSet};

use srdma_seams::Rng;
use srdma_transport::{Arrival, Connection};
use srdma_wire::{Data, Space};

/// What the sender meant, carried beside the packet.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    pub seq: u64,
    pub msn: u64,
    pub payload: u32,
}

/// One numbering.
pub struct Responder {
    space: Space,
    first_seq: u64,
    seen: HashSet<u64>,
    /// Parts of packets that have not come whole.
    parts: HashMap<u64, HashSet<u8>>,
    unseen_from: u64,
    seen_max: u64,
    got: HashMap<u64, u64>,
    pub landed: u64,
    pub bytes: u64,
    window_packets: u64,
    /// Message refused as not ready, until when.
    refused: Option<(u64, u64)>,
    refused_before: HashSet<u64>,
    pub rnr_ppm: u32,
}

/// What the responder wants done.
#[derive(Default)]
pub struct Wish {
    /// Tell the peer that this message finds no receive, and for how long to wait.
    pub rnr: Option<(u64, u64)>,
    /// Messages that have landed now.
    pub landed: Vec<u64>,
}

impl Responder {
    pub fn new(space: Space, first_seq: u64, first_msn: u64, window_packets: u32) -> Responder {
        Responder {
            space,
            first_seq,
            seen: HashSet::new(),
            parts: HashMap::new(),
            unseen_from: first_seq,
            seen_max: first_seq,
            got: HashMap::new(),
            landed: first_msn,
            bytes: 0,
            window_packets: u64::from(window_packets),
            refused: None,
            refused_before: HashSet::new(),
            rnr_ppm: 0,
        }
    }

    fn was_seen(&self, seq: u64) -> bool {
        (self.first_seq..self.unseen_from).contains(&seq) || self.seen.contains(&seq)
    }

    /// A packet came; `lengths` are those of all messages submitted by the other side so far.
    pub fn on_data(
        &mut self,
        now: u64,
        conn: &mut Connection,
        data: &Data,
        truth: Truth,
        ce: bool,
        lengths: &dyn Fn(u64) -> Option<u32>,
        rng: &mut Rng,
    ) -> Result<Wish, String> {
        let mut wish = Wish::default();
        match conn.arrival(srdma_seams::Now(now), data, ce) {
            Arrival::New { seq, msn } => {
                if (seq, msn) != (truth.seq, truth.msn) {
                    return Err(format!("numbers {seq}/{msn} instead of {truth:?}"));
                }
                let again = match data.part {
                    Some(part) => self.parts.get(&seq).is_some_and(|known| known.contains(&part.index)),
                    None => self.parts.contains_key(&seq),
                };
                if self.was_seen(seq) || again {
                    return Err(format!("packet {seq} {:?} delivered twice", data.part));
                }
                if self.is_refused(now, msn, rng) {
                    conn.unreceive(self.space, seq, data.part);
                    if let Some((refused, _)) = self.refused {
                        wish.rnr = (refused == msn).then_some((msn, 200_000 + rng.below(3_000_000)));
                    }
                    return Ok(wish);
                }
                if self.is_whole(seq, data) {
                    self.seen.insert(seq);
                    self.seen_max = self.seen_max.max(seq + 1);
                }
                while self.seen.remove(&self.unseen_from) {
                    self.unseen_from += 1;
                }
                self.land(conn, data, truth, lengths, &mut wish)?;
            }
            Arrival::Duplicate | Arrival::Stale => {
                let parts =
                    data.part.and_then(|part| Some(self.parts.get(&truth.seq)?.contains(&part.index)));
                if !self.was_seen(truth.seq) && parts != Some(true) {
                    return Err(format!("packet {} never came and is called a duplicate", truth.seq));
                }
            }
            Arrival::Beyond => {
                let in_parts = data.part.is_none() && self.parts.contains_key(&truth.seq);
                if truth.seq < self.unseen_from + self.window_packets / 2 && !in_parts {
                    return Err(format!("packet {} refused, {} missing", truth.seq, self.unseen_from));
                }
            }
        }
        Ok(wish)
    }

    /// Notes a part; whether its packet is now here in whole.
    fn is_whole(&mut self, seq: u64, data: &Data) -> bool {
        let Some(part) = data.part else { return true };
        let parts = self.parts.entry(seq).or_default();
        parts.insert(part.index);
        let whole = parts.len() == usize::from(part.count);
        if whole {
            self.parts.remove(&seq);
        }
        whole
    }

    /// Decides whether there is no receive for the message, at its first packet, in order.
    fn is_refused(&mut self, now: u64, msn: u64, rng: &mut Rng) -> bool {
        if let Some((refused, until)) = self.refused {
            if msn > refused || now < until {
                return msn >= refused;
            }
            if msn == refused {
                self.refused = None;
            }
            return false;
        }
        let fresh = msn == self.landed && !self.got.contains_key(&msn) && self.refused_before.insert(msn);
        if self.rnr_ppm > 0 && fresh && rng.chance_ppm(self.rnr_ppm) {
            // What lies ahead of it and has come already stays; only what comes from now on is refused.
            self.refused = Some((msn, now + rng.below(500_000)));
            return true;
        }
        false
    }

    fn land(
        &mut self,
        conn: &mut Connection,
        data: &Data,
        truth: Truth,
        lengths: &dyn Fn(u64) -> Option<u32>,
        wish: &mut Wish,
    ) -> Result<(), String> {
        let length = lengths(truth.msn).ok_or(format!("message {} was never submitted", truth.msn))?;
        let inside = data.message.offset.checked_add(truth.payload).is_some_and(|end| end <= length);
        if data.message.length != length || !inside || truth.msn < self.landed {
            return Err(format!("fragment {truth:?} of {:?} changed its meaning", data.message));
        }
        *self.got.entry(truth.msn).or_default() += u64::from(truth.payload) + (1 << 40);
        self.bytes += u64::from(truth.payload);
        // Complete when all bytes are there, or the one packet of an empty message.
        while let Some(&got) = self.got.get(&self.landed) {
            let (packets, bytes) = (got >> 40, got & ((1 << 40) - 1));
            let wanted = u64::from(lengths(self.landed).unwrap_or(u32::MAX));
            if packets == 0 || bytes < wanted {
                break;
            }
            if bytes > wanted {
                return Err(format!("message {} has {bytes} of {wanted} bytes", self.landed));
            }
            self.got.remove(&self.landed);
            wish.landed.push(self.landed);
            self.landed += 1;
        }
        conn.set_landed(self.space, self.landed);
        Ok(())
    }
}
