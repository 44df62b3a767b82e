//! Whatever tells the target that data is there, tells it after the data: WRITEs, then a WRITE with immediate, a
//! SEND (seen by a completion), or an atomic (seen in memory).

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, Span};
use crate::verify::side::{Request, Side};
use srdma_abi::{Opcode, SendEntry, SendFlags};
use std::sync::atomic::Ordering;

const LENGTH_MAX: u32 = 512 << 10;
/// Word of our own side that atomics bring their result to, and SENDs start from.
const OWN_WORD: u64 = 1;
/// Word of the target that atomics change, and that SENDs come to.
const ITS_WORD: u64 = 200;

struct Plan {
    messages: Vec<Message>,
    opcode: Opcode,
    /// The target's word before and after.
    before: u64,
    after: u64,
}

fn plan(side: &Side, qp: usize) -> Plan {
    let mut rng = side.round.rng("notice", qp);
    let count = 1 + rng.below(40);
    let opcodes = [Opcode::WriteImm, Opcode::Send, Opcode::FetchAdd, Opcode::CompareSwap];
    let opcode = opcodes[rng.below(opcodes.len() as u64) as usize];
    let (before, step) = (rng.next_u64(), rng.next_u64() | 1);
    let after = if opcode == Opcode::WriteImm { before } else { before.wrapping_add(step) };
    let messages = side.round.anywhere(qp, count, LENGTH_MAX, side.round.data(qp));
    Plan { messages, opcode, before, after }
}

/// Target: posts a receive where one will be consumed.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    for qp in 0..target.qps() {
        let plan = plan(target, qp);
        plan.messages.iter().for_each(|message| target.expect_piece(message));
        let at = target.round.word(qp, ITS_WORD);
        target.set_word(at, plan.before, plan.after);
        if plan.opcode.consumes_receive() {
            target.post_receives(qp, &[vec![Span { at, length: 8 }]])?;
        }
    }
    Ok(())
}

/// Target: at each notice, looks at the bytes at once, the newest first.
pub fn watch(target: &mut Side) -> Result<(), Failure> {
    let mut waiting: Vec<(usize, Plan)> = (0..target.qps()).map(|qp| (qp, plan(target, qp))).collect();
    let mut received = vec![false; waiting.len()];
    while !waiting.is_empty() {
        // Who waits for an atomic only must see it without any call into the device.
        let by_completion = waiting.iter().any(|(_, plan)| plan.opcode.consumes_receive());
        if by_completion {
            target.poll_received()?.into_iter().for_each(|done| received[done.qp] = true);
        }
        let noticed = waiting.iter().position(|(qp, plan)| {
            let word = target.ground.region().word(target.round.word(*qp, ITS_WORD));
            match plan.opcode.consumes_receive() {
                true => received[*qp],
                false => word.load(Ordering::Acquire) == plan.after,
            }
        });
        let Some(noticed) = noticed else {
            target.wait("waiting for a notice")?;
            continue;
        };
        target.progressed();
        let (qp, plan) = waiting.swap_remove(noticed);
        for (number, message) in plan.messages.iter().enumerate().rev() {
            let count = plan.messages.len();
            let what = format!("WRITE {number} of {count} when the {:?} after them was seen", plan.opcode);
            target.check(qp, message.at, u64::from(message.length), &what)?;
        }
    }
    Ok(())
}

/// Client: posts data and notice in one go.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let mut bytes = 0;
    for qp in 0..client.qps() {
        let plan = plan(client, qp);
        plan.messages.iter().for_each(|message| client.paint_elements(message));
        bytes += plan.messages.iter().map(|message| u64::from(message.length)).sum::<u64>();
        let mut requests: Vec<Request> =
            plan.messages.iter().map(|message| Request::of(Opcode::Write, message)).collect();
        requests.push(notice(client, qp, &plan));
        client.post(qp, &requests)?;
    }
    client.finish()?;
    for qp in 0..client.qps() {
        let own = client.round.word(qp, OWN_WORD);
        client.check(qp, own, 8, "the value that an atomic returned")?;
    }
    Ok(bytes)
}

fn notice(client: &mut Side, qp: usize, plan: &Plan) -> Request {
    let own = client.round.word(qp, OWN_WORD);
    let entry = SendEntry { opcode: plan.opcode, flags: SendFlags::SIGNALED, ..SendEntry::default() };
    let element = Span { at: own, length: 8 };
    match plan.opcode {
        Opcode::WriteImm => Request {
            entry: SendEntry { imm: plan.before as u32, ..entry },
            elements: Vec::new(),
            remote: client.round.word(qp, ITS_WORD),
        },
        Opcode::Send => {
            client.set_word(own, plan.after, plan.after);
            Request { entry, elements: vec![element], remote: 0 }
        }
        _ => {
            client.ground.expect_word(own, plan.before);
            let compare_add = match plan.opcode {
                Opcode::FetchAdd => plan.after.wrapping_sub(plan.before),
                _ => plan.before,
            };
            Request {
                entry: SendEntry { compare_add, swap: plan.after, ..entry },
                elements: vec![element],
                remote: client.round.word(qp, ITS_WORD),
            }
        }
    }
}
