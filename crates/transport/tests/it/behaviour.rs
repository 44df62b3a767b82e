//! Named behaviours, most of them faults that other transports had (public bug reports).

use srdma_seams::event::RetransmitCause;
use srdma_seams::{ConnectionId, Duration, Now, PathId, Qpn, Rng, TransmitId};
use srdma_transport::{Config, Connection, Failure, HelloOutcome, Trunk};
use srdma_wire::{Ack, AckBlock, AckUnit, Space, ACK_BLOCKS_MAX, ACK_UNITS_MAX};

use crate::counts::Counts;
use crate::link::{Link, Span};
use crate::sim::{identity, End, Sim};

pub const MS: u64 = 1_000_000;

/// Delays from one to five times `base`, evenly.
pub fn spread_delays(base: u64, paths: u64) -> Vec<u64> {
    (0..paths).map(|path| base + base * 4 * path / paths.max(1)).collect()
}

/// Numbers start just before the wraps of 24 and 32 bits; everything completes.
pub fn numbers_wrap(config: &Config) -> Result<(), String> {
    for first in [(1 << 24) - 3, (1 << 32) - 3] {
        let config = Config { first_psn: first, first_msn: first, ..config.clone() };
        let mut sim = Sim::new(first, &config, 1472, Link::new(1, vec![100_000; 128]));
        sim.response_ppm = 1_000_000;
        sim.start_both();
        for _ in 0..10 {
            sim.submit(0, Space::Request, 5_000);
            sim.submit(1, Space::Request, 0);
        }
        sim.run_until_done(1_000 * MS)?;
        if !sim.is_done() {
            return Err(format!("not done from {first}"));
        }
        if sim.ends[0].counts.packets_again() > 0 {
            return Err("retransmissions without loss".into());
        }
    }
    Ok(())
}

/// Round-trip times differ by a factor of five between paths and nothing is lost: nothing is sent again.
pub fn overtaking_is_not_loss(config: &Config) -> Result<(), String> {
    for (seed, base) in [(1, 50_000), (2, 200_000), (3, 1_000_000)] {
        let mut link = Link::new(seed, spread_delays(base, 128));
        link.jitter_ns = base / 10;
        let config = Config { window_max_bytes: 2 << 20, ..config.clone() };
        let mut sim = Sim::new(seed, &config, 1472, link);
        sim.remember = false;
        sim.feed = Some((16, 1 << 18));
        sim.start_both();
        sim.run_until(400 * MS)?;
        let counts = &sim.ends[0].counts;
        if counts.packets_again() > 0 {
            return Err(format!("base {base}: {:?} of {} packets sent again", counts.again, counts.packets));
        }
        // All of the window once per mean round trip of 3 + 3 times the base.
        let bytes = sim.ends[1].responders[0].bytes;
        let possible = (2 << 20) * (300 * MS) / (6 * base) * 1400 / 1728;
        if bytes < possible * 9 / 10 {
            return Err(format!("base {base}: {bytes} bytes, {possible} possible"));
        }
    }
    Ok(())
}

/// One packet is held back while 100,000 later ones arrive; it is then taken, and only once.
pub fn a_packet_is_late_by_100_000(config: &Config) -> Result<(), String> {
    let mut sim = Sim::new(4, config, 1472, Link::new(4, vec![50_000; 128]));
    sim.remember = false;
    sim.feed = Some((256, 1 << 20));
    sim.hold_back = Some((config.first_psn + 50, u64::MAX));
    sim.start_both();
    while sim.ends[0].sent_max[0] < config.first_psn + 100_050 && sim.now < 2_000 * MS {
        sim.run_until(sim.now + MS)?;
    }
    if sim.now >= 2_000 * MS {
        return Err(format!("only {} packets sent past the missing one", sim.ends[0].sent_max[0]));
    }
    sim.feed = None;
    sim.hold_back = None;
    sim.run_until_done(sim.now + 5_000 * MS)?;
    if sim.is_done() {
        Ok(())
    } else {
        Err("the late packet was never taken".into())
    }
}

