//! Peers that die, leave, come back, or never were.

use std::time::{Duration, Instant};

use srdma_abi::{Cause, Completion, Opcode, QpAttributes, QpInit, QpState, WcStatus};

use crate::ground::part::{hear, part, say, this_test, Part};
use crate::ground::*;

const BYTES: u64 = 1 << 20;
/// Where every peer has its memory, so that a restarted one has the same.
const PLACE: u64 = 0x6a00_0000_0000;

/// A target in a process of its own. `wanted` is the queue-pair number that it must have, if any.
fn peer(words: &[String]) {
    let address = words[1].parse().unwrap();
    let wanted = words.get(2).map(|word| word.parse::<u32>().unwrap());
    let host = Host::open(address, &options());
    let memory = Memory::new_at(PLACE, BYTES);
    let rkey = host.register(&memory, ALL);
    let end = numbered(host, wanted);
    say(format!("{} {rkey}", end.qp.number()));
    let text = hear();
    let (address, qpn) = text.split_once(' ').unwrap();
    end.connect(Name { address: address.parse().unwrap(), qpn: qpn.parse().unwrap() }, &attributes());
    say("ready");
    loop {
        match &hear()[..] {
            "exit" => std::process::exit(0),
            // The sum of the first half of the memory, which the old connection writes to.
            "memory" => say(memory.load(0, BYTES / 2).iter().map(|&byte| u64::from(byte)).sum::<u64>()),
            "foreign" => say(&end.counters()["dropped"]["foreign_connection"]),
            "state" => say(format!("{:?}", end.state())),
            other => panic!("{other}?"),
        }
    }
}

/// A queue pair with that number: they are handed out in turn, from a random one on.
fn numbered(host: &'static Host, wanted: Option<u32>) -> End {
    let Some(wanted) = wanted else { return End::new(host, Shape::default()) };
    let cq = host.device.create_cq(4, None).unwrap();
    let init = QpInit { pd: host.pd, send_cq: cq.number(), recv_cq: cq.number(), ..QpInit::default() };
    for _ in 0..1 << 16 {
        let qp = host.device.create_qp(&init).unwrap();
        let next = qp.number().wrapping_add(1);
        qp.destroy().unwrap();
        if next == wanted {
            let end = End::new(host, Shape::default());
            assert_eq!(end.qp.number(), wanted);
            return end;
        }
    }
    panic!("number {wanted} never came");
}

/// Starts a peer at `name.address` for `end`, and connects it.
struct Remote {
    process: Part,
    name: Name,
    rkey: u32,
}

impl Remote {
    fn start(test: &str, end: &End, place: Name, ours: &QpAttributes) -> Remote {
        let number = if place.qpn == 0 { String::new() } else { format!(" {}", place.qpn) };
        let mut process = Part::start(test, &format!("peer {}{number}", place.address));
        let text = process.hear();
        let (qpn, rkey) = text.split_once(' ').unwrap();
        let name = Name { qpn: qpn.parse().unwrap(), ..place };
        end.connect(name, ours);
        process.say(format!("{} {}", end.host.address, end.qp.number()));
        assert_eq!(process.hear(), "ready");
        Remote { process, name, rkey: rkey.parse().unwrap() }
    }

    fn ask(&mut self, what: &str) -> String {
        self.process.say(what);
        self.process.hear()
    }
}

/// Keeps requests on their way, takes `count` completions, then calls `then` and waits for the failure.
fn until_failure(end: &End, remote: &mut Remote, opcode: Opcode, then: fn(&mut Remote)) -> Completion {
    let (here, lkey) = end.host.region(BYTES);
    let rkey = remote.rkey;
    let post = |wr_id| {
        let request = entry(opcode, wr_id, &[sge(&here, 0, BYTES as u32, lkey)]);
        end.post(to_remote(request, PLACE, rkey));
    };
    (0..4).for_each(post);
    let step = |wr_id| {
        let completion = end.sent(1)[0];
        if completion.status == 0 {
            post(wr_id);
        }
        completion
    };
    for wr_id in 4..10 {
        assert_eq!(step(wr_id).status, 0, "before anything is wrong");
    }
    then(remote);
    // A peer that was asked to go may serve a little longer.
    (10..5_000).map(step).find(|completion| completion.status != 0).expect("a failure")
}

#[test]
fn a_killed_peer_is_noticed_within_the_documented_time() {
    if let Some(words) = part() {
        return peer(&words);
    }
    // 4.096 µs × 2^17 for each of three tries.
    let documented = Duration::from_nanos(4096 << 17) * 3;
    let ours = QpAttributes { timeout: 17, retry_cnt: 2, ..attributes() };
    for opcode in [Opcode::Write, Opcode::Read] {
        let [here, there] = addresses();
        let end = End::new(Host::open(here, &options()), Shape::default());
        let place = Name { address: there, qpn: 0 };
        let mut remote = Remote::start(this_test!(), &end, place, &ours);
        let begun = Instant::now();
        let failure = until_failure(&end, &mut remote, opcode, |remote| remote.process.kill());
        assert!(begun.elapsed() < documented * 4, "{opcode:?}: {:?}", begun.elapsed());
        assert_eq!(failure.status, WcStatus::RetryExcErr as u8);
        assert_eq!(failure.vendor_err, Cause::NoAnswer as u32, "{opcode:?}");
        let rest = end.sent(3);
        assert!(rest.iter().all(|c| c.vendor_err == Cause::Flushed as u32), "{rest:?}");
        assert_eq!(end.state(), QpState::Err);
    }
}

