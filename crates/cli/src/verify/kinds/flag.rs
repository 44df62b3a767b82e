//! A flag after data: 64 WRITEs and then a WRITE of 8 bytes. The target watches the flag in its memory, never a
//! completion queue; when it sees the flag, every byte of the WRITEs before is there. Shared-memory queues, rings
//! and NCCL's protocols rest on this.

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, Span};
use crate::verify::side::{Request, Side};
use srdma_abi::{Opcode, SendEntry, SendFlags};
use std::sync::atomic::Ordering;

const WRITES: u64 = 64;
/// Longest WRITE: small enough that many are on their way at once.
const LENGTH_MAX: u32 = 256 << 10;

fn messages(side: &Side, qp: usize) -> Vec<Message> {
    side.round.anywhere(qp, WRITES, LENGTH_MAX, side.round.data(qp))
}

/// Flag of a queue pair: its place (one of several), and the value that is to appear.
fn flag(side: &Side, qp: usize) -> (u64, u64) {
    let mut rng = side.round.rng("flag", qp);
    (side.round.word(qp, 64 + rng.below(64)), rng.next_u64() | 1)
}

/// Target: lowers the flags.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    for qp in 0..target.qps() {
        messages(target, qp).iter().for_each(|message| target.expect_piece(message));
        let (at, value) = flag(target, qp);
        target.set_word(at, 0, value);
    }
    Ok(())
}

/// Target: at each flag, looks at the bytes at once, the newest first.
pub fn watch(target: &mut Side) -> Result<(), Failure> {
    let mut waiting: Vec<(usize, u64, u64, Vec<Message>)> = (0..target.qps())
        .map(|qp| {
            let (at, value) = flag(target, qp);
            (qp, at, value, messages(target, qp))
        })
        .collect();
    while !waiting.is_empty() {
        let raised = waiting
            .iter()
            .position(|(_, at, value, _)| target.ground.region().word(*at).load(Ordering::Acquire) == *value);
        let Some(raised) = raised else {
            target.wait("waiting for a flag in memory")?;
            continue;
        };
        target.progressed();
        let (qp, _, _, messages) = waiting.swap_remove(raised);
        for (number, message) in messages.iter().enumerate().rev() {
            let what = format!("WRITE {number} of {WRITES} when the flag after them was seen in memory");
            target.check(qp, message.at, u64::from(message.length), &what)?;
        }
    }
    Ok(())
}

/// Client: posts data and flag in one go.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let mut bytes = 0;
    for qp in 0..client.qps() {
        let messages = messages(client, qp);
        messages.iter().for_each(|message| client.paint_elements(message));
        bytes += messages.iter().map(|message| u64::from(message.length)).sum::<u64>() + 8;
        let mut requests: Vec<Request> =
            messages.iter().map(|message| Request::of(Opcode::Write, message)).collect();
        let (at, value) = flag(client, qp);
        let source = client.round.word(qp, 0);
        client.set_word(source, value, value);
        let mut flags = SendFlags::SIGNALED;
        if value & 2 != 0 {
            flags = flags.with(SendFlags::INLINE);
        }
        let entry = SendEntry { opcode: Opcode::Write, flags, ..SendEntry::default() };
        requests.push(Request { entry, elements: vec![Span { at: source, length: 8 }], remote: at });
        client.post(qp, &requests)?;
    }
    client.finish()?;
    Ok(bytes)
}