/// The last packets of a message vanish; a probe brings them back long before the time-out.
pub fn a_lost_tail_is_probed(config: &Config) -> Result<(), String> {
    for lost in [1, 8] {
        let one_way = MS;
        let rto_min = Duration::from_millis(200);
        let config = Config { unit_packets_max: 1, rto_min, ..config.clone() };
        let mut sim = Sim::new(lost, &config, 1472, Link::new(lost, vec![one_way; 128]));
        sim.start_both();
        sim.submit(0, Space::Request, 200 * 1400);
        sim.run_until_done(1_000 * MS)?;
        sim.submit(0, Space::Request, 40 * 1400);
        sim.drop_nth = (241 - lost..=240).collect();
        let from = sim.now;
        sim.run_until_done(5_000 * MS)?;
        let trips = (sim.now - from) as f64 / (2 * one_way) as f64;
        if !sim.is_done() || sim.ends[0].counts.timeouts > 0 || sim.ends[0].counts.tail_probes == 0 {
            return Err(format!("{lost} lost: no probe, or a time-out"));
        }
        // One round trip to send, two of silence, one for the probe, one for what it reveals.
        if trips > if lost == 1 { 4.3 } else { 5.5 } {
            return Err(format!("{lost} lost: {trips:.1} round trips"));
        }
    }
    Ok(())
}

/// Congestion marks on path 7 only, ACKs return by path 3: path 7 alone is used less.
pub fn marks_count_for_the_path_that_carried_the_data(config: &Config) -> Result<(), String> {
    let mut link = Link::new(9, vec![100_000; 16]);
    link.mark_ppm = 1_000_000;
    link.mark_path = Some(7);
    let config = Config { paths: 16, window_max_bytes: 1 << 20, ..config.clone() };
    let mut sim = Sim::new(9, &config, 1472, link);
    sim.remember = false;
    sim.ends[1].ack_path = Some(3);
    sim.feed = Some((8, 1 << 18));
    sim.start_both();
    sim.run_until(100 * MS)?;
    let counts = &sim.ends[0].counts;
    let marked: Vec<_> = (0..16).filter(|&path| counts.ce_on[path] > 0).collect();
    if marked != [7] {
        return Err(format!("marks reported for {marked:?}"));
    }
    let used = &counts.units_on;
    let others = (used.iter().sum::<u64>() - used[7]) / 15;
    if used[7] * 10 > others * 8 || used[3] * 10 < others * 8 {
        return Err(format!("path 7 is not avoided, or path 3 is: {used:?}"));
    }
    Ok(())
}

/// All packets are held up once, beyond every deadline: the losses are undone, the window returns and
/// the detector becomes more patient.
pub fn a_spurious_loss_is_undone(config: &Config) -> Result<(), String> {
    let mut link = Link::new(5, vec![200_000; 128]);
    (link.slow, link.slow_by) = (Span(100 * MS, 101 * MS), 200);
    let config = Config { window_max_bytes: 1 << 19, ..config.clone() };
    let mut sim = Sim::new(5, &config, 1472, link);
    sim.remember = false;
    sim.feed = Some((16, 1 << 18));
    sim.start_both();
    sim.run_until(99 * MS)?;
    let before = sim.ends[0].snapshot().window_bytes;
    sim.run_until(160 * MS)?;
    let counts = &sim.ends[0].counts;
    if counts.undone == 0 {
        return Err("nothing undone".into());
    }
    let after = sim.ends[0].snapshot().window_bytes;
    if after * 10 < before * 9 {
        return Err(format!("window {after} after, {before} before"));
    }
    Ok(())
}

/// A far-ahead burst with hundreds of holes; then the head arrives and is taken.
pub fn the_head_is_taken_when_much_is_ahead(config: &Config) -> Result<(), String> {
    let mut link = Link::new(6, vec![50_000; 64]);
    link.loss_ppm = 300_000;
    link.loss_span = Span(0, 40 * MS);
    let config = Config { paths: 64, unit_packets_max: 1, window_initial_bytes: 4 << 20, ..config.clone() };
    let mut sim = Sim::new(6, &config, 1472, link);
    sim.hold_back = Some((config.first_psn, 30 * MS));
    sim.start_both();
    sim.submit(0, Space::Request, 2_000 * 1400);
    sim.run_until_done(3_000 * MS)?;
    if sim.is_done() {
        Ok(())
    } else {
        Err("the head never landed".into())
    }
}

