//! A program under way.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::course::{Course, Repeat, Span, Told, Wish};
use crate::pattern::{Exchange, Gate};
use crate::program::{Op, Program, What};

/// Messages of one chain of a member in an exchange.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    /// The next step to send.
    next: u32,
    /// Messages that have landed.
    landed: u32,
    /// Steps whose message has come, without a gap.
    came: u32,
    /// Those after the first gap: bit *n* is step `came` + 1 + *n*.
    ahead: u64,
}

/// A member's share of an operation.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    has_begun: bool,
    is_through: bool,
    /// Messages that have still to come, and to land.
    to_come: u32,
    to_land: u32,
}

/// An operation in a round; empty before its first member begins, and when its last is through.
#[derive(Clone, Debug, Default)]
struct State {
    is_through: bool,
    /// By place.
    shares: Vec<Share>,
    /// By place, then slice.
    chains: Vec<Chain>,
    /// Shares that are not through.
    left: u32,
}

#[derive(Clone, Debug)]
struct Round {
    states: Vec<State>,
    /// Operations that each member is not through with.
    left: Vec<u32>,
    members_left: u32,
    from_ps: u64,
}

/// A message under way. Places are those in the operation's groups.
#[derive(Clone, Copy, Debug)]
struct Flight {
    round: u32,
    op: u32,
    from: u32,
    to: u32,
    slice: u32,
    step: u32,
    /// Of received and landed, what has not been told.
    untold: u8,
}

/// Who wanted to be woken.
#[derive(Clone, Copy, Debug)]
enum Sleeper {
    Share { round: u32, op: u32, place: u32 },
    Member { round: u32, member: u32 },
}

/// Values under small numbers that are used again.
#[derive(Clone, Debug)]
struct Slots<T> {
    values: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Slots<T> {
    fn new() -> Slots<T> {
        Slots { values: Vec::new(), free: Vec::new() }
    }

    fn put(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.values[slot as usize] = value;
                slot
            }
            None => {
                self.values.push(value);
                self.values.len() as u32 - 1
            }
        }
    }
}

/// See [`Course`]. Memory grows with the members of operations under way and with messages on their way, not with all
/// messages.
#[derive(Clone, Debug)]
pub struct Execution {
    program: Program,
    repeat: Repeat,
    /// Operations that come after each.
    later: Vec<Vec<u32>>,
    /// Operations with which each member begins a round; operations that each takes part in.
    first: Vec<Vec<u32>>,
    takes_part: Vec<u32>,
    /// Number of the first round under way; those from it on.
    oldest: u32,
    rounds: VecDeque<Round>,
    /// When each round may begin, as far as somebody has asked.
    opens: Vec<u64>,
    flights: Slots<Flight>,
    sleepers: Slots<Sleeper>,
    /// Shares that may begin: round, operation, place.
    ready: Vec<(u32, u32, u32)>,
    spans: Vec<Span>,
    now_ps: u64,
}

impl Execution {
    /// `program` must be valid ([`Program::validate`]).
    pub fn new(program: Program, repeat: Repeat) -> Execution {
        let members = program.members() as usize;
        let mut later = vec![Vec::new(); program.ops().len()];
        let (mut first, mut takes_part) = (vec![Vec::new(); members], vec![0; members]);
        for (number, op) in program.ops().iter().enumerate() {
            op.after.iter().for_each(|&after| later[after as usize].push(number as u32));
            for &member in &program.groups_of(op).members {
                takes_part[member as usize] += 1;
                let waits = |&after: &u32| takes(&program, after, member).is_some();
                if !op.after.iter().any(waits) {
                    first[member as usize].push(number as u32);
                }
            }
        }
        Execution {
            program,
            repeat,
            later,
            first,
            takes_part,
            oldest: 0,
            rounds: VecDeque::new(),
            opens: Vec::new(),
            flights: Slots::new(),
            sleepers: Slots::new(),
            ready: Vec::new(),
            spans: Vec::new(),
            now_ps: 0,
        }
    }

    fn op(&self, op: u32) -> &Op {
        &self.program.ops()[op as usize]
    }

    /// The member wants to begin a round, now or when it opens.
    fn enter(&mut self, round: u32, member: u32, wishes: &mut Vec<Wish>) {
        if !self.repeat.has(round) || self.takes_part[member as usize] == 0 {
            return;
        }
        if self.opens.len() as u32 <= round - self.oldest {
            self.opens.push(self.repeat.opens(self.now_ps));
        }
        let at_ps = self.opens[(round - self.oldest) as usize];
        if at_ps > self.now_ps {
            let token = self.sleepers.put(Sleeper::Member { round, member });
            wishes.push(Wish::Wake { token, at_ps });
            return;
        }
        if self.rounds.len() as u32 <= round - self.oldest {
            let members_left = self.takes_part.iter().filter(|&&count| count > 0).count() as u32;
            let states = vec![State::default(); self.program.ops().len()];
            let left = self.takes_part.clone();
            self.rounds.push_back(Round { states, left, members_left, from_ps: self.now_ps });
        }
        for index in 0..self.first[member as usize].len() {
            let op = self.first[member as usize][index];
            let place = takes(&self.program, op, member).unwrap_or(0);
            self.ready.push((round, op, place));
        }
    }

