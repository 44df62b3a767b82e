//! What went wrong elsewhere on networks that reorder, lose and delay, as public reports tell it. Here it must not.

use srdma_fabric::{
    Change, End, Fabric, FabricConfig, FlowId, Ground, LinkId, Nothing, Notice, Origin, Pattern, Planted,
    Post, Rate, Stop, Time,
};
use srdma_seams::Duration;

use crate::net::{at_rest, config, leaf_spine, received, run, write, GBPS};

fn again<G: Ground>(fabric: &Fabric<G>, flow: FlowId) -> u64 {
    fabric.counts(flow).unwrap().0.retransmitted.iter().sum()
}

/// All links between leaves and spines.
fn uplinks<G: Ground>(fabric: &Fabric<G>) -> Vec<LinkId> {
    let inner = |link: &LinkId| matches!(fabric.ends(*link), (End::Switch(_), End::Switch(_)));
    (0..fabric.links().len() as u32).map(LinkId).filter(inner).collect()
}

/// Settings for end points in hardware, which take little time for a reordering.
fn hardware(paths: u16, seed: u64) -> FabricConfig {
    let mut config = config(paths, seed);
    config.transport.grain = Duration::from_micros(2);
    config
}

/// One flow between two leaves, which has begun to send `bytes` in one message.
fn one_flow(
    config: FabricConfig,
    spines: u32,
    bytes: u32,
    delays_ns: impl Fn(u32) -> u64,
) -> (Fabric<Nothing>, FlowId) {
    let mut graph = leaf_spine(2, 1, spines).graph().unwrap();
    for cable in &mut graph.cables {
        cable.delay = Time::from_nanos(match cable.to {
            End::Switch(switch) if switch >= 2 => delays_ns(switch - 2),
            _ => 100,
        });
    }
    let mut fabric = Fabric::new(config, graph, |_| Nothing).unwrap();
    let flow = fabric.connect(0, 1).unwrap();
    at_rest(&mut fabric);
    fabric.post(write(flow, 0, bytes)).unwrap();
    (fabric, flow)
}

/// A threshold of three packets made 125 Mbit/s of 700 (quinn-rs/quinn#2711). Here round trips differ up to five-fold.
#[test]
fn paths_of_unlike_length_reorder_everything_and_nothing_is_sent_again() {
    for seed in 1..4 {
        let bytes = 32 << 20;
        let (mut fabric, flow) =
            one_flow(hardware(128, seed), 8, bytes, |spine| 500 + u64::from(spine) * 500);
        let begin = fabric.now();
        let notices = run(&mut fabric, 1, begin.after(Time::from_nanos(20_000_000)));
        let took = received(&notices, 0).expect("received").since(begin);
        let goodput = f64::from(bytes) * 8_000.0 / took.0 as f64;
        assert_eq!(again(&fabric, flow), 0, "seed {seed}");
        let (_, receiver) = fabric.counts(flow).unwrap();
        assert!(receiver.ahead_max > 15, "seed {seed}: packets did overtake: {}", receiver.ahead_max);
        let most = 100.0 * 4096.0 / (4096.0 + srdma_wire::DATA_HEADER_BYTES as f64 + 66.0);
        assert!(goodput > 0.95 * most, "seed {seed}: {goodput:.1} of {most:.1} Gbit/s");
    }
}

/// A ceiling for losses below the queueing delay made 93 % of all packets retransmissions (skycoin/skywire#4399).
#[test]
fn a_round_trip_that_grows_tenfold_is_no_loss() {
    for (seed, step_us) in [(1, 100), (2, 300), (3, 20)] {
        let (mut fabric, flow) = one_flow(hardware(128, seed), 4, 64 << 20, |_| 1_000);
        let links = uplinks(&fabric);
        // From about 5 µs there and back to 50.
        for step in 1..=20 {
            let at = fabric.now().after(Time::from_nanos(step * step_us * 1_000));
            fabric.change_at(at, links.clone(), Change::Delay(Time::from_nanos(step * 560)));
        }
        // What the window makes of a delay that looks like a queue is another matter: it may well slow down.
        fabric.run_until(fabric.now().after(Time::from_nanos(20_000_000))).unwrap();
        let (sender, _) = fabric.counts(flow).unwrap();
        let again = again(&fabric, flow);
        assert!(sender.packets > 1_000, "seed {seed}: {sender:?}");
        assert!(again * 50 <= sender.packets, "seed {seed}: {again} of {} packets", sender.packets);
    }
}

/// Acknowledgements that reach only 64 packets beyond a gap let a stream die (skycoin/skywire#4024). One packet is
/// swallowed whenever it is sent; the window stops behind it, and when it is let through everything is there at once.
#[test]
fn one_packet_that_never_comes_stops_the_window_and_nothing_else() {
    let until = Time::from_nanos(3_000_000);
    let mut settings = hardware(128, 5);
    settings.planted = Some(Planted::Swallow { first: 4096 * 100, end: 4096 * 101, until });
    let bytes = 64 << 20;
    let (mut fabric, flow) = one_flow(settings, 4, bytes, |_| 1_000);
    let window = fabric.counts(flow).unwrap().0.window;
    assert_eq!(fabric.run_until(until).unwrap(), Stop::Limit, "nothing is whole yet");
    let (sender, receiver) = fabric.counts(flow).unwrap();
    let packets = u64::from(bytes) / 4096;
    assert!(sender.packets < packets / 2 + 1_000, "the window stops: {} of {packets} sent", sender.packets);
    assert!(u64::from(receiver.ahead_max) * 4096 > window / 2, "and is acknowledged beyond the gap");
    let tries = again(&fabric, flow);
    assert!((3..400).contains(&tries), "{tries} tries of one packet");
    let notices = run(&mut fabric, 1, until.after(Time::from_nanos(30_000_000)));
    assert_eq!(notices.len(), 2, "it goes on");
    let after = again(&fabric, flow) - tries;
    assert!(after < 50, "what was there all along is not sent again: {after}");
}

