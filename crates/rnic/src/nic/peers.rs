//! The peers of a device: what the queue pairs to one of them share, and whose turn it is to send to it.
//!
//! Turns go round the peers that can be sent to, and for each of these round its queue pairs that may have something to
//! send. A turn is some 64 KiB, for what comes together is cheap to take and to acknowledge. A peer whose window is full is out of the round, however many wait for it, until something of
//! any queue pair of it is answered or given up.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use srdma_transport::{Config, Trunk};

/// A peer: one receive socket.
struct Peer {
    address: SocketAddr,
    trunk: Trunk,
    /// Queue pairs (by position) that may have something to send, in turn.
    ready: VecDeque<u32>,
    /// Bytes that the first of them may still send before it is the next one's turn.
    turn_bytes: u32,
    /// In the round.
    is_active: bool,
}

/// Payload bytes of a turn: those of one datagram as the kernel joins them.
const TURN_BYTES: u32 = 64 << 10;
/// What a burst counts as, at least.
const BURST_BYTES_MIN: u32 = 4 << 10;

/// All peers, by position.
pub(crate) struct Peers {
    entries: Vec<Option<Peer>>,
    free: Vec<u32>,
    by_address: BTreeMap<SocketAddr, u32>,
    /// Peers that can be sent to, in turn.
    active: VecDeque<u32>,
    /// Stands for a peer that is none.
    nobody: Trunk,
}

/// Position of a queue pair's peer; no peer at all if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerIndex(u32);

impl PeerIndex {
    pub const NONE: PeerIndex = PeerIndex(u32::MAX);
}

impl Peers {
    pub fn new(config: &Config) -> Peers {
        Peers {
            entries: Vec::new(),
            free: Vec::new(),
            by_address: BTreeMap::new(),
            active: VecDeque::new(),
            nobody: Trunk::new(config),
        }
    }

    /// A queue pair has this peer from now on.
    pub fn join(&mut self, address: SocketAddr, config: &Config) -> PeerIndex {
        let index = match self.by_address.get(&address) {
            Some(&index) => index,
            None => self.add(address, config),
        };
        self.trunk(PeerIndex(index)).join();
        PeerIndex(index)
    }

    fn add(&mut self, address: SocketAddr, config: &Config) -> u32 {
        let peer = Peer {
            address,
            trunk: Trunk::new(config),
            ready: VecDeque::new(),
            turn_bytes: TURN_BYTES,
            is_active: false,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(peer);
                index
            }
            None => {
                self.entries.push(Some(peer));
                self.entries.len() as u32 - 1
            }
        };
        self.by_address.insert(address, index);
        index
    }

    /// The queue pair at `position`, whose connection has left the trunk, has this peer no longer.
    pub fn part(&mut self, index: PeerIndex, position: u32) {
        let Some(peer) = self.get(index) else { return };
        peer.ready.retain(|&ready| ready != position);
        if peer.trunk.members() > 0 {
            return self.wake(index);
        }
        let address = peer.address;
        self.by_address.remove(&address);
        self.entries[index.0 as usize] = None;
        self.active.retain(|&active| active != index.0);
        self.free.push(index.0);
    }

    fn get(&mut self, index: PeerIndex) -> Option<&mut Peer> {
        self.entries.get_mut(index.0 as usize)?.as_mut()
    }

    /// What the connections to a peer share.
    pub fn trunk(&mut self, index: PeerIndex) -> &mut Trunk {
        match self.entries.get_mut(index.0 as usize) {
            Some(Some(peer)) => &mut peer.trunk,
            _ => &mut self.nobody,
        }
    }

    /// The same, to look at.
    pub fn trunk_of(&self, index: PeerIndex) -> &Trunk {
        match self.entries.get(index.0 as usize) {
            Some(Some(peer)) => &peer.trunk,
            _ => &self.nobody,
        }
    }

    /// The queue pair at `position` may have something to send, after those before it.
    pub fn line_up(&mut self, index: PeerIndex, position: u32) {
        if let Some(peer) = self.get(index) {
            peer.ready.push_back(position);
        }
    }

    /// The window of a peer may have room.
    pub fn wake(&mut self, index: PeerIndex) {
        let Some(peer) = self.get(index) else { return };
        if !peer.ready.is_empty() && !core::mem::replace(&mut peer.is_active, true) {
            self.active.push_back(index.0);
        }
    }

    /// Whether it is anybody's turn.
    pub fn is_anybody_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whose turn it is. One of the calls below has to follow.
    pub fn next(&mut self) -> Option<(PeerIndex, u32)> {
        loop {
            let index = PeerIndex(*self.active.front()?);
            match self.get(index).and_then(|peer| peer.ready.pop_front()) {
                Some(position) => return Some((index, position)),
                None => self.rest(index),
            }
        }
    }

    /// It has sent `bytes`. Once that makes a turn, others come first.
    pub fn sent(&mut self, index: PeerIndex, position: u32, bytes: u32) {
        let Some(peer) = self.get(index) else { return };
        peer.turn_bytes = peer.turn_bytes.saturating_sub(bytes.max(BURST_BYTES_MIN));
        if peer.turn_bytes > 0 {
            return peer.ready.push_front(position);
        }
        peer.turn_bytes = TURN_BYTES;
        peer.ready.push_back(position);
        if self.active.len() > 1 {
            self.active.rotate_left(1);
        }
    }

    /// It has nothing to send, and is out of the line.
    pub fn idle(&mut self, index: PeerIndex) {
        if let Some(peer) = self.get(index) {
            peer.turn_bytes = TURN_BYTES;
        }
    }

    /// It could not send, and none to this peer can: it stays the first.
    pub fn blocked(&mut self, index: PeerIndex, position: u32) {
        if let Some(peer) = self.get(index) {
            peer.ready.push_front(position);
        }
    }

    /// The peer whose turn it was is out of the round.
    pub fn rest(&mut self, index: PeerIndex) {
        self.active.pop_front();
        if let Some(peer) = self.get(index) {
            peer.is_active = false;
        }
    }
}
