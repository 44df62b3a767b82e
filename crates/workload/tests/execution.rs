//! Programs and plans carried out in mind: messages arrive in any order, and what must hold holds.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};

use srdma_seams::Rng;
use srdma_workload::{
    Course, Exchange, Execution, Pattern, Permutation, Program, Repeat, Told, What, Wish, Written,
};

/// What happened, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Posted { from: u32, to: u32, bytes: u32 },
    Received { from: u32, to: u32 },
    Landed { from: u32, to: u32 },
}

/// Carries a course out: what is next is left to chance, but messages between two members come in order, as on a queue
/// pair. Ends when nothing is under way, or after `steps`.
struct Mind {
    rng: Rng,
    now_ps: u64,
    /// Messages posted, by their ends; of each, how many of the two things have been told.
    flows: BTreeMap<(u32, u32), VecDeque<(u32, bool)>>,
    landing: Vec<(u32, u32, u32)>,
    sleepers: Vec<(u64, u32)>,
    seen: Vec<Seen>,
    times: Vec<u64>,
}

impl Mind {
    fn new(seed: u64) -> Mind {
        let rng = Rng::stream(seed, "mind", 0);
        let (flows, landing, sleepers) = (BTreeMap::new(), Vec::new(), Vec::new());
        Mind { rng, now_ps: 0, flows, landing, sleepers, seen: Vec::new(), times: Vec::new() }
    }

    fn carry_out(&mut self, course: &mut dyn Course, steps: usize) {
        let mut wishes = Vec::new();
        course.begin(&mut wishes);
        for _ in 0..steps {
            self.take(&mut wishes);
            let Some(told) = self.next() else { return };
            course.told(self.now_ps, told, &mut wishes);
        }
    }

    fn take(&mut self, wishes: &mut Vec<Wish>) {
        for wish in wishes.drain(..) {
            match wish {
                Wish::Send { token, from, to, bytes } => {
                    let under_way = self.flows.values().flatten().any(|&(other, _)| other == token);
                    assert!(!under_way, "a token of a message under way is used again");
                    assert!(from != to && bytes > 0);
                    self.flows.entry((from, to)).or_default().push_back((token, false));
                    self.note(Seen::Posted { from, to, bytes });
                }
                Wish::Wake { token, at_ps } => {
                    assert!(at_ps >= self.now_ps);
                    self.sleepers.push((at_ps, token));
                }
            }
        }
    }

    fn note(&mut self, seen: Seen) {
        self.seen.push(seen);
        self.times.push(self.now_ps);
    }

    fn next(&mut self) -> Option<Told> {
        self.flows.retain(|_, queue| !queue.is_empty());
        let choices = self.flows.len() + self.landing.len();
        if choices == 0 || (!self.sleepers.is_empty() && self.rng.below(20) == 0) {
            let (index, _) = self.sleepers.iter().enumerate().min_by_key(|(_, sleeper)| **sleeper)?;
            let (at_ps, token) = self.sleepers.remove(index);
            self.now_ps = at_ps;
            return Some(Told::Woken(token));
        }
        let choice = self.rng.below(choices as u64) as usize;
        if choice < self.landing.len() {
            let (from, to, token) = self.landing.swap_remove(choice);
            self.note(Seen::Landed { from, to });
            return Some(Told::Sent(token));
        }
        let (&(from, to), queue) = self.flows.iter_mut().nth(choice - self.landing.len())?;
        let (token, _) = queue.pop_front()?;
        self.landing.push((from, to, token));
        self.note(Seen::Received { from, to });
        Some(Told::Received(token))
    }

    fn count(&self, wanted: impl Fn(&Seen) -> bool) -> usize {
        self.seen.iter().filter(|seen| wanted(seen)).count()
    }
}

fn one(pattern: Pattern, members: u32, slices: u32) -> Program {
    let mut program = Program::new(members);
    let everybody = program.everybody();
    program.push(What::Exchange(Exchange { pattern, bytes: 1 << 20, slices }), everybody, &[]);
    program.validate().unwrap();
    program
}

fn planned(program: &Program) -> BTreeMap<(u32, u32), u64> {
    let mut planned = BTreeMap::new();
    program.traffic(|traffic| *planned.entry((traffic.from, traffic.to)).or_default() += traffic.count);
    planned
}

const PATTERNS: [Pattern; 7] = [
    Pattern::AllReduceRing,
    Pattern::ReduceScatterRing,
    Pattern::AllGatherRing,
    Pattern::AllReduceHalving,
    Pattern::AllToAll { parallel: 3 },
    Pattern::Incast,
    Pattern::Outcast { parallel: 2 },
];

/// Whatever the order, every message is posted once, as often as the summary says, and every round ends.
#[test]
fn every_message_is_posted_once_in_every_round() {
    for (number, pattern) in PATTERNS.into_iter().enumerate() {
        for seed in 0..8 {
            let (program, rounds) = (one(pattern, 8, 1 + seed as u32 % 3), 3);
            let mut mind = Mind::new(seed * 100 + number as u64);
            let mut course = Execution::new(program.clone(), Repeat { times: Some(rounds), bursts: None });
            mind.carry_out(&mut course, 1 << 20);
            assert!(course.is_done(), "{pattern:?}, seed {seed}");
            assert_eq!(course.rounds().len(), 3);
            let mut posted = BTreeMap::new();
            for seen in &mind.seen {
                if let Seen::Posted { from, to, .. } = *seen {
                    *posted.entry((from, to)).or_insert(0u64) += 1;
                }
            }
            let wanted: BTreeMap<_, _> = planned(&program)
                .into_iter()
                .map(|(ends, count)| (ends, count * u64::from(rounds)))
                .collect();
            assert_eq!(posted, wanted, "{pattern:?}, seed {seed}");
        }
    }
}