/// A full socket refuses units; nothing leaks and nothing is lost.
pub fn refused_units_are_offered_again(config: &Config) -> Result<(), String> {
    let mut sim = Sim::new(7, config, 1472, Link::new(7, vec![50_000; 128]));
    sim.refuse_ppm = 300_000;
    sim.start_both();
    for _ in 0..50 {
        sim.submit(0, Space::Request, 60_000);
    }
    sim.run_until_done(2_000 * MS)?;
    if !sim.is_done() {
        return Err("not done".into());
    }
    let lost = sim.ends[0].counts.lost;
    if lost.iter().sum::<u64>() > lost[RetransmitCause::Local as usize] || sim.ends[0].counts.timeouts > 0 {
        return Err(format!("what never left was held lost: {lost:?}"));
    }
    Ok(())
}

/// Outages separated by good times: the time-out starts small again after each.
pub fn backoff_is_reset_by_progress(config: &Config) -> Result<(), String> {
    let config = Config { ack_timeout: Duration::ZERO, ..config.clone() };
    let config = Config { window_max_bytes: 1 << 18, ..config };
    let mut sim = Sim::new(8, &config, 1472, Link::new(8, vec![100_000; 128]));
    sim.remember = false;
    sim.feed = Some((64, 100_000));
    sim.start_both();
    for round in 0..6 {
        sim.run_until(sim.now + 50 * MS)?;
        let end = sim.now + 100 * MS;
        sim.link.outage = Span(sim.now, end);
        sim.run_until(end)?;
        let before = sim.ends[1].responders[0].bytes;
        // Time-outs after 10, 30, 70 and 150 ms: back within 50 ms of the end, and a little.
        sim.run_until(end + 80 * MS)?;
        if sim.ends[1].responders[0].bytes == before {
            return Err(format!("round {round}: nothing within 80 ms of the outage"));
        }
    }
    Ok(())
}

macro_rules! holds {
    ($($(#[$doc:meta])* $test:ident: $check:ident;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $test() {
            $check(&Config::default()).unwrap();
        }
    )*};
}

holds! {
    /// RC5: numbers kept raw in wider counters froze at their wrap.
    numbers_survive_every_wrap: numbers_wrap;
    /// MP1: a threshold of three packets cuts goodput to a fifth under reordering.
    paths_of_different_length_cause_no_retransmission: overtaking_is_not_loss;
    /// MP2: a duplicate filter of 129 packets discarded good ones.
    a_packet_100_000_late_is_neither_lost_nor_taken_twice: a_packet_is_late_by_100_000;
    /// MP7: the next expected packet was refused when the tracker was full.
    the_head_is_always_accepted: the_head_is_taken_when_much_is_ahead;
    /// MP9: nothing after a lost tail, so it waited for the time-out.
    a_lost_tail_comes_back_by_a_probe: a_lost_tail_is_probed;
    /// MP10: marks were counted for the wrong path.
    congestion_marks_are_credited_to_the_sending_path: marks_count_for_the_path_that_carried_the_data;
    /// MP15: the window was halved for nothing.
    spurious_losses_are_undone: a_spurious_loss_is_undone;
    a_full_socket_loses_nothing: refused_units_are_offered_again;
    the_time_out_starts_small_after_each_recovery: backoff_is_reset_by_progress;
}

/// RC12: with `timeout` and `retry_cnt` t and n, failure comes within one to four times (n + 1) × t.
#[test]
fn a_silent_peer_is_given_up_within_the_documented_time() {
    for (timeout, retries) in [(14, 7), (14, 0), (16, 3), (18, 1)] {
        let ack_timeout = Duration(4_096 << timeout);
        let config = Config { ack_timeout, retry_count: retries, ..Config::default() };
        for connected in [true, false] {
            let mut sim = Sim::new(1, &config, 1472, Link::new(1, vec![100_000; 128]));
            sim.start(0);
            if connected {
                sim.start(1);
                sim.submit(0, Space::Request, 10_000);
                sim.run_until_done(500 * MS).unwrap();
                assert!(sim.is_done());
            }
            sim.link.outage = Span(sim.now, u64::MAX);
            let from = sim.now;
            sim.submit(0, Space::Request, 10_000);
            sim.run_until_done(200_000 * MS).unwrap();
            let (failure, at) = sim.ends[0].failed.expect("failed");
            let wanted = if connected { Failure::NoAnswer } else { Failure::NoHandshake };
            assert_eq!(failure, wanted);
            let formula = ack_timeout.0 * (u64::from(retries) + 1);
            let took = at - from;
            assert!((formula..=formula * 4).contains(&took), "{timeout} {retries}: {took} of {formula}");
        }
    }
}

