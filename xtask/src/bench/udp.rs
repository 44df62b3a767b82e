//! What the ground gives: raw UDP between the two hosts, by threads that only send and only receive.
//!
//! No protocol over UDP can be faster than this, so it is the line that ours is measured against: the kernel
//! cuts and joins bursts (GSO, GRO) as for us, sockets are connected, nothing is acknowledged, and what the receiver
//! cannot keep up with is simply lost and not counted.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::fabric::{inside, Fabric};

/// Bytes of one buffer handed to the kernel, at most: a UDP message over IPv4.
const MESSAGE_BYTES_MAX: usize = 65_507;
/// Messages per system call.
const MESSAGES_PER_CALL: usize = 16;
/// UDP_MAX_SEGMENTS (udp(7)) before Linux 6.9.
const SEGMENTS_MAX: usize = 64;
/// Receive buffer asked for: what the device asks for too.
const RECEIVE_BUFFER_BYTES: libc::c_int = 8 << 20;

/// What a blast brought.
#[derive(Clone, Copy, Debug)]
pub struct Blast {
    /// Bytes of UDP payload in one packet.
    pub segment_bytes: usize,
    /// Megabytes (10⁶) of UDP payload that arrived per second.
    pub mb_per_s: f64,
    /// CPU seconds of both threads per gigabyte that arrived.
    pub cpu_s_per_gb: f64,
}

/// The fastest blast over several packet sizes, `span` each.
pub fn ceiling(fabric: &Fabric, mtu_bytes: usize, span: Duration) -> Result<Blast> {
    let longest = mtu_bytes - 28;
    let mut best: Option<Blast> = None;
    for segment_bytes in [longest, longest.min(1_400), longest.min(1_024)] {
        let blast = blast(fabric, segment_bytes, span)?;
        if best.is_none_or(|best| blast.mb_per_s > best.mb_per_s) {
            best = Some(blast);
        }
    }
    best.context("no blast was made")
}

/// Sends as fast as it goes for `span` and counts what arrives.
fn blast(fabric: &Fabric, segment_bytes: usize, span: Duration) -> Result<Blast> {
    let (sender, receiver) = connected(fabric, 18_700)?;
    set(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, segment_bytes as libc::c_int)?;
    set(&receiver, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    let message_bytes = segment_bytes * (MESSAGE_BYTES_MAX / segment_bytes).min(SEGMENTS_MAX);
    let (over, start) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, &over));
        let sending = scope.spawn(|| send(&sender, message_bytes, &over));
        std::thread::sleep(span);
        over.store(true, Ordering::Relaxed);
        let elapsed_s = start.elapsed().as_secs_f64();
        let (bytes, received_cpu_s) = join(receiving)?;
        let sent_cpu_s = join(sending)?;
        Ok(Blast {
            segment_bytes,
            mb_per_s: bytes as f64 / 1e6 / elapsed_s,
            cpu_s_per_gb: (received_cpu_s + sent_cpu_s) / (bytes as f64 / 1e9),
        })
    })
}

/// A socket on h1 and one on h2, each knowing the other.
fn connected(fabric: &Fabric, port: u16) -> Result<(UdpSocket, UdpSocket)> {
    let (near, far) =
        (SocketAddr::new(fabric.h1.address, port), SocketAddr::new(fabric.h2.address, port + 1));
    let open = |namespace: Option<&str>, from: SocketAddr, to: SocketAddr| {
        inside(namespace, || {
            let socket = UdpSocket::bind(from).with_context(|| format!("cannot bind UDP {from}"))?;
            socket.connect(to)?;
            Ok(socket)
        })
    };
    let near_socket = open(fabric.h1.namespace.as_deref(), near, far)?;
    let far_socket = open(fabric.h2.namespace.as_deref(), far, near)?;
    // Beyond net.core.rmem_max only root gets it; less is what an unprivileged device has as well.
    if set(&far_socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES).is_err() {
        set(&far_socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES)?;
    }
    Ok((near_socket, far_socket))
}

fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> Result<()> {
    let bytes = std::mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: reads one integer that lives across the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).with_context(|| format!("socket option {level}/{name}")),
    }
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// CPU seconds of the calling thread so far.
fn thread_cpu_s() -> f64 {
    let mut span = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut span) };
    span.tv_sec as f64 + span.tv_nsec as f64 / 1e9
}

