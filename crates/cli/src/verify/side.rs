//! One side's view of a run: posting, waiting, checking.

use super::channel::Channel;
use super::failure::{Failure, Finding};
use super::ground::{Difference, Ground};
use super::message::End;
use super::nic::{Nic, RECVS, SENDS};
use super::plan::{Message, Round, Span};
use srdma_abi::{Completion, Opcode, RecvEntry, SendEntry, SendFlags, Sge, WcOpcode, WcStatus};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Nothing has happened for this long: give up.
const STALL: Duration = Duration::from_secs(60);
/// How long to look for a better reason than "flushed".
const REASON_WAIT: Duration = Duration::from_millis(200);
/// After this, bytes that were wrong are looked at again: were they only late?
const LATE_WAIT: Duration = Duration::from_millis(200);
/// Empty polls before a waiter starts to sleep between them.
const SPINS: u32 = 20_000;

/// A work request of a plan.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Operation and flags, elements, immediate, operands. `wr_id`, `rkey` and addresses are filled in.
    pub entry: SendEntry,
    /// Our memory.
    pub elements: Vec<Span>,
    /// Offset in the other side's region.
    pub remote: u64,
}

impl Request {
    /// `opcode` for `message`, whose elements are here and whose single piece is there.
    pub fn of(opcode: Opcode, message: &Message) -> Request {
        let mut flags = SendFlags(0);
        if message.signalled {
            flags = flags.with(SendFlags::SIGNALED);
        }
        if message.inline && !opcode.is_read_or_atomic() {
            flags = flags.with(SendFlags::INLINE);
        }
        let entry = SendEntry { opcode, flags, ..SendEntry::default() };
        Request { entry, elements: message.elements.clone(), remote: message.at }
    }

    /// Signalled `opcode` on the 8 bytes at `remote`, with `at` as our side of it.
    pub fn word(opcode: Opcode, remote: u64, at: u64) -> Request {
        let entry = SendEntry { opcode, flags: SendFlags::SIGNALED, ..SendEntry::default() };
        Request { entry, elements: vec![Span { at, length: 8 }], remote }
    }

    fn length(&self) -> u32 {
        self.elements.iter().map(|span| span.length).sum()
    }
}

/// A completion that is due.
#[derive(Clone, Copy, Debug)]
struct Owed {
    wr_id: u64,
    opcode: WcOpcode,
    /// Bytes that the completion must name, for READs and atomics.
    bytes: Option<u32>,
}

/// A work queue as its poster sees it.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// Posted in this round.
    posted: u64,
    owed: VecDeque<Owed>,
}

impl Queue {
    fn next_id(&mut self, round: u64) -> u64 {
        let id = round << 32 | self.posted;
        self.posted += 1;
        id
    }
}

/// A finished request or receive.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Queue pair, counted from 0.
    pub qp: usize,
    /// How many requests (or receives) of this queue pair were posted in this round before it.
    pub index: usize,
    /// The completion.
    pub completion: Completion,
}

/// One side of a run.
pub struct Side {
    /// Our memory.
    pub ground: Ground,
    /// The other side's word.
    pub channel: Channel,
    /// The round being run.
    pub round: Round,
    nic: Nic,
    key: u32,
    theirs: End,
    /// Rounds begun, the upper half of each `wr_id`; the lower half counts the requests of a queue.
    rounds: u64,
    queues: [Vec<Queue>; 2],
    idle: u32,
    since: Instant,
}

impl Side {
    /// Everything is connected.
    pub fn new(nic: Nic, key: u32, ground: Ground, channel: Channel, theirs: End, round: Round) -> Side {
        let qps = nic.qps.len();
        Side {
            ground,
            channel,
            round,
            nic,
            key,
            theirs,
            rounds: 0,
            queues: [vec![Queue::default(); qps], vec![Queue::default(); qps]],
            idle: 0,
            since: Instant::now(),
        }
    }

    /// Number of queue pairs.
    pub fn qps(&self) -> usize {
        self.nic.qps.len()
    }