/// In a ring and in halving and doubling, nobody sends its step before the message of the step before has come.
#[test]
fn no_step_overtakes_the_one_before() {
    for pattern in [Pattern::AllReduceRing, Pattern::AllReduceHalving] {
        for seed in 0..20 {
            let mut mind = Mind::new(seed);
            mind.carry_out(&mut Execution::new(one(pattern, 8, 1), Repeat::ONCE), 1 << 20);
            let (mut sent, mut came) = ([0; 8], [0; 8]);
            for seen in &mind.seen {
                match *seen {
                    Seen::Posted { from, .. } => {
                        assert!(sent[from as usize] <= came[from as usize], "{pattern:?}, seed {seed}");
                        sent[from as usize] += 1;
                    }
                    Seen::Received { to, .. } => came[to as usize] += 1,
                    Seen::Landed { .. } => {}
                }
            }
            assert_eq!(sent, came);
        }
    }
}

#[test]
fn no_more_messages_are_on_their_way_than_allowed() {
    for (pattern, allowed) in [(Pattern::AllToAll { parallel: 3 }, 3), (Pattern::Outcast { parallel: 2 }, 2)]
    {
        let mut mind = Mind::new(5);
        mind.carry_out(&mut Execution::new(one(pattern, 16, 1), Repeat::ONCE), 1 << 20);
        let (mut under_way, mut most) = ([0i32; 16], 0);
        for seen in &mind.seen {
            match *seen {
                Seen::Posted { from, .. } => under_way[from as usize] += 1,
                Seen::Landed { from, .. } => under_way[from as usize] -= 1,
                Seen::Received { .. } => {}
            }
            most = most.max(*under_way.iter().max().unwrap());
        }
        assert_eq!(most, allowed, "{pattern:?}");
    }
}

/// Members wait for what they take part in and for nothing else; computing takes its time.
#[test]
fn members_wait_for_their_own_operations() {
    let mut program = Program::new(4);
    let everybody = program.everybody();
    let pair = program.groups(2, vec![0, 1]);
    let two_pairs = program.groups(2, vec![0, 1, 2, 3]);
    let ring = |bytes| What::Exchange(Exchange { pattern: Pattern::AllReduceRing, bytes, slices: 1 });
    let slow = program.push(What::Compute(100), pair, &[]);
    let late = program.push(What::Until(30), everybody, &[]);
    program.push(ring(64), two_pairs, &[slow, late]);
    program.validate().unwrap();
    let mut mind = Mind::new(1);
    let mut course = Execution::new(program, Repeat::ONCE);
    mind.carry_out(&mut course, 1 << 20);
    assert!(course.is_done() && course.rounds()[0].to_ps == 100);
    let first = |member: u32| {
        let posted = |seen: &Seen| matches!(*seen, Seen::Posted { from, .. } if from == member);
        mind.times[mind.seen.iter().position(posted).unwrap()]
    };
    assert_eq!([0, 1, 2, 3].map(first), [100, 100, 30, 30]);
}

#[test]
fn work_without_end_pauses_between_bursts_and_goes_on() {
    let burst = Repeat { times: None, bursts: Some((1_000, 500)) };
    let permutation = Permutation { hosts: 4, bytes: 100, message_bytes: 60, seed: 3 };
    let mut program = one(Pattern::AllReduceRing, 4, 1);
    let everybody = program.everybody();
    program.push(What::Compute(400), everybody, &[]);
    let mut courses: [Box<dyn Course>; 2] = [
        Box::new(Execution::new(program, burst)),
        Box::new(Written::new(permutation.plan().unwrap(), burst)),
    ];
    for course in &mut courses {
        let mut mind = Mind::new(2);
        mind.carry_out(course.as_mut(), 20_000);
        assert!(!course.is_done() && course.rounds().len() > 20);
        assert!(course.rounds().iter().all(|span| span.from_ps % 1_500 < 1_000), "{:?}", course.rounds());
    }
    assert!(courses[0].rounds().last().unwrap().from_ps >= 1_500, "some pause was kept");
}

#[test]
fn plans_are_carried_out_round_after_round() {
    let permutation = Permutation { hosts: 6, bytes: 100, message_bytes: 60, seed: 3 };
    let mut course = Written::new(permutation.plan().unwrap(), Repeat { times: Some(3), bursts: None });
    let mut mind = Mind::new(9);
    mind.carry_out(&mut course, 1 << 20);
    assert!(course.is_done());
    assert_eq!(mind.count(|seen| matches!(seen, Seen::Posted { .. })), 6 * 2 * 3);
}

#[test]
fn programs_that_cannot_be_carried_out_are_refused() {
    let mut program = Program::new(4);
    for members in [vec![0, 1, 2], vec![0, 0], vec![2, 4], vec![]] {
        let mut bad = program.clone();
        let groups = bad.groups(2, members.clone());
        bad.push(What::Compute(1), groups, &[]);
        let error = bad.validate().expect_err("no groups").to_string();
        assert!(error.contains("do not make groups of 2"), "{members:?}: {error}");
    }
    let everybody = program.everybody();
    let mut other = program.clone();
    let (first, second) =
        (other.push(What::Compute(1), everybody, &[]), other.push(What::Compute(1), everybody, &[]));
    assert_ne!(first, second);
    program.push(What::Compute(1), everybody, &[second]);
    let error = program.validate().expect_err("a dependency that does not exist").to_string();
    assert!(error.contains("waits for message 1"), "{error}");
}
