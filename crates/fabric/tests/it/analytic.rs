//! Times that can be computed by hand.

use srdma_fabric::{Fabric, Nothing, Rate, Time};

use crate::net::{at_rest, config, leaf_spine, received, run, write, GBPS};

const HEADER: u64 = 72;
const FRAMING: u64 = 66;

#[test]
fn one_packet_takes_serialisation_and_propagation() {
    let rate = Rate::from_bits_per_second(100 * GBPS).unwrap();
    for (to, bytes) in [(1, 0), (1, 64), (1, 4096), (2, 64), (2, 4096)] {
        let graph = leaf_spine(2, 2, 4).graph().unwrap();
        let mut fabric = Fabric::new(config(128, 3), graph, |_| Nothing).unwrap();
        let flow = fabric.connect(0, to).unwrap();
        at_rest(&mut fabric);
        let begin = fabric.now();
        fabric.post(write(flow, 7, bytes)).unwrap();
        let notices = run(&mut fabric, 1, begin.after(Time::from_nanos(1_000_000)));
        let took = received(&notices, 7).expect("arrives").since(begin);
        let each = rate.serialisation(u64::from(bytes) + HEADER + FRAMING).0;
        let wanted = match to {
            1 => 2 * each + 2 * 600_000,
            _ => 4 * each + 2 * 600_000 + 2 * 900_000,
        };
        assert_eq!(took, Time(wanted), "{bytes} bytes to host {to}");
    }
}

#[test]
fn one_flow_on_an_idle_network_has_the_line_rate_less_headers() {
    for paths in [1, 128] {
        let graph = leaf_spine(2, 2, 4).graph().unwrap();
        let mut fabric = Fabric::new(config(paths, 5), graph, |_| Nothing).unwrap();
        let flow = fabric.connect(0, 2).unwrap();
        at_rest(&mut fabric);
        let begin = fabric.now();
        let bytes = 32 << 20;
        fabric.post(write(flow, 0, bytes)).unwrap();
        let notices = run(&mut fabric, 1, begin.after(Time::from_nanos(50_000_000)));
        let took = received(&notices, 0).expect("arrives").since(begin);
        let goodput = f64::from(bytes) * 8_000.0 / took.0 as f64;
        let ideal = 100.0 * 4096.0 / (4096 + HEADER + FRAMING) as f64;
        assert!((0.99..=1.0).contains(&(goodput / ideal)), "{paths} paths: {goodput} of {ideal} Gbit/s");
        let (sender, _) = fabric.counts(flow).unwrap();
        assert_eq!(sender.packets, u64::from(bytes) / 4096, "nothing is sent twice");
    }
}

#[test]
fn many_to_one_shares_the_receivers_link() {
    let graph = leaf_spine(2, 8, 4).graph().unwrap();
    let mut fabric = Fabric::new(config(64, 9), graph, |_| Nothing).unwrap();
    let flows: Vec<_> = (8..16).map(|host| fabric.connect(host, 0).unwrap()).collect();
    at_rest(&mut fabric);
    let begin = fabric.now();
    let bytes = 2 << 20;
    for (message, flow) in flows.iter().enumerate() {
        fabric.post(write(*flow, message as u32, bytes)).unwrap();
    }
    let notices = run(&mut fabric, flows.len(), begin.after(Time::from_nanos(50_000_000)));
    let last = (0..8).map(|message| received(&notices, message).expect("arrives")).max().unwrap();
    let ideal = 8.0 * f64::from(bytes) * 8.0 * (4096 + HEADER + FRAMING) as f64 / 4096.0 / 100.0;
    let took = last.since(begin).0 as f64 / 1_000.0;
    assert!((1.0..1.2).contains(&(took / ideal)), "{took} ns, at least {ideal} ns");
}