/// Buffers for one call of sendmmsg or recvmmsg.
struct Messages {
    headers: Vec<libc::mmsghdr>,
    _slices: Vec<libc::iovec>,
    _buffers: Vec<Vec<u8>>,
}

impl Messages {
    fn new(count: usize, bytes: usize) -> Messages {
        let mut buffers = vec![vec![0x5a_u8; bytes]; count];
        let mut slices: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: bytes })
            .collect();
        let headers = slices
            .iter_mut()
            .map(|slice| {
                // SAFETY: zero is a valid `mmsghdr`: no name, no control.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = slice;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Messages { headers, _slices: slices, _buffers: buffers }
    }
}

fn send(socket: &UdpSocket, message_bytes: usize, over: &AtomicBool) -> Result<f64> {
    let mut messages = Messages::new(MESSAGES_PER_CALL, message_bytes);
    let (list, count) = (messages.headers.as_mut_ptr(), messages.headers.len() as libc::c_uint);
    while !over.load(Ordering::Relaxed) {
        // SAFETY: the headers, slices and buffers live in `messages`.
        if unsafe { libc::sendmmsg(socket.as_raw_fd(), list, count, 0) } < 0 {
            // Refused once the receiver has gone; anything else shows as nothing received.
            std::thread::yield_now();
        }
    }
    Ok(thread_cpu_s())
}

fn receive(socket: &UdpSocket, over: &AtomicBool) -> Result<(u64, f64)> {
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut messages = Messages::new(MESSAGES_PER_CALL, 1 << 16);
    let mut bytes = 0;
    while !over.load(Ordering::Relaxed) {
        let (list, count) = (messages.headers.as_mut_ptr(), messages.headers.len() as libc::c_uint);
        // SAFETY: the headers, slices and buffers live in `messages`.
        let received = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), list, count, libc::MSG_WAITFORONE as _, std::ptr::null_mut())
        };
        bytes +=
            messages.headers.iter().take(received.max(0) as usize).map(|m| u64::from(m.msg_len)).sum::<u64>();
    }
    Ok((bytes, thread_cpu_s()))
}

/// How a ping-pong waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Asks again and again.
    Polling,
    /// Sleeps in the kernel.
    Blocking,
}

/// One-way times of `bytes` over bare UDP, µs, as perftest counts them (half a round trip): median and 99th percentile.
pub fn ping_pong(fabric: &Fabric, bytes: usize, rounds: usize, wait: Wait) -> Result<(f64, f64)> {
    let (near, far) = connected(fabric, 18_710)?;
    for socket in [&near, &far] {
        socket.set_nonblocking(wait == Wait::Polling)?;
    }
    if wait == Wait::Blocking {
        far.set_read_timeout(Some(Duration::from_secs(2)))?;
        near.set_read_timeout(Some(Duration::from_secs(2)))?;
    }
    let over = AtomicBool::new(false);
    let answer = |socket: &UdpSocket, buffer: &mut [u8]| loop {
        match socket.recv(buffer) {
            Ok(length) => return Some(length),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && wait == Wait::Polling => {
                if over.load(Ordering::Relaxed) {
                    return None;
                }
            }
            Err(_) => return None,
        }
    };
    let mut times_us = Vec::with_capacity(rounds);
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            let mut buffer = vec![0u8; 2_048];
            while let Some(length) = answer(&far, &mut buffer) {
                if far.send(&buffer[..length]).is_err() {
                    return;
                }
            }
        });
        let (message, mut buffer) = (vec![7u8; bytes], vec![0u8; 2_048]);
        let mut ping = || -> Result<()> {
            for _ in 0..rounds {
                let start = Instant::now();
                near.send(&message)?;
                answer(&near, &mut buffer).context("an answer was lost")?;
                times_us.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
            }
            Ok(())
        };
        let result = ping();
        over.store(true, Ordering::Relaxed);
        // Ends a blocked answerer: an empty datagram is answered by an empty one, and then silence ends it.
        let _ = far.set_read_timeout(Some(Duration::from_millis(1)));
        let _ = near.send(&[]);
        result
    })?;
    times_us.sort_by(f64::total_cmp);
    let at = |share: f64| times_us.get((rounds as f64 * share) as usize).copied().unwrap_or(0.0);
    Ok((at(0.5), at(0.99)))
}
