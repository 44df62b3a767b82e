//! SENDs fill the receives in the order of posting, whole, each with its length and immediate, and touch nothing
//! behind the message. Lengths from zero, inline or gathered, scattered over any elements. In some rounds half of
//! the receives come late: the sender is told to wait, and loses nothing.

use crate::verify::failure::Failure;
use crate::verify::plan::{Cursor, Message, Round, Span};
use crate::verify::side::{Finished, Request, Side};
use srdma_abi::{Opcode, SendFlags, WcFlags, WcOpcode};
use std::time::Duration;

/// Longest message: each has room of its own at the receiver.
const LENGTH_MAX: u32 = 1 << 20;
/// How late late receives are: a few RNR waits.
const LATE: Duration = Duration::from_millis(2);

struct Plan {
    messages: Vec<Message>,
    /// Receives, by message: elements that hold at least its length.
    receives: Vec<Vec<Span>>,
    /// Immediates of those that have one.
    immediates: Vec<Option<u32>>,
    /// Receives posted before the client starts.
    early: usize,
}

fn plan(round: &Round, qp: usize) -> Plan {
    let mut rng = round.rng("receives", qp);
    let count = 1 + rng.below(64);
    let messages = round.apart(qp, count, LENGTH_MAX);
    let mut cursor = Cursor::new(round.data(qp));
    let receives = messages
        .iter()
        .map(|message| cursor.scatter(message.length + rng.below(200) as u32, &mut rng))
        .collect();
    let immediates = messages.iter().map(|_| (rng.below(2) == 0).then(|| rng.next_u32())).collect();
    let early = if rng.below(3) == 0 { count / 2 } else { count } as usize;
    Plan { messages, receives, immediates, early }
}

/// Target: posts receives, and expects in each the bytes of its message from the first element on.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    for qp in 0..target.qps() {
        let plan = plan(&target.round, qp);
        for (message, receive) in plan.messages.iter().zip(&plan.receives) {
            target.expect_elements(&Message { elements: filled(receive, message.length), ..message.clone() });
        }
        target.post_receives(qp, &plan.receives[..plan.early])?;
    }
    Ok(())
}

/// The parts of `receive` that a message of `length` bytes fills.
fn filled(receive: &[Span], length: u32) -> Vec<Span> {
    let mut left = length;
    let fill = |span: &Span| {
        let length = span.length.min(left);
        left -= length;
        Span { at: span.at, length }
    };
    receive.iter().map(fill).collect()
}

/// Target: takes the messages as they come.
pub fn watch(target: &mut Side) -> Result<(), Failure> {
    let plans: Vec<Plan> = (0..target.qps()).map(|qp| plan(&target.round, qp)).collect();
    if plans.iter().any(|plan| plan.early < plan.receives.len()) {
        std::thread::sleep(LATE);
        for (qp, plan) in plans.iter().enumerate() {
            target.post_receives(qp, &plan.receives[plan.early..])?;
        }
    }
    for _ in 0..plans.iter().map(|plan| plan.messages.len()).sum() {
        let done = target.next_received()?;
        check(target, &plans[done.qp], &done)?;
    }
    Ok(())
}

fn check(target: &mut Side, plan: &Plan, done: &Finished) -> Result<(), Failure> {
    let (message, immediate) = (&plan.messages[done.index], plan.immediates[done.index]);
    let completion = &done.completion;
    let has = |flag| completion.flags.contains(flag);
    let got = (
        completion.byte_len,
        has(WcFlags::IMM).then_some(completion.imm),
        completion.opcode == WcOpcode::Recv as u8,
    );
    let wanted = (message.length, immediate, true);
    if got != wanted {
        let what = format!("receive {}: (length, immediate, is a SEND)", done.index);
        return Err(target.violated(done.qp, what, format!("{wanted:?}"), format!("{got:?}")));
    }
    target.check_all(
        done.qp,
        &plan.receives[done.index],
        &format!("SEND {} when it was received", done.index),
    )
}

/// Client: posts all of them at once.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let mut bytes = 0;
    for qp in 0..client.qps() {
        let plan = plan(&client.round, qp);
        let mut requests = Vec::new();
        for (number, (message, immediate)) in plan.messages.iter().zip(&plan.immediates).enumerate() {
            client.paint_elements(message);
            bytes += u64::from(message.length);
            let opcode = if immediate.is_some() { Opcode::SendImm } else { Opcode::Send };
            let mut request = Request::of(opcode, message);
            request.entry.imm = immediate.unwrap_or(0);
            if number % 5 == 0 {
                request.entry.flags = request.entry.flags.with(SendFlags::SOLICITED);
            }
            requests.push(request);
        }
        client.post(qp, &requests)?;
    }
    client.finish()?;
    Ok(bytes)
}