#[test]
fn a_peer_that_exits_under_traffic_says_goodbye() {
    if let Some(words) = part() {
        return peer(&words);
    }
    // No time-out: nothing but the farewell can end it.
    let ours = QpAttributes { timeout: 0, ..attributes() };
    for opcode in [Opcode::Write, Opcode::Read] {
        let [here, there] = addresses();
        let end = End::new(Host::open(here, &options()), Shape::default());
        let place = Name { address: there, qpn: 0 };
        let mut remote = Remote::start(this_test!(), &end, place, &ours);
        let failure = until_failure(&end, &mut remote, opcode, |remote| remote.process.say("exit"));
        assert_eq!(failure.status, WcStatus::RetryExcErr as u8);
        assert_eq!(failure.vendor_err, Cause::PeerClosed as u32, "{opcode:?}");
    }
}

#[test]
fn a_restarted_peer_with_the_same_numbers_is_not_mistaken_for_the_old_one() {
    if let Some(words) = part() {
        return peer(&words);
    }
    let [here, there] = addresses();
    let host = Host::open(here, &options());
    let (old, new) = (End::new(host, Shape::default()), End::new(host, Shape::default()));
    // The old queue pair keeps trying through the whole test.
    let patient = QpAttributes { timeout: 0, ..attributes() };
    let place = Name { address: there, qpn: 0 };
    let mut first = Remote::start(this_test!(), &old, place, &patient);
    let (memory, lkey) = host.region(BYTES);
    memory.fill(1);
    let write = |wr_id, at: u64, rkey| {
        let request = entry(Opcode::Write, wr_id, &[sge(&memory, 0, 4096, lkey)]);
        to_remote(request, PLACE + at, rkey)
    };
    assert_eq!(outcomes(&[old.run(write(1, 0, first.rkey))]), [done(1)]);
    first.process.kill();
    for wr_id in 2..10 {
        old.post(write(wr_id, 4096 * wr_id, first.rkey));
    }

    let mut second = Remote::start(this_test!(), &new, first.name, &attributes());
    assert_eq!(second.name.qpn, first.name.qpn, "the number is the same");
    assert_eq!(second.rkey, first.rkey, "and the key, by the seed: nothing but the connection differs");
    for wr_id in 0..50 {
        assert_eq!(outcomes(&[new.run(write(wr_id, BYTES / 2, second.rkey))]), [done(wr_id)]);
    }
    wait("packets of the old connection", &[host], || {
        (second.ask("foreign").parse::<u64>().unwrap() > 3).then_some(())
    });
    // Nor does the old connection's farewell end the new one.
    old.qp.destroy().unwrap();
    for wr_id in 0..50 {
        assert_eq!(outcomes(&[new.run(write(wr_id, BYTES / 2, second.rkey))]), [done(wr_id)]);
    }
    assert_eq!(second.ask("memory"), "0", "the old connection wrote to the new peer");
    assert_eq!(second.ask("state"), "Rts");
}

#[test]
fn a_peer_that_is_not_there_is_an_error_that_says_so() {
    let [here, there] = addresses();
    let host = Host::open(here, &options());
    let stranger = Host::open(there, &options());
    let bystander = End::new(stranger, Shape::default());
    let ours = QpAttributes { timeout: 10, retry_cnt: 1, ..attributes() };
    // A port that nobody owns; a number that its owner does not have; a queue pair that never gets ready.
    let nobody = [0xc8_0005, bystander.qp.number() ^ 0x8000, bystander.qp.number()];
    for qpn in nobody {
        let end = End::new(host, Shape::default());
        end.connect(Name { address: there, qpn }, &ours);
        end.post(entry(Opcode::Send, 1, &[]));
        end.post(entry(Opcode::Send, 2, &[]));
        let expected = [failed(1, Cause::NoHandshake), failed(2, Cause::Flushed)];
        assert_eq!(outcomes(&end.sent(2)), expected, "{qpn:#x}");
        assert_eq!(end.state(), QpState::Err);
    }
    let dropped = &stranger.report()["dropped"];
    assert!(dropped["unknown_qp"].as_u64().unwrap() > 0, "{dropped}");
}

#[test]
fn a_peer_that_gets_ready_late_is_waited_for() {
    let [a, b] = addresses().map(|address| Host::open(address, &options()));
    let (first, second) = (End::new(a, Shape::default()), End::new(b, Shape::default()));
    first.connect(second.name(), &attributes());
    first.post(entry(Opcode::Send, 1, &[]));
    wait("a greeting to nobody", &[a, b], || {
        let dropped = b.counters(second.qp.number())["dropped"]["qp_state"].as_u64()?;
        (dropped > 1).then_some(())
    });
    second.init(&attributes());
    second.post_recv(2, &[]);
    second.start(first.name(), &attributes());
    assert_eq!(outcomes(&second.received(1)), [done(2)]);
    assert_eq!(outcomes(&first.sent(1)), [done(1)]);
}
