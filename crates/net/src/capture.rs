//! A capture file in pcapng: every packet as raw IP, with headers rebuilt, so that Wireshark dissects
//! UDP port 4791 as RoCEv2. Format: draft-ietf-opsawg-pcapng, link type 101 (LINKTYPE_RAW).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::notice;
use crate::probe::Probe;
use crate::sys::RawSlice;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LINKTYPE_RAW: u16 = 101;
const UDP: u8 = 17;
/// Time to live that Linux gives packets by default.
const DEFAULT_TTL: u8 = 64;

/// Direction bits of `epb_flags`.
#[derive(Clone, Copy)]
enum Direction {
    Inbound = 1,
    Outbound = 2,
}

/// A capture file being written. Buffered; flushed when dropped.
pub struct Capture {
    file: BufWriter<File>,
    scratch: Vec<u8>,
    packets: u64,
    /// A write failed (a full disk): the rest is not recorded.
    broken: bool,
}

impl Capture {
    /// Creates the file, or empties it.
    pub fn create(path: &Path) -> io::Result<Capture> {
        let mut file = BufWriter::with_capacity(1 << 18, File::create(path)?);
        // Version 1.0, length of the section unknown.
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4du32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, 4, b"srdma");
        end_of_options(&mut body);
        block(&mut file, SECTION_HEADER, &body)?;
        body.clear();
        body.extend(u32::from(LINKTYPE_RAW).to_le_bytes());
        body.extend(0u32.to_le_bytes());
        option(&mut body, 2, b"srdma");
        // Times are in units of 10⁻⁹ s.
        option(&mut body, 9, &[9]);
        end_of_options(&mut body);
        block(&mut file, INTERFACE_DESCRIPTION, &body)?;
        Ok(Capture { file, scratch: Vec::new(), packets: 0, broken: false })
    }

    /// Packets recorded.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    pub(crate) fn received(&mut self, from: SocketAddr, to: SocketAddr, class: u8, ttl: u8, payload: &[u8]) {
        let mut body = self.begin();
        ip_header(&mut body, from, to, class, ttl, payload.len());
        body.extend_from_slice(payload);
        self.finish(body, Direction::Inbound);
    }

    pub(crate) fn sent(&mut self, from: SocketAddr, to: SocketAddr, class: u8, slices: &[RawSlice]) {
        let length = slices.iter().map(|slice| slice.length).sum();
        let mut body = self.begin();
        ip_header(&mut body, from, to, class, DEFAULT_TTL, length);
        let whole = body.len() + length;
        // The program may have unmapped its memory since; what is gone is shown as zeros.
        let _ = Probe::gather(slices, &mut body);
        body.resize(whole, 0);
        self.finish(body, Direction::Outbound);
    }

    /// The body of a packet block up to the packet, whose lengths `finish` fills in.
    fn begin(&mut self) -> Vec<u8> {
        let mut body = std::mem::take(&mut self.scratch);
        body.clear();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        body.extend(0u32.to_le_bytes());
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        body.extend([0; 8]);
        body
    }

    fn finish(&mut self, mut body: Vec<u8>, direction: Direction) {
        const PACKET_AT: usize = 20;
        let length = (body.len() - PACKET_AT) as u32;
        body[12..16].copy_from_slice(&length.to_le_bytes());
        body[16..20].copy_from_slice(&length.to_le_bytes());
        udp_checksum(&mut body[PACKET_AT..]);
        pad(&mut body);
        option(&mut body, 2, &(direction as u32).to_le_bytes());
        end_of_options(&mut body);
        if !self.broken {
            match block(&mut self.file, ENHANCED_PACKET, &body) {
                Ok(()) => self.packets += 1,
                Err(e) => {
                    self.broken = true;
                    notice::tell(&format!("the capture file ends here: {e}"));
                }
            }
        }
        self.scratch = body;
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

fn block(file: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = (body.len() + 12) as u32;
    file.write_all(&kind.to_le_bytes())?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(body)?;
    file.write_all(&length.to_le_bytes())
}

/// Appends an IP header and a UDP header whose checksum is still zero.
fn ip_header(out: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, class: u8, ttl: u8, payload_bytes: usize) {
    let udp_bytes = (payload_bytes + 8) as u16;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let start = out.len();
            out.extend([0x45, class]);
            out.extend((udp_bytes.saturating_add(20)).to_be_bytes());
            // Identification 0, don't fragment.
            out.extend([0, 0, 0x40, 0, ttl, UDP, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            let sum = fold(sum_words(0, &out[start..]));
            out[start + 10..start + 12].copy_from_slice(&(!sum).to_be_bytes());
        }
        (source, destination) => {
            let octets = |ip| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            out.extend([0x60 | class >> 4, class << 4, 0, 0]);
            out.extend(udp_bytes.to_be_bytes());
            out.extend([UDP, ttl]);
            out.extend(octets(source));
            out.extend(octets(destination));
        }
    }
    out.extend(from.port().to_be_bytes());
    out.extend(to.port().to_be_bytes());
    out.extend(udp_bytes.to_be_bytes());
    out.extend([0, 0]);
}

/// Fills in the UDP checksum of an IP packet (RFC 768; RFC 8200, section 8.1).
fn udp_checksum(packet: &mut [u8]) {
    let (addresses, udp_at) = if packet[0] >> 4 == 4 { (12..20, 20) } else { (8..40, 40) };
    let mut sum = sum_words(0, &packet[addresses]);
    sum += u64::from(UDP) + (packet.len() - udp_at) as u64;
    let sum = match !fold(sum_words(sum, &packet[udp_at..])) {
        0 => 0xffff,
        sum => sum,
    };
    packet[udp_at + 6..udp_at + 8].copy_from_slice(&sum.to_be_bytes());
}

fn sum_words(start: u64, bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks(2);
    pairs.fold(start, |sum, pair| sum + (u64::from(pair[0]) << 8) + pair.get(1).map_or(0, |&low| low.into()))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
