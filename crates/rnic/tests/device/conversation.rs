//! Programs that answer each other: their acknowledgements travel with the answers, and nobody waits in vain.

use srdma_abi::{Opcode, QpState};
use srdma_seams::{Duration, MrKey};
use srdma_transport::ANSWER_WAIT;
use srdma_wire::Packet;

use crate::host::Sent;
use crate::net::*;

const SECOND: Duration = Duration::from_secs(1);
/// More than the way there and less than an ACK waits.
const A_MOMENT: Duration = Duration::from_micros(10);

struct Talk {
    net: Net,
    ends: [QpRef; 2],
    keys: [MrKey; 2],
}

impl Talk {
    fn new(seed: u64, ways: Faults) -> Talk {
        let (mut net, a, b) = Net::connected(seed, Options { faults: ways, ..Options::default() });
        let keys = [net.region(0, 0, 1 << 16, ALL), net.region(1, 0, 1 << 16, ALL)];
        for host in &mut net.hosts {
            host.world.acks_may_wait = true;
        }
        for _ in 0..64 {
            net.post_recv(a, 1, &[sge(4096, 4096, keys[0])]);
            net.post_recv(b, 1, &[sge(4096, 4096, keys[1])]);
        }
        Talk { net, ends: [a, b], keys }
    }

    fn say(&mut self, side: usize, opcode: Opcode) {
        let message = entry(opcode, 7, &[sge(0, 8, self.keys[side])]);
        self.net.post(self.ends[side], to_remote(message, 512, self.keys[1 - side]));
    }

    /// So many messages, turn about, each answered after a moment.
    fn turns(&mut self, turns: usize, opcode: Opcode) {
        for turn in 0..turns {
            self.say(turn % 2, opcode);
            self.net.run_for(A_MOMENT);
        }
    }

    fn lone_acks(&mut self, work: impl FnOnce(&mut Talk)) -> (u64, u64) {
        let with_data =
            |talk: &Talk| talk.net.hosts.iter().map(|host| host.world.acks_with_data).sum::<u64>();
        let before = with_data(self);
        self.net.record = Some(vec![]);
        work(self);
        let is_ack = |sent: &&(usize, Sent)| matches!(sent.1.packet, Packet::Ack(_));
        let acks = self.net.record.take().unwrap().iter().filter(is_ack).count() as u64;
        let rode = with_data(self) - before;
        (acks - rode, rode)
    }

    /// Completions of sends and their statuses.
    fn sent(&mut self, side: usize) -> Vec<u32> {
        let end = self.ends[side];
        self.net.poll(end, end.send_cq).iter().map(|done| u32::from(done.status)).collect()
    }
}

#[test]
fn acks_travel_with_prompt_answers() {
    for opcode in [Opcode::Send, Opcode::Write, Opcode::WriteImm] {
        let mut talk = Talk::new(1, Faults::NONE);
        talk.turns(20, opcode);
        let (alone, rode) = talk.lone_acks(|talk| talk.turns(20, opcode));
        assert_eq!((alone, rode), (0, 20), "{opcode:?}");
        // The last one has no answer; its sender is told all the same, and nobody probes.
        let (alone, rode) = talk.lone_acks(|talk| talk.net.run_for(SECOND));
        assert_eq!((alone, rode), (1, 0), "{opcode:?}");
        for side in 0..2 {
            assert_eq!(talk.sent(side), [0; 20], "{opcode:?}");
        }
    }
}

#[test]
fn reads_and_atomics_one_after_the_other_need_no_ack_of_their_own() {
    for opcode in [Opcode::Read, Opcode::FetchAdd] {
        let mut talk = Talk::new(2, Faults::NONE);
        let ask = |talk: &mut Talk| {
            talk.say(0, opcode);
            talk.net.run_for(Duration::from_micros(20));
        };
        (0..10).for_each(|_| ask(&mut talk));
        let (alone, rode) = talk.lone_acks(|talk| (0..10).for_each(|_| ask(talk)));
        assert_eq!(
            (alone, rode),
            (0, 20),
            "{opcode:?}: each answer acknowledges a request, each request an answer"
        );
        assert_eq!(talk.sent(0), [0; 20]);
    }
}

#[test]
fn an_ack_whose_answer_does_not_come_waits_no_longer_than_it_may() {
    let mut talk = Talk::new(3, Faults::NONE);
    talk.turns(20, Opcode::Send);
    talk.say(0, Opcode::Send);
    talk.sent(0);
    talk.net.run_for(ANSWER_WAIT);
    assert_eq!(talk.sent(0).len(), 0, "it takes the ways there and back, too");
    talk.net.run_for(Duration::from_micros(11));
    assert_eq!(talk.sent(0), [0]);
    let (alone, _) = talk.lone_acks(|talk| {
        for _ in 0..10 {
            talk.say(0, Opcode::Send);
            talk.net.run_for(Duration::from_micros(11));
            assert_eq!(talk.sent(0), [0], "who is not answered hears at once");
        }
    });
    assert_eq!(alone, 10);
}

/// The end of a queue pair is also the end of what it could have answered.
#[test]
fn an_ack_that_waits_is_sent_before_its_queue_pair_ends() {
    type End = fn(&mut Talk);
    let ends: [(&str, End); 3] = [
        ("destroyed", |talk| {
            let qp = talk.ends[1];
            talk.net.destroy(qp);
        }),
        ("reset", |talk| {
            let qp = talk.ends[1];
            talk.net.go(qp, QpState::Reset);
        }),
        ("put into the error state", |talk| {
            let qp = talk.ends[1];
            talk.net.go(qp, QpState::Err);
        }),
    ];
    for (how, end) in ends {
        for opcode in [Opcode::Send, Opcode::Write] {
            let mut talk = Talk::new(4, Faults::NONE);
            talk.turns(20, opcode);
            talk.sent(0);
            talk.say(0, opcode);
            talk.net.run_for(A_MOMENT);
            assert_eq!(talk.sent(0), [], "{how}: it waits");
            end(&mut talk);
            talk.net.run_for(A_MOMENT);
            assert_eq!(talk.sent(0), [0], "{how}, {opcode:?}");
        }
    }
}

#[test]
fn conversations_go_on_over_ways_that_lose() {
    for seed in 0..200 {
        let mut talk = Talk::new(seed, Faults { loss_ppm: 50_000, path_spread_ns: 20_000, ..Faults::NONE });
        let mut rode = 0;
        for turn in 0..60 {
            let side = turn % 2;
            talk.say(side, Opcode::Send);
            let other = talk.ends[1 - side];
            let came = talk.net.run_until(SECOND, |net| !net.poll(other, other.recv_cq).is_empty());
            assert!(came, "seed {seed}, turn {turn}");
        }
        rode += talk.net.hosts.iter().map(|host| host.world.acks_with_data).sum::<u64>();
        talk.net.run_for(SECOND);
        assert_eq!([0, 1].map(|side| talk.sent(side)), [[0; 30], [0; 30]], "seed {seed}");
        assert!(rode > 0, "seed {seed}");
    }
}
