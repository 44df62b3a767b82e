//! A WRITE with immediate consumes a receive, whose completion says the length and the immediate and comes when
//! all bytes are there; the receive's own memory stays as it was.

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, Span, LENGTH_MAX};
use crate::verify::side::{Request, Side};
use srdma_abi::{Opcode, WcFlags, WcOpcode};

fn messages(side: &Side, qp: usize) -> Vec<Message> {
    let count = 1 + side.round.rng("count", qp).below(64);
    side.round.apart(qp, count, LENGTH_MAX)
}

fn immediate(message: &Message) -> u32 {
    message.tag as u32
}

/// Target: posts a receive for each, some with memory that must not be touched.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    for qp in 0..target.qps() {
        let messages = messages(target, qp);
        let untouched = Span { at: target.round.word(qp, 0), length: 64 };
        let receives: Vec<Vec<Span>> =
            (0..messages.len()).map(|number| vec![untouched; number % 3]).collect();
        messages.iter().for_each(|message| target.expect_piece(message));
        target.post_receives(qp, &receives)?;
    }
    Ok(())
}

/// Target: at each notice, looks at the bytes it is about.
pub fn watch(target: &mut Side) -> Result<(), Failure> {
    let plans: Vec<Vec<Message>> = (0..target.qps()).map(|qp| messages(target, qp)).collect();
    for _ in 0..plans.iter().map(Vec::len).sum() {
        let done = target.next_received()?;
        let (message, completion) = (&plans[done.qp][done.index], &done.completion);
        let got = (
            completion.byte_len,
            completion.flags.contains(WcFlags::IMM).then_some(completion.imm),
            completion.opcode == WcOpcode::RecvWriteImm as u8,
        );
        let wanted = (message.length, Some(immediate(message)), true);
        if got != wanted {
            let what = format!("receive {}: (length, immediate, is a WRITE)", done.index);
            return Err(target.violated(done.qp, what, format!("{wanted:?}"), format!("{got:?}")));
        }
        let what = format!("WRITE {} when its immediate was received", done.index);
        target.check(done.qp, message.at, u64::from(message.length), &what)?;
    }
    Ok(())
}

/// Client: posts all of them at once.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let mut bytes = 0;
    for qp in 0..client.qps() {
        let mut requests = Vec::new();
        for message in messages(client, qp) {
            client.paint_elements(&message);
            bytes += u64::from(message.length);
            let mut request = Request::of(Opcode::WriteImm, &message);
            request.entry.imm = immediate(&message);
            requests.push(request);
        }
        client.post(qp, &requests)?;
    }
    client.finish()?;
    Ok(bytes)
}
