//! A plan under way: what may be posted next.

use alloc::vec;
use alloc::vec::Vec;

use crate::course::{Course, Repeat, Span, Told, Wish};
use crate::plan::{After, Plan};

/// See the module. Told what has been received and what has been sent, it names what has become ready, in the order of
/// the plan.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Dependencies that each message still waits for.
    waits: Vec<u32>,
    /// Who waits for a message: start of each list, and all lists, each with whether it waits for the sender.
    starts: Vec<u32>,
    waiters: Vec<(u32, bool)>,
    received: u32,
}

impl Progress {
    /// Nothing has been sent.
    pub fn new(plan: &Plan) -> Progress {
        let count = plan.messages().len();
        let mut starts = vec![0; count + 1];
        for message in plan.messages() {
            for &after in plan.after(message) {
                starts[after.message() as usize + 1] += 1;
            }
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut fill = starts.clone();
        let mut waiters = vec![(0, false); starts[count] as usize];
        for (number, message) in plan.messages().iter().enumerate() {
            for &after in plan.after(message) {
                let place = &mut fill[after.message() as usize];
                waiters[*place as usize] = (number as u32, matches!(after, After::Sent(_)));
                *place += 1;
            }
        }
        let waits = plan.messages().iter().map(|message| plan.after(message).len() as u32).collect();
        Progress { waits, starts, waiters, received: 0 }
    }

    /// Messages that wait for nothing, at the beginning.
    pub fn first(&self) -> impl Iterator<Item = u32> + '_ {
        self.waits.iter().enumerate().filter(|(_, &waits)| waits == 0).map(|(number, _)| number as u32)
    }

    /// The receiver has `message`: adds to `ready` what may be posted now.
    pub fn received(&mut self, message: u32, ready: &mut Vec<u32>) {
        self.received += 1;
        self.release(message, ready, false);
    }

    /// The sender knows that `message` has landed: adds to `ready` what may be posted now.
    pub fn sent(&mut self, message: u32, ready: &mut Vec<u32>) {
        self.release(message, ready, true);
    }

    fn release(&mut self, message: u32, ready: &mut Vec<u32>, by_sender: bool) {
        let Some(&end) = self.starts.get(message as usize + 1) else { return };
        let range = self.starts[message as usize] as usize..end as usize;
        for &(waiter, for_sender) in &self.waiters[range] {
            if for_sender != by_sender {
                continue;
            }
            let waits = &mut self.waits[waiter as usize];
            *waits = waits.saturating_sub(1);
            if *waits == 0 {
                ready.push(waiter);
            }
        }
    }

    /// Carries the plan out in mind; a message that never becomes ready, if there is one.
    pub(crate) fn first_never_ready(mut self, plan: &Plan) -> Option<u32> {
        let mut ready: Vec<u32> = self.first().collect();
        while let Some(message) = ready.pop() {
            self.sent(message, &mut ready);
            self.received(message, &mut ready);
        }
        let blocked = |&number: &usize| self.waits[number] > 0;
        (0..plan.messages().len()).find(blocked).map(|number| number as u32)
    }

    /// Whether everything has been received.
    pub fn is_done(&self) -> bool {
        self.received as usize >= self.waits.len()
    }
}

/// A plan that is carried out, round after round. A round begins when everything of the one before has landed.
#[derive(Clone, Debug)]
pub struct Written {
    plan: Plan,
    repeat: Repeat,
    progress: Progress,
    landed: u32,
    from_ps: u64,
    spans: Vec<Span>,
    ready: Vec<u32>,
}

impl Written {
    /// Token of the wake-up for a round; those for messages are the messages' numbers.
    const ROUND: u32 = u32::MAX;

    /// `plan` must be valid ([`Plan::validate`]).
    pub fn new(plan: Plan, repeat: Repeat) -> Written {
        let progress = Progress::new(&plan);
        Written { plan, repeat, progress, landed: 0, from_ps: 0, spans: Vec::new(), ready: Vec::new() }
    }

    /// A message is posted, or its time awaited.
    fn post(&self, now_ps: u64, token: u32, wishes: &mut Vec<Wish>) {
        let Some(message) = self.plan.messages().get(token as usize) else { return };
        let at_ps = self.from_ps.saturating_add(message.start_ps);
        wishes.push(match at_ps > now_ps {
            true => Wish::Wake { token, at_ps },
            false => Wish::Send { token, from: message.from, to: message.to, bytes: message.bytes },
        });
    }

    fn open(&mut self, now_ps: u64, wishes: &mut Vec<Wish>) {
        if !self.repeat.has(self.spans.len() as u32) {
            return;
        }
        let at_ps = self.repeat.opens(now_ps);
        if at_ps > now_ps {
            wishes.push(Wish::Wake { token: Written::ROUND, at_ps });
            return;
        }
        (self.from_ps, self.landed) = (now_ps, 0);
        if !self.spans.is_empty() {
            self.progress = Progress::new(&self.plan);
        }
        self.progress.first().for_each(|message| self.post(now_ps, message, wishes));
    }
}

impl Course for Written {
    fn begin(&mut self, wishes: &mut Vec<Wish>) {
        self.open(0, wishes);
    }

    fn told(&mut self, now_ps: u64, what: Told, wishes: &mut Vec<Wish>) {
        let mut ready = core::mem::take(&mut self.ready);
        match what {
            Told::Received(message) => self.progress.received(message, &mut ready),
            Told::Sent(message) => {
                self.landed += 1;
                self.progress.sent(message, &mut ready);
            }
            Told::Woken(Written::ROUND) => self.open(now_ps, wishes),
            Told::Woken(message) => self.post(now_ps, message, wishes),
        }
        ready.drain(..).for_each(|message| self.post(now_ps, message, wishes));
        self.ready = ready;
        let through = self.progress.is_done() && self.landed as usize >= self.plan.messages().len();
        if through && !matches!(what, Told::Woken(_)) {
            self.spans.push(Span { from_ps: self.from_ps, to_ps: now_ps });
            self.open(now_ps, wishes);
        }
    }

    fn is_done(&self) -> bool {
        let rounds = self.spans.len() as u32;
        self.repeat.times.is_some_and(|times| rounds >= times) || self.plan.messages().is_empty()
    }

    fn rounds(&self) -> &[Span] {
        &self.spans
    }
}