    /// The device, our key and the other side, for requests of the caller's own.
    pub fn parts(&self) -> (&Nic, u32, &End) {
        (&self.nic, self.key, &self.theirs)
    }

    /// An asynchronous event that means trouble, if one came.
    pub fn trouble(&mut self) -> Option<String> {
        self.nic.trouble()
    }

    /// Begins a round: every completion of the one before has come.
    pub fn begin(&mut self, round: Round) {
        self.round = round;
        self.rounds += 1;
        self.queues.iter_mut().flatten().for_each(|queue| queue.posted = 0);
        self.progressed();
    }

    /// Posts requests to one queue pair, ringing its doorbell once.
    pub fn post(&mut self, qp: usize, requests: &[Request]) -> Result<(), Failure> {
        let mut posts = self.nic.qps[qp].post_sends();
        for request in requests {
            let mut entry = request.entry.clone();
            let queue = &mut self.queues[SENDS][qp];
            entry.wr_id = queue.next_id(self.rounds);
            entry.remote_address = self.theirs.base + request.remote;
            entry.rkey = self.theirs.rkey;
            let pieces: Vec<(u64, u32)> = request
                .elements
                .iter()
                .map(|span| (self.ground.region().address() + span.at, span.length))
                .collect();
            entry.sge_count = pieces.len() as u8;
            for (sge, &(address, length)) in entry.sges.iter_mut().zip(&pieces) {
                *sge = Sge { address, length, lkey: self.key };
            }
            // SAFETY: plans lie within the region, which lives as long as `self`.
            unsafe { posts.push(&mut entry, &pieces)? };
            if entry.flags.contains(SendFlags::SIGNALED) {
                let bytes = entry.opcode.is_read_or_atomic().then(|| request.length());
                queue.owed.push_back(Owed { wr_id: entry.wr_id, opcode: completes_as(entry.opcode), bytes });
            }
        }
        Ok(())
    }

    /// Posts receives to one queue pair.
    pub fn post_receives(&mut self, qp: usize, receives: &[Vec<Span>]) -> Result<(), Failure> {
        let mut posts = self.nic.qps[qp].post_recvs();
        for spans in receives {
            let queue = &mut self.queues[RECVS][qp];
            let wr_id = queue.next_id(self.rounds);
            let mut entry = RecvEntry { wr_id, sge_count: spans.len() as u8, ..RecvEntry::default() };
            for (sge, span) in entry.sges.iter_mut().zip(spans) {
                let address = self.ground.region().address() + span.at;
                *sge = Sge { address, length: span.length, lkey: self.key };
            }
            posts.push(&entry)?;
            queue.owed.push_back(Owed { wr_id, opcode: WcOpcode::Recv, bytes: None });
        }
        Ok(())
    }

    /// Waits for the next signalled request to finish; `None` when none is outstanding.
    pub fn next_sent(&mut self) -> Result<Option<Finished>, Failure> {
        while self.queues[SENDS].iter().any(|queue| !queue.owed.is_empty()) {
            if let Some(finished) = self.poll_sent()? {
                return Ok(Some(finished));
            }
            self.wait("waiting for completions of requests")?;
        }
        Ok(None)
    }

    /// Waits until every request has finished.
    pub fn finish(&mut self) -> Result<(), Failure> {
        while self.next_sent()?.is_some() {}
        Ok(())
    }

    /// Waits for the next receive to be filled.
    pub fn next_received(&mut self) -> Result<Finished, Failure> {
        loop {
            if let Some(finished) = self.poll_received()? {
                return Ok(finished);
            }
            self.wait("waiting for messages")?;
        }
    }

    /// The next finished request, if there is one.
    pub fn poll_sent(&mut self) -> Result<Option<Finished>, Failure> {
        let Some((qp, completion)) = self.poll(SENDS)? else { return Ok(None) };
        let owed = self.queues[SENDS][qp].owed.pop_front();
        self.as_owed(qp, &completion, owed, |owed| completion.opcode == owed.opcode as u8)?;
        Ok(Some(finished(qp, completion)))
    }

