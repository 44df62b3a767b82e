//! One source port: sends numbered probes and matches what comes back to them.

use crate::socket::{wait, ProbeSocket, Refusal};
use srdma_seams::PathId;
use srdma_wire::{emit, parse, Echo, Packet, VERSION};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Time-to-live of probes that are meant to arrive.
pub const FULL_LIFE: u8 = 64;
/// UDP payload bytes of a probe whose size is of no interest: an ECHO without padding.
pub const SMALL_BYTES: u16 = 56;

/// A probe as sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// Routers it could pass.
    pub ttl: u8,
    /// UDP payload bytes.
    pub bytes: u16,
}

/// What came back.
#[derive(Debug)]
pub enum Answer {
    /// The peer's reply.
    Reply {
        /// The probe it answers.
        sent: Sent,
        /// From sending to reading.
        rtt: Duration,
        /// Its contents.
        echo: Echo,
    },
    /// An ICMP error.
    Refused {
        /// The probe it is about: known for certain if the error quoted enough of it, otherwise the
        /// latest.
        sent: Sent,
        /// The error.
        refusal: Refusal,
    },
}

/// One source port towards one port of the peer.
#[derive(Debug)]
pub struct Prober {
    socket: ProbeSocket,
    path: PathId,
    nonce: u64,
    sent: Vec<Sent>,
    ttl: u8,
}

impl Prober {
    /// Path number `path`: a fresh source port of `source` towards `peer`.
    pub fn new(path: u16, source: IpAddr, peer: SocketAddr) -> io::Result<Prober> {
        // Each RandomState has keys from the system's entropy: enough that a reply is not guessed.
        let nonce = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let socket = ProbeSocket::towards(source, peer)?;
        socket.set_ttl(FULL_LIFE)?;
        Ok(Prober { socket, path: PathId(path), nonce, sent: Vec::new(), ttl: FULL_LIFE })
    }

    /// Our address and port.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local()
    }

    /// Sends a probe of `bytes` of UDP payload that can pass `ttl` routers less one.
    pub fn send(&mut self, ttl: u8, bytes: u16) -> io::Result<()> {
        let bytes = bytes.max(SMALL_BYTES);
        if ttl != self.ttl {
            self.socket.set_ttl(ttl)?;
            self.ttl = ttl;
        }
        let echo = Echo {
            nonce: self.nonce,
            sequence: self.sent.len() as u32,
            path: self.path,
            reply: false,
            version: VERSION,
            observed_ttl: 0,
            observed_address: [0; 16],
            observed_port: 0,
            probe_bytes: bytes,
        };
        let mut datagram = vec![0u8; usize::from(bytes)];
        emit(&Packet::Echo(echo), &mut datagram).map_err(io::Error::other)?;
        self.sent.push(Sent { at: Instant::now(), ttl, bytes });
        self.socket.send(&datagram)
    }

    /// The next answer that is there.
    fn next(&mut self, buffer: &mut [u8]) -> Option<Answer> {
        while let Ok(Some(got)) = self.socket.receive(buffer) {
            let now = Instant::now();
            let Some(echo) = self.echo(&buffer[..got.bytes]).filter(|echo| echo.reply) else { continue };
            let Some(sent) = self.sent.get(echo.sequence as usize).copied() else { continue };
            return Some(Answer::Reply { sent, rtt: now - sent.at, echo });
        }
        let refusal = self.socket.refusal()?;
        let quoted = self.echo(&refusal.quoted).and_then(|echo| self.sent.get(echo.sequence as usize));
        let sent = *quoted.or(self.sent.last())?;
        Some(Answer::Refused { sent, refusal })
    }

    /// The probe or reply of ours in `bytes`.
    fn echo(&self, bytes: &[u8]) -> Option<Echo> {
        match parse(bytes) {
            Ok((Packet::Echo(echo), _)) if echo.nonce == self.nonce => Some(echo),
            _ => None,
        }
    }
}

/// Hands each answer and the index of its prober to `take` until that says that it has enough, or the
/// time is up. Returns whether it has enough.
pub fn collect(
    probers: &mut [Prober],
    at_most: Duration,
    mut take: impl FnMut(usize, Answer) -> bool,
) -> bool {
    let end = Instant::now() + at_most;
    let mut buffer = vec![0u8; 1 << 16];
    loop {
        let mut enough = false;
        for (index, prober) in probers.iter_mut().enumerate() {
            while let Some(answer) = prober.next(&mut buffer) {
                enough |= take(index, answer);
            }
        }
        let now = Instant::now();
        if enough || now >= end {
            return enough;
        }
        wait(probers.iter().map(|prober| &prober.socket), end - now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_reply_counts_by_its_nonce_whatever_port_it_comes_from() {
        let home = IpAddr::from([127, 0, 0, 1]);
        let port = || ProbeSocket::bound(SocketAddr::new(home, 0)).unwrap();
        let (slot, elsewhere) = (port(), port());
        let mut prober = [Prober::new(0, home, slot.local().unwrap()).unwrap()];
        prober[0].send(FULL_LIFE, 100).unwrap();
        wait([&slot].into_iter(), Duration::from_secs(5));
        let mut datagram = [0u8; 100];
        let from = slot.receive(&mut datagram).unwrap().expect("the probe").from;
        let Ok((Packet::Echo(probe), _)) = parse(&datagram) else { panic!("no echo") };
        let mut answers = 0;
        for (reply, nonce) in [(false, probe.nonce), (true, probe.nonce ^ 1), (true, probe.nonce)] {
            let echo = Echo { reply, nonce, ..probe };
            emit(&Packet::Echo(echo), &mut datagram).unwrap();
            elsewhere.send_to(&datagram, from).unwrap();
        }
        collect(&mut prober, Duration::from_secs(5), |_, answer| {
            assert!(matches!(answer, Answer::Reply { sent: Sent { ttl: FULL_LIFE, bytes: 100, .. }, .. }));
            answers += 1;
            true
        });
        assert_eq!(answers, 1);
    }
}