/// As a process that is stopped: perftest's attributes (14, 7) outlive it.
#[test]
fn a_peer_that_is_silent_for_a_second_is_not_given_up() {
    for connected in [true, false] {
        let mut sim = Sim::new(1, &Config::default(), 1472, Link::new(1, vec![100_000; 128]));
        sim.start_both();
        if connected {
            sim.submit(0, Space::Request, 10_000);
            sim.run_until_done(100 * MS).unwrap();
            assert!(sim.is_done());
        }
        sim.link.outage = Span(sim.now, sim.now + 1_000 * MS);
        sim.submit(0, Space::Request, 10_000);
        sim.run_until_done(20_000 * MS).unwrap();
        assert!(sim.is_done(), "{connected}: {:?}", sim.ends[0].failed);
    }
}

#[test]
fn an_ack_timeout_of_zero_never_gives_up() {
    let config = Config { ack_timeout: Duration::ZERO, retry_count: 0, ..Config::default() };
    for outage in [0, 100 * MS] {
        let mut sim = Sim::new(1, &config, 1472, Link::new(1, vec![100_000; 128]));
        sim.start_both();
        sim.link.outage = Span(outage, 100_000 * MS);
        sim.run_until(outage).unwrap();
        sim.submit(0, Space::Request, 10_000);
        sim.run_until_done(200_000 * MS).unwrap();
        assert!(sim.is_done() && sim.ends[0].failed.is_none(), "{:?}", sim.ends[0].failed);
    }
}

#[test]
fn an_idle_connection_wakes_nobody() {
    let config = Config::default();
    let mut sim = Sim::new(1, &config, 1472, Link::new(1, vec![100_000; 128]));
    sim.start(0);
    sim.run_until(100 * MS).unwrap();
    assert_eq!(sim.ends[0].conn.next_timeout(), None, "no peer, nothing to send");
    assert_eq!(sim.ends[0].counts.hellos, 1);
    sim.start(1);
    sim.submit(1, Space::Request, 1_000_000);
    sim.run_until_done(500 * MS).unwrap();
    assert!(sim.is_done());
    sim.run_until(2_000 * MS).unwrap();
    for end in &sim.ends {
        assert_eq!(end.conn.next_timeout(), None, "everything has landed");
    }
}

#[test]
fn the_packet_size_is_what_reaches_the_peer() {
    for (interface, network, proven) in
        [(1472, 9000, 1472), (8972, 9000, 8972), (8972, 1472, 1472), (8972, 1400, 1252), (1252, 1252, 1252)]
    {
        let mut link = Link::new(1, vec![100_000; 4]);
        link.mtu_bytes = network;
        let mut sim = Sim::new(1, &Config { paths: 4, ..Config::default() }, interface, link);
        sim.start(0);
        sim.submit(0, Space::Request, 100_000);
        // The other side comes late, after the full size has been tried in vain.
        sim.run_until(25 * MS).unwrap();
        sim.start(1);
        sim.run_until_done(2_000 * MS).unwrap();
        assert!(sim.is_done(), "{interface} {network}");
        assert_eq!(sim.ends[0].counts.connected_mtu, Some(proven), "{interface} {network}");
    }
}