    /// The next filled receive, if there is one.
    pub fn poll_received(&mut self) -> Result<Option<Finished>, Failure> {
        let Some((qp, completion)) = self.poll(RECVS)? else { return Ok(None) };
        let owed = self.queues[RECVS][qp].owed.pop_front();
        let opcodes = [WcOpcode::Recv as u8, WcOpcode::RecvWriteImm as u8];
        self.as_owed(qp, &completion, owed, |_| opcodes.contains(&completion.opcode))?;
        Ok(Some(finished(qp, completion)))
    }

    /// Takes a completion from one of the two queues.
    fn poll(&mut self, queue: usize) -> Result<Option<(usize, Completion)>, Failure> {
        let mut one = [Completion::default()];
        if self.take(queue, &mut one)? == 0 {
            return Ok(None);
        }
        self.progressed();
        let completion = one[0];
        let qp = self.nic.qps.iter().position(|qp| qp.number() == completion.qpn);
        let Some(qp) = qp else {
            let what = "a completion names a queue pair that is not ours";
            return Err(Finding::new(&self.round, None, what, "one of ours", completion.qpn).into());
        };
        if completion.status == WcStatus::Success as u8 {
            return Ok(Some((qp, completion)));
        }
        Err(self.reason(qp, completion)?)
    }

    fn take(&self, queue: usize, out: &mut [Completion]) -> Result<usize, Failure> {
        self.nic.cqs[queue].poll(out).ok_or_else(|| Failure::Event("device gone".into()))
    }

    /// The failure that `completion` reports; if it was only flushed, the one that came first.
    fn reason(&self, qp: usize, mut completion: Completion) -> Result<Failure, Failure> {
        let (mut qp, deadline) = (qp, Instant::now() + REASON_WAIT);
        while completion.status == WcStatus::WrFlushErr as u8 && Instant::now() < deadline {
            let mut one = [Completion::default()];
            if self.take(SENDS, &mut one)? == 0 && self.take(RECVS, &mut one)? == 0 {
                std::thread::yield_now();
            } else if one[0].status != WcStatus::Success as u8 {
                completion = one[0];
                qp = self.nic.qps.iter().position(|qp| qp.number() == completion.qpn).unwrap_or(qp);
            }
        }
        Ok(Failure::completion(&self.round, qp, &completion))
    }

    /// Completions come in the order of their requests, each once, and say what the request was.
    fn as_owed(
        &self,
        qp: usize,
        completion: &Completion,
        owed: Option<Owed>,
        opcode_fits: impl Fn(&Owed) -> bool,
    ) -> Result<(), Failure> {
        let fits = owed.is_some_and(|owed| {
            owed.wr_id == completion.wr_id
                && opcode_fits(&owed)
                && owed.bytes.is_none_or(|bytes| bytes == completion.byte_len)
        });
        if fits {
            return Ok(());
        }
        let expected = owed.map_or("none".into(), |owed| format!("{owed:?}"));
        let what = "a completion is not the next one due";
        Err(Finding::new(&self.round, Some(qp), what, expected, format!("{completion:?}")).into())
    }

    /// Something happened: the patience starts anew.
    pub fn progressed(&mut self) {
        self.idle = 0;
        self.since = Instant::now();
    }

    /// Nothing happened. Lets others run, looks whether the other side or the device has failed, and gives
    /// up in the end.
    pub fn wait(&mut self, doing: &str) -> Result<(), Failure> {
        self.idle += 1;
        if self.idle < SPINS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
        if self.idle & 0xff == 0 {
            self.channel.has_message()?;
            if let Some(event) = self.nic.trouble() {
                return Err(Failure::Event(event));
            }
            if self.since.elapsed() > STALL {
                let Round { kind, number, .. } = self.round;
                return Err(Failure::Stalled(format!(
                    "{} round {number}: {doing}, nothing for {STALL:?}",
                    kind.name()
                )));
            }
        }
        Ok(())
    }

