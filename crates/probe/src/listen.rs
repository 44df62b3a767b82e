//! Something that answers probes: claims a slot as a program would, and echoes.

use crate::socket::{wait, ProbeSocket};
use srdma_seams::Slot;
use srdma_wire::{emit, parse, Packet, VERSION};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Most replies a second. A spoofed source address then gains an attacker nothing: a reply is never
/// longer than its probe, and there are few.
const REPLIES_PER_SECOND: u32 = 2_000;
/// Replies that may leave at once: two full sweeps of 256 source ports.
const REPLY_BURST: u32 = 512;

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Every slot's port is bound already.
    #[error("all 256 slots of {0} are taken; end a program that uses them, or give another --addr")]
    Full(IpAddr),
    /// The system refused.
    #[error("cannot listen on {0}: {1}")]
    System(SocketAddr, io::Error),
}

/// A claimed slot that answers echoes.
#[derive(Debug)]
pub struct Listener {
    socket: ProbeSocket,
    local: SocketAddr,
    slot: Slot,
    bucket: Bucket,
    buffer: Vec<u8>,
    /// Probes answered so far.
    pub answered: u64,
    /// Probes not answered because there were too many at once.
    pub limited: u64,
}

impl Listener {
    /// Claims the first free slot of `address`, or exactly `wanted`.
    pub fn claim(address: IpAddr, wanted: Option<Slot>) -> Result<Listener, ListenError> {
        let slots = match wanted {
            Some(slot) => slot.0..=slot.0,
            None => 0..=u8::MAX,
        };
        for slot in slots.map(Slot) {
            let local = SocketAddr::new(address, slot.port());
            match ProbeSocket::bound(local) {
                Ok(socket) => return Ok(Listener::new(socket, local, slot)),
                Err(error) if wanted.is_none() && error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(ListenError::System(local, error)),
            }
        }
        Err(ListenError::Full(address))
    }

    fn new(socket: ProbeSocket, local: SocketAddr, slot: Slot) -> Listener {
        let bucket = Bucket::new(Instant::now());
        Listener { socket, local, slot, bucket, buffer: vec![0; 1 << 16], answered: 0, limited: 0 }
    }

    /// Address and port that answer.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The slot claimed.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Answers what has come, and what comes within `span`.
    pub fn serve(&mut self, span: Duration) -> io::Result<()> {
        let end = Instant::now() + span;
        loop {
            let now = Instant::now();
            while let Some(got) = self.socket.receive(&mut self.buffer)? {
                self.answer(got.bytes, got.from, got.ttl.unwrap_or(0), now);
            }
            if now >= end {
                return Ok(());
            }
            wait([&self.socket].into_iter(), end - now);
        }
    }

    fn answer(&mut self, bytes: usize, from: SocketAddr, ttl: u8, now: Instant) {
        let Some(datagram) = self.buffer.get_mut(..bytes) else { return };
        // A reply is never answered: two listeners would talk for ever.
        let Ok((Packet::Echo(mut echo), _)) = parse(datagram) else { return };
        if echo.reply {
            return;
        }
        if !self.bucket.take(now) {
            self.limited += 1;
            return;
        }
        echo.reply = true;
        echo.version = VERSION;
        echo.observed_ttl = ttl;
        echo.observed_address = mapped(from.ip());
        echo.observed_port = from.port();
        // The header is written over the probe's own; its padding goes back as it came. A reply that
        // cannot be sent is like one lost on the way: the prober asks again.
        if emit(&Packet::Echo(echo), datagram).is_ok() && self.socket.send_to(datagram, from).is_ok() {
            self.answered += 1;
        }
    }
}

/// A token bucket of [`REPLIES_PER_SECOND`] and [`REPLY_BURST`].
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Bucket {
        Bucket { tokens: f64::from(REPLY_BURST), filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * f64::from(REPLIES_PER_SECOND);
        self.tokens = (self.tokens + gained).min(f64::from(REPLY_BURST));
        self.filled = now;
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

/// The 16 bytes that stand for an address in packets; IPv4 as IPv4-mapped (RFC 4291 §2.5.5.2).
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address that 16 bytes stand for; `None` for zeros.
pub fn unmapped(bytes: [u8; 16]) -> Option<IpAddr> {
    let address = std::net::Ipv6Addr::from(bytes).to_canonical();
    (!address.is_unspecified() && address != IpAddr::V4(Ipv4Addr::UNSPECIFIED)).then_some(address)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use srdma_seams::PathId;
    use srdma_wire::Echo;

    #[test]
    fn addresses_survive_the_way_through_a_packet() {
        for text in ["192.0.2.7", "2001:db8::7", "::1", "127.0.0.1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(unmapped(mapped(address)), Some(address));
        }
        assert_eq!(unmapped([0; 16]), None);
    }

    #[test]
    fn replies_are_bounded_in_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!((0..5_000).filter(|_| bucket.take(at(0))).count(), REPLY_BURST as usize);
        assert_eq!((0..5_000).filter(|_| bucket.take(at(100))).count(), REPLIES_PER_SECOND as usize / 10);
        assert_eq!((0..5_000).filter(|_| bucket.take(at(60_000))).count(), REPLY_BURST as usize);
    }

    /// Sends `datagram` to a listener and returns what comes back.
    fn exchange(datagram: &[u8]) -> Option<Vec<u8>> {
        let home = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let socket = ProbeSocket::bound(SocketAddr::new(home, 0)).unwrap();
        let local = socket.local().unwrap();
        let mut listener = Listener::new(socket, local, Slot(0));
        let client = ProbeSocket::towards(home, local).unwrap();
        client.send(datagram).unwrap();
        wait([&listener.socket].into_iter(), Duration::from_secs(5));
        listener.serve(Duration::ZERO).unwrap();
        let mut back = vec![0; 1 << 16];
        // Over loopback a reply that was sent is there already.
        let got = client.receive(&mut back).unwrap()?;
        back.truncate(got.bytes);
        Some(back)
    }

    fn probe(reply: bool, bytes: u16) -> Vec<u8> {
        let echo = Echo {
            nonce: 9,
            sequence: 3,
            path: PathId(5),
            reply,
            version: VERSION,
            observed_ttl: 0,
            observed_address: [0; 16],
            observed_port: 0,
            probe_bytes: bytes,
        };
        let mut datagram = vec![0; usize::from(bytes)];
        emit(&Packet::Echo(echo), &mut datagram).unwrap();
        datagram
    }

    #[test]
    fn a_probe_comes_back_with_as_many_bytes_and_what_was_seen() {
        for bytes in [56, 100, 1472, 9000] {
            let back = exchange(&probe(false, bytes)).expect("an answer");
            assert_eq!(back.len(), usize::from(bytes));
            let Ok((Packet::Echo(echo), _)) = parse(&back) else { panic!("no echo") };
            assert!(echo.reply && echo.observed_port != 0 && echo.observed_ttl != 0);
            assert_eq!((echo.nonce, echo.sequence, echo.path), (9, 3, PathId(5)));
            assert_eq!(unmapped(echo.observed_address), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        }
    }

    #[test]
    fn nothing_else_is_answered() {
        let mut damaged = probe(false, 100);
        damaged[30] ^= 1;
        let mut cut = probe(false, 100);
        cut.truncate(90);
        for (what, datagram) in [
            ("a reply", probe(true, 100)),
            ("noise", vec![0xaa; 100]),
            ("an empty datagram", Vec::new()),
            ("a damaged probe", damaged),
            ("a cut probe", cut),
        ] {
            assert!(exchange(&datagram).is_none(), "{what}");
        }
    }
}