/// The last packets of a message, after which nothing comes that could tell of a gap.
#[test]
fn a_lost_tail_is_found_by_a_probe_and_not_by_a_time_out() {
    for tail in [1, 8] {
        let bytes: u32 = 1 << 20;
        let (mut clean, _) = one_flow(hardware(128, 3), 4, bytes, |_| 1_000);
        let begin = clean.now();
        let least = received(&run(&mut clean, 1, Time::from_nanos(9_000_000)), 0).unwrap().since(begin);
        let mut settings = hardware(128, 3);
        let first = u64::from(bytes) - tail * 4096;
        // Whatever is sent of it in the first place; the copy comes through.
        let until = begin.after(least);
        settings.planted = Some(Planted::Swallow { first, end: bytes.into(), until });
        let (mut fabric, flow) = one_flow(settings, 4, bytes, |_| 1_000);
        let took = received(&run(&mut fabric, 1, Time::from_nanos(9_000_000)), 0).unwrap().since(begin);
        let (sender, _) = fabric.counts(flow).unwrap();
        assert_eq!(sender.timeouts, 0, "{tail} lost");
        assert!(fabric.audit().unwrap().dropped.0 >= tail, "{tail} lost");
        // A round trip of the idle network is 5 µs; a probe waits two, and ten for end points of this grain.
        let extra = took.since(least);
        assert!(extra < Time::from_nanos(40_000), "{tail} lost: {extra} longer than {least}");
    }
}

/// Back-off that is never taken back (freenet/freenet-core#2459), crashes on loss (uccl-project/uccl#117).
#[test]
fn after_heavy_loss_the_line_rate_comes_back() {
    for (seed, percent) in [(1, 1), (2, 5), (3, 30)] {
        let (mut fabric, flow) = one_flow(hardware(128, seed), 4, 256 << 20, |_| 1_000);
        let (begin, links) = (fabric.now(), uplinks(&fabric));
        fabric.change_at(begin, links.clone(), Change::Loss(percent * 10_000));
        let healed = begin.after(Time::from_nanos(5_000_000));
        fabric.change_at(healed, links, Change::Loss(0));
        // A tenth of the lossy time to come back, then a millisecond at line rate.
        let from = healed.after(Time::from_nanos(500_000));
        fabric.run_until(from).unwrap();
        let (before, lost) = (fabric.counts(flow).unwrap().1.received, fabric.audit().unwrap().dropped.0);
        fabric.run_until(from.after(Time::from_nanos(1_000_000))).unwrap();
        let packets = fabric.counts(flow).unwrap().1.received - before;
        let most =
            Rate::from_bits_per_second(100 * GBPS).unwrap().bytes_in(Time::from_nanos(1_000_000)) / 4242;
        assert!(lost > 10, "{percent} %: {lost} lost");
        assert!(packets * 10 >= most * 9, "{percent} %: {packets} packets of {most} in a millisecond");
    }
}

/// A notice that overtakes the data it tells of (deepseek-ai/DeepEP#40 and others). Whenever the program is told of a
/// message, all bytes of it and of those before it are in place.
#[test]
fn what_a_program_is_told_of_is_there() {
    for seed in 1..4 {
        let (messages, each) = (512, 4096);
        let mut graph = leaf_spine(2, 1, 8).graph().unwrap();
        let mut cables = graph.cables.iter_mut().skip(2);
        (0..16).for_each(|number| cables.next().unwrap().delay = Time::from_nanos(400 + 900 * (number % 8)));
        let memory = messages * each;
        let mut fabric = Fabric::new(hardware(128, seed), graph, |_| Pattern::new(memory as usize)).unwrap();
        let flow = fabric.connect(0, 1).unwrap();
        at_rest(&mut fabric);
        let lossy = uplinks(&fabric)[..4].to_vec();
        fabric.change_at(fabric.now(), lossy, Change::Loss(20_000));
        for message in 0..messages {
            let at = u64::from(message * each);
            fabric.post(Post { local: at, remote: at, ..write(flow, message, each) }).unwrap();
        }
        let (mut told, mut notices) = (0, Vec::new());
        while told < messages {
            let stop = fabric.run_until(Time::from_nanos(20_000_000)).unwrap();
            assert_eq!(stop, Stop::Notices, "seed {seed}: {told} of {messages}");
            fabric.take_notices(&mut notices);
            for notice in notices.drain(..) {
                let Notice::Received { message, .. } = notice else { continue };
                assert_eq!(message, told, "seed {seed}: in order");
                told += 1;
                let origin = Origin { host: 0, address: 0 };
                let all = fabric.ground(1).unwrap().check(0, u64::from(told * each), origin);
                assert_eq!(all, Ok(()), "seed {seed}: message {message}");
            }
        }
        let (_, receiver) = fabric.counts(flow).unwrap();
        assert!(receiver.ahead_max > 20, "seed {seed}: packets did overtake");
    }
}