    /// That the bytes at `at` are right now. If not, says whether they were only late.
    pub fn check(&mut self, qp: usize, at: u64, length: u64, what: &str) -> Result<(), Failure> {
        match self.ground.check_backwards(at, length) {
            Ok(()) => Ok(()),
            Err(difference) => {
                std::thread::sleep(LATE_WAIT);
                let again = self.ground.check(at, length);
                let late = if again.is_ok() { "they came later" } else { "still so 200 ms later" };
                Err(self.broken(Some(qp), &difference, format!("{what} ({late})")))
            }
        }
    }

    /// That all elements are right now.
    pub fn check_all(&mut self, qp: usize, spans: &[Span], what: &str) -> Result<(), Failure> {
        spans.iter().rev().try_for_each(|span| self.check(qp, span.at, u64::from(span.length), what))
    }

    /// That the whole region is right.
    pub fn check_region(&mut self) -> Result<(), Failure> {
        let bytes = self.ground.region().bytes();
        match self.ground.check(0, bytes) {
            Ok(()) => Ok(()),
            Err(difference) => {
                let qp = (difference.at / self.round.part_bytes) as usize;
                Err(self.broken(Some(qp), &difference, "the region after the round"))
            }
        }
    }

    /// The finding that `difference` is.
    pub fn broken(&self, qp: Option<usize>, difference: &Difference, what: impl Into<String>) -> Failure {
        let what = format!("{}; {} wrong bytes in the range checked", what.into(), difference.wrong);
        let finding = Finding::new(&self.round, qp, what, hex(&difference.expected), hex(&difference.got));
        Finding { offset: Some(difference.at), ..finding }.into()
    }

    /// A finding about something other than memory.
    pub fn violated(
        &self,
        qp: usize,
        what: impl Into<String>,
        expected: impl ToString,
        got: impl ToString,
    ) -> Failure {
        Finding::new(&self.round, Some(qp), what, expected, got).into()
    }

    /// Writes the bytes of `message` into its elements.
    pub fn paint_elements(&mut self, message: &Message) {
        let mut from = 0;
        for span in &message.elements {
            self.ground.paint(span.at, u64::from(span.length), message.tag, from);
            from += u64::from(span.length);
        }
    }

    /// The bytes of `message` will come to its elements.
    pub fn expect_elements(&mut self, message: &Message) {
        let mut from = 0;
        for span in &message.elements {
            self.ground.expect(span.at, u64::from(span.length), message.tag, from);
            from += u64::from(span.length);
        }
    }

    /// The bytes of `message` will come to its single piece.
    pub fn expect_piece(&mut self, message: &Message) {
        self.ground.expect(message.at, u64::from(message.length), message.tag, 0);
    }

    /// Target: every queue pair's WRITEs, as `messages` draws them, will come in this order.
    pub fn expect_writes(&mut self, messages: impl Fn(&Side, usize) -> Vec<Message>) {
        for qp in 0..self.qps() {
            messages(self, qp).iter().for_each(|message| self.expect_piece(message));
        }
    }

    /// Client: paints what the WRITEs of `messages` carry; returns them as requests, and their bytes.
    pub fn writes(&mut self, messages: &[Message]) -> (Vec<Request>, u64) {
        messages.iter().for_each(|message| self.paint_elements(message));
        let requests = messages.iter().map(|message| Request::of(Opcode::Write, message)).collect();
        (requests, messages.iter().map(|message| u64::from(message.length)).sum())
    }

    /// Stores `value` in a word of our region now, and expects `later` there in the end.
    pub fn set_word(&mut self, at: u64, value: u64, later: u64) {
        self.ground.region().store(at, &value.to_ne_bytes());
        self.ground.expect_word(at, later);
    }
}

fn finished(qp: usize, completion: Completion) -> Finished {
    Finished { qp, index: completion.wr_id as u32 as usize, completion }
}

fn completes_as(opcode: Opcode) -> WcOpcode {
    match opcode {
        Opcode::Write | Opcode::WriteImm => WcOpcode::Write,
        Opcode::Send | Opcode::SendImm => WcOpcode::Send,
        Opcode::Read => WcOpcode::Read,
        Opcode::CompareSwap => WcOpcode::CompareSwap,
        Opcode::FetchAdd => WcOpcode::FetchAdd,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