    /// Begins whatever can begin, in order.
    fn proceed(&mut self, wishes: &mut Vec<Wish>) {
        let mut next = 0;
        while let Some(&(round, op, place)) = self.ready.get(next) {
            next += 1;
            match self.op(op).what {
                What::Compute(0) => self.through(round, op, place, wishes),
                What::Compute(span_ps) => {
                    self.sleep(self.now_ps.saturating_add(span_ps), round, op, place, wishes)
                }
                What::Until(at_ps) if at_ps <= self.now_ps => self.through(round, op, place, wishes),
                What::Until(at_ps) => self.sleep(at_ps, round, op, place, wishes),
                What::Exchange(exchange) => {
                    self.state(round, op).shares[place as usize].has_begun = true;
                    (0..exchange.slices).for_each(|slice| self.send(round, op, place, slice, wishes));
                    self.settle(round, op, place, wishes);
                }
            }
        }
        self.ready.clear();
    }

    fn sleep(&mut self, at_ps: u64, round: u32, op: u32, place: u32, wishes: &mut Vec<Wish>) {
        let token = self.sleepers.put(Sleeper::Share { round, op, place });
        wishes.push(Wish::Wake { token, at_ps });
    }

    /// The state of an operation that is not through.
    fn state(&mut self, round: u32, op: u32) -> &mut State {
        let Execution { program, rounds, oldest, .. } = self;
        let state = &mut rounds[(round - *oldest) as usize].states[op as usize];
        if state.shares.is_empty() {
            *state = State::of(program, &program.ops()[op as usize]);
        }
        state
    }

    /// Sends what a chain may send.
    fn send(&mut self, round: u32, op: u32, place: u32, slice: u32, wishes: &mut Vec<Wish>) {
        let What::Exchange(exchange) = self.op(op).what else { return };
        let size = self.program.groups_of(self.op(op)).size;
        let (at, base) = (place % size, place - place % size);
        let count = exchange.pattern.counts(size, at).0;
        let chain_index = (place * exchange.slices + slice) as usize;
        loop {
            let chain = &mut self.state(round, op).chains[chain_index];
            let step = chain.next;
            if step >= count || !may_send(exchange, chain) {
                return;
            }
            chain.next += 1;
            let to = base + exchange.pattern.to(size, at, step);
            let flight = Flight { round, op, from: place, to, slice, step, untold: 2 };
            let token = self.flights.put(flight);
            let members = &self.program.groups_of(self.op(op)).members;
            let (from, to) = (members[place as usize], members[to as usize]);
            wishes.push(Wish::Send { token, from, to, bytes: exchange.message_bytes(size, step) });
        }
    }

    fn received(&mut self, token: u32, wishes: &mut Vec<Wish>) {
        let Some(flight) = self.tell(token) else { return };
        let Flight { round, op, to, slice, step, .. } = flight;
        let What::Exchange(exchange) = self.op(op).what else { return };
        let state = self.state(round, op);
        let share = &mut state.shares[to as usize];
        share.to_come = share.to_come.saturating_sub(1);
        let has_begun = share.has_begun;
        if exchange.pattern.gate() == Gate::Step {
            state.chains[(to * exchange.slices + slice) as usize].note(step);
            if has_begun {
                self.send(round, op, to, slice, wishes);
            }
        }
        self.settle(round, op, to, wishes);
    }

    fn sent(&mut self, token: u32, wishes: &mut Vec<Wish>) {
        let Some(flight) = self.tell(token) else { return };
        let Flight { round, op, from, slice, .. } = flight;
        let What::Exchange(exchange) = self.op(op).what else { return };
        let state = self.state(round, op);
        let share = &mut state.shares[from as usize];
        share.to_land = share.to_land.saturating_sub(1);
        state.chains[(from * exchange.slices + slice) as usize].landed += 1;
        self.send(round, op, from, slice, wishes);
        self.settle(round, op, from, wishes);
    }

    /// Notes that one of two things was told of a message; its token is free after both.
    fn tell(&mut self, token: u32) -> Option<Flight> {
        let flight = self.flights.values.get_mut(token as usize).filter(|flight| flight.untold > 0)?;
        flight.untold -= 1;
        let copy = *flight;
        if copy.untold == 0 {
            self.flights.free.push(token);
        }
        Some(copy)
    }

    /// A share of an exchange may be through.
    fn settle(&mut self, round: u32, op: u32, place: u32, wishes: &mut Vec<Wish>) {
        let share = self.state(round, op).shares[place as usize];
        if share.has_begun && !share.is_through && share.to_come == 0 && share.to_land == 0 {
            self.through(round, op, place, wishes);
        }
    }

