//! TCP beside us in the same network, by iperf3.

use std::time::Duration;

use anyhow::{Context, Result};

use super::wait_until_it_listens;
use crate::fabric::{inside, Fabric};
use crate::process::{Outcome, Program};

/// What one run measured.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    /// Megabytes (10⁶) per second at the receiver.
    pub mb_per_s: f64,
    /// CPU seconds of both sides.
    pub cpu_s: f64,
    /// Bytes received.
    pub bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
}

/// Streams for `seconds` from h1 to h2.
pub fn run(fabric: &Fabric, seconds: u32, streams: u32) -> Result<Tcp> {
    run_sized(fabric, &["-t".into(), seconds.to_string()], streams, u64::from(seconds) + 20)
}

/// The same under congestion control `control`, its first second not counted.
pub fn run_under(fabric: &Fabric, control: &str, seconds: u32, streams: u32) -> Result<Tcp> {
    let size = ["-t".into(), seconds.to_string(), "-O".into(), "1".into(), "-C".into(), control.into()];
    run_sized(fabric, &size, streams, u64::from(seconds) + 20)
}

/// Congestion controls that this kernel has.
pub fn congestion_controls() -> Result<Vec<String>> {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let text = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The congestion control that TCP uses between the two hosts if nobody chooses one.
pub fn default_control(fabric: &Fabric) -> Result<String> {
    let file = "/proc/sys/net/ipv4/tcp_congestion_control";
    let read = || std::fs::read_to_string(file).with_context(|| file.to_owned());
    Ok(inside(fabric.h1.namespace.as_deref(), read)?.trim().to_owned())
}

/// Streams `bytes` from h1 to h2 under congestion control `control`.
pub fn run_bytes(fabric: &Fabric, control: &str, bytes: u64) -> Result<Tcp> {
    run_sized(fabric, &["-n".into(), bytes.to_string(), "-C".into(), control.into()], 1, 120)
}

fn run_sized(fabric: &Fabric, size: &[String], streams: u32, limit_s: u64) -> Result<Tcp> {
    let port = 5201;
    let limit = Duration::from_secs(limit_s);
    let server_args = ["-4", "-s", "-1", "-p", &port.to_string()].map(str::to_owned);
    let mut server = Program::new("iperf3").args(server_args).on(&fabric.h2).limit(limit).start()?;
    wait_until_it_listens(&fabric.h2, port, &mut server)?;
    let to = fabric.h2.address.to_string();
    let client = Program::new("iperf3")
        .args(["-4", "-J", "-p", &port.to_string(), "-P", &streams.to_string(), "-c", &to])
        .args(size)
        .on(&fabric.h1)
        .limit(limit)
        .success()?;
    let server = server.wait()?;
    read(&client, &server)
}

fn read(client: &Outcome, server: &Outcome) -> Result<Tcp> {
    let json: serde_json::Value = serde_json::from_str(&client.stdout).context("iperf3 printed no JSON")?;
    let received = &json["end"]["sum_received"];
    Ok(Tcp {
        mb_per_s: received["bits_per_second"].as_f64().context("iperf3 gave no speed")? / 8e6,
        cpu_s: (client.cpu + server.cpu).as_secs_f64(),
        bytes: received["bytes"].as_u64().unwrap_or(0),
        retransmits: json["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
    })
}

/// Round-trip time of one byte over TCP, microseconds: (median, 99th percentile) of `rounds`.
pub fn ping_pong(fabric: &Fabric, rounds: usize) -> Result<(f64, f64)> {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let address = (fabric.h2.address, 18_600);
    let listener = inside(fabric.h2.namespace.as_deref(), || Ok(TcpListener::bind(address)?))?;
    let mut near = inside(fabric.h1.namespace.as_deref(), || Ok(TcpStream::connect(address)?))?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0u8];
        while far.read_exact(&mut byte).and_then(|()| far.write_all(&byte)).is_ok() {}
    });
    let mut times_us = Vec::with_capacity(rounds);
    let mut byte = [7u8];
    for _ in 0..rounds {
        let start = std::time::Instant::now();
        near.write_all(&byte)?;
        near.read_exact(&mut byte)?;
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    drop(near);
    let _ = echo.join();
    times_us.sort_by(f64::total_cmp);
    let at = |share: f64| times_us.get((rounds as f64 * share) as usize).copied().unwrap_or(0.0);
    Ok((at(0.5), at(0.99)))
}