#[test]
fn a_confirmed_peer_is_never_replaced_and_a_learned_one_is() {
    let now = Now(1_000_000);
    let from = "127.0.0.1:4791".parse().unwrap();
    let make = |local, remote, id| {
        let mut who = identity(local, remote, 1472);
        who.connection = ConnectionId(id);
        let mut end = Connection::new(Config::default(), who, Rng::new(id), now).unwrap();
        end.start(now);
        end
    };
    let mut trunk = Trunk::new(&Config::default());
    let (mut a, mut old, mut new) = (make(1, 2, 100), make(2, 1, 200), make(2, 1, 300));
    let hello = |end: &mut Connection| end.poll_hello(now, 1, &mut ()).unwrap();
    let from_old = hello(&mut old);
    assert_eq!(a.on_hello(now, &from_old, from, &mut trunk, &mut ()), HelloOutcome::Known);
    assert_eq!(a.remote_connection(), ConnectionId(200));
    // The peer restarts before it has answered.
    let from_new = hello(&mut new);
    assert_eq!(a.on_hello(now, &from_new, from, &mut trunk, &mut ()), HelloOutcome::Known);
    assert_eq!(a.remote_connection(), ConnectionId(300));
    let from_a = hello(&mut a);
    assert_eq!(new.on_hello(now, &from_a, from, &mut trunk, &mut ()), HelloOutcome::Connected);
    let answer = hello(&mut new);
    assert_eq!(a.on_hello(now, &answer, from, &mut trunk, &mut ()), HelloOutcome::Connected);
    // Replays and other incarnations are foreign from now on.
    assert_eq!(a.on_hello(now, &from_old, from, &mut trunk, &mut ()), HelloOutcome::Foreign);
    assert_eq!(old.on_hello(now, &from_a, from, &mut trunk, &mut ()), HelloOutcome::Foreign);
    let mut other_version = answer;
    other_version.version = 99;
    assert_eq!(a.on_hello(now, &other_version, from, &mut trunk, &mut ()), HelloOutcome::VersionMismatch(99));
    assert_eq!(a.remote_connection(), ConnectionId(300));
}

/// A peer may lie in an acknowledgement; nothing changes, nothing panics.
#[test]
fn an_acknowledgement_of_something_never_sent_is_refused() {
    let mut sim = Sim::new(1, &Config::default(), 1472, Link::new(1, vec![100_000; 128]));
    sim.start_both();
    sim.submit(0, Space::Request, 100_000);
    sim.run_until_done(100 * MS).unwrap();
    sim.link.outage = Span(0, u64::MAX);
    sim.submit(0, Space::Request, 100_000);
    sim.run_until(sim.now + MS / 10).unwrap();
    let honest = Ack {
        dest_qpn: Qpn(17),
        connection: ConnectionId(0),
        path: PathId(0),
        space: Space::Request,
        cumulative: 72,
        landed: 1,
        free_bytes: 1 << 20,
        block_count: 0,
        blocks: [AckBlock::default(); ACK_BLOCKS_MAX],
        unit_count: 0,
        units: [AckUnit::default(); ACK_UNITS_MAX],
    };
    let block = |first, end| {
        let mut ack = honest;
        ack.block_count = 1;
        ack.blocks[0] = AckBlock { first, end };
        ack
    };
    let mut rng = Rng::new(3);
    let now = Now(sim.now);
    let End { conn, trunk, .. } = &mut sim.ends[0];
    let before = conn.snapshot(trunk);
    assert!(before.inflight_bytes > 0);
    for lie in [
        Ack { cumulative: 1_000_000, ..honest },
        Ack { landed: 77, ..honest },
        block(100, 1_000_000),
        block(90, 80),
        Ack { space: Space::Response, cumulative: 1, landed: 0, ..honest },
    ] {
        assert!(conn.on_ack(now, &lie, trunk, &mut ()).is_err(), "{lie:?}");
        assert_eq!(conn.snapshot(trunk), before, "{lie:?}");
    }
    for _ in 0..10_000 {
        let mut noise = honest;
        noise.cumulative = rng.next_u32();
        noise.landed = rng.next_u32();
        noise.block_count = rng.next_u32() as u8;
        noise.blocks = core::array::from_fn(|_| AckBlock { first: rng.next_u32(), end: rng.next_u32() });
        noise.unit_count = 1;
        let transmit = TransmitId(rng.next_u32());
        noise.units[0] = AckUnit { transmit, path: PathId(9), packets: 64, ce: 64, delay_us: 9 };
        let _ = conn.on_ack(now, &noise, trunk, &mut Counts::default());
        assert!(conn.snapshot(trunk).inflight_bytes <= before.inflight_bytes);
    }
}