    /// A member is through with its share: others may begin, or the round may be over.
    fn through(&mut self, round: u32, op: u32, place: u32, wishes: &mut Vec<Wish>) {
        let state = self.state(round, op);
        state.shares[place as usize].is_through = true;
        state.left -= 1;
        if state.left == 0 {
            *state = State { is_through: true, ..State::default() };
        }
        let member = self.program.groups_of(self.op(op)).members[place as usize];
        let of_round = &mut self.rounds[(round - self.oldest) as usize];
        of_round.left[member as usize] -= 1;
        let is_last = of_round.left[member as usize] == 0;
        for index in 0..self.later[op as usize].len() {
            let next = self.later[op as usize][index];
            let Some(place) = takes(&self.program, next, member) else { continue };
            if self.op(next).after.iter().all(|&after| self.is_through(round, after, member)) {
                self.ready.push((round, next, place));
            }
        }
        if is_last {
            self.leave(round, member, wishes);
        }
    }

    /// The member is through with the round.
    fn leave(&mut self, round: u32, member: u32, wishes: &mut Vec<Wish>) {
        self.rounds[(round - self.oldest) as usize].members_left -= 1;
        self.enter(round + 1, member, wishes);
        while self.rounds.front().is_some_and(|round| round.members_left == 0) {
            if let Some(round) = self.rounds.pop_front() {
                self.spans.push(Span { from_ps: round.from_ps, to_ps: self.now_ps });
            }
            self.opens.remove(0);
            self.oldest += 1;
        }
    }

    /// Whether the member is through with an operation, or takes no part in it.
    fn is_through(&self, round: u32, op: u32, member: u32) -> bool {
        let Some(place) = takes(&self.program, op, member) else { return true };
        let state = &self.rounds[(round - self.oldest) as usize].states[op as usize];
        state.is_through || state.shares.get(place as usize).is_some_and(|share| share.is_through)
    }
}

impl Chain {
    /// The message of `step` has come.
    fn note(&mut self, step: u32) {
        match step.checked_sub(self.came + 1) {
            None => {
                self.came += 1;
                while self.ahead & 1 == 1 {
                    self.ahead >>= 1;
                    self.came += 1;
                }
                self.ahead >>= 1;
            }
            Some(distance) => self.ahead |= 1u64.checked_shl(distance).unwrap_or(0),
        }
    }
}

fn may_send(exchange: Exchange, chain: &Chain) -> bool {
    match exchange.pattern.gate() {
        Gate::Step => chain.next <= chain.came,
        Gate::Window(window) => chain.next - chain.landed < window,
    }
}

/// The place of `member` in the groups of an operation.
fn takes(program: &Program, op: u32, member: u32) -> Option<u32> {
    program.groups_of(&program.ops()[op as usize]).place_of(member)
}

impl State {
    /// Nobody has begun.
    fn of(program: &Program, op: &Op) -> State {
        let groups = program.groups_of(op);
        let places = groups.members.len() as u32;
        let (slices, pattern) = match op.what {
            What::Exchange(exchange) => (exchange.slices, Some(exchange.pattern)),
            _ => (0, None),
        };
        let share = |place: u32| {
            let counts = pattern.map(|pattern| pattern.counts(groups.size, place % groups.size));
            let (out, into) = counts.unwrap_or((0, 0));
            Share { to_come: into * slices, to_land: out * slices, ..Share::default() }
        };
        State {
            is_through: false,
            shares: (0..places).map(share).collect(),
            chains: vec![Chain::default(); (places * slices) as usize],
            left: places,
        }
    }
}

impl Course for Execution {
    fn begin(&mut self, wishes: &mut Vec<Wish>) {
        (0..self.program.members()).for_each(|member| self.enter(0, member, wishes));
        self.proceed(wishes);
    }

    fn told(&mut self, now_ps: u64, what: Told, wishes: &mut Vec<Wish>) {
        self.now_ps = self.now_ps.max(now_ps);
        match what {
            Told::Received(token) => self.received(token, wishes),
            Told::Sent(token) => self.sent(token, wishes),
            Told::Woken(token) => {
                let Some(&sleeper) = self.sleepers.values.get(token as usize) else { return };
                self.sleepers.free.push(token);
                match sleeper {
                    Sleeper::Share { round, op, place } => self.through(round, op, place, wishes),
                    Sleeper::Member { round, member } => self.enter(round, member, wishes),
                }
            }
        }
        self.proceed(wishes);
    }

    fn is_done(&self) -> bool {
        self.repeat.times.is_some_and(|times| self.spans.len() as u32 >= times)
            || self.first.iter().all(Vec::is_empty)
    }

    fn rounds(&self) -> &[Span] {
        &self.spans
    }
}
