//! The last byte of a WRITE comes last: who watches it in memory, as perftest's latency tests and many rings do,
//! finds all others when it changes.

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, LENGTH_MAX};
use crate::verify::side::{Request, Side};
use srdma_abi::Opcode;
use std::sync::atomic::Ordering;

/// One message of at least a byte.
fn message(side: &Side, qp: usize) -> Message {
    let round = side.round;
    let mut rng = round.rng("length", qp);
    let most = u64::from(LENGTH_MAX) >> rng.below(20);
    let length = (rng.below(most) + 1) as u32;
    let tag = round.tag(qp, 0);
    let data = round.data(qp);
    let at = data.0 + rng.below(data.1 - data.0 - u64::from(length));
    let elements = crate::verify::plan::Cursor::new(data).scatter(length, &mut rng);
    Message { tag, length, elements, at, inline: false, signalled: true }
}

fn last(message: &Message) -> u64 {
    message.at + u64::from(message.length) - 1
}

/// Target: makes sure that the last byte is another one now.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    for qp in 0..target.qps() {
        let message = message(target, qp);
        target.expect_piece(&message);
        let other = !target.ground.expected_byte(last(&message));
        target.ground.region().byte(last(&message)).store(other, Ordering::SeqCst);
    }
    Ok(())
}

/// Target: when the last byte changes, looks at the others at once, backwards.
pub fn watch(target: &mut Side) -> Result<(), Failure> {
    let mut waiting: Vec<(usize, Message)> = (0..target.qps()).map(|qp| (qp, message(target, qp))).collect();
    while !waiting.is_empty() {
        let changed = waiting.iter().position(|(_, message)| {
            let at = last(message);
            target.ground.region().byte(at).load(Ordering::Acquire) != !target.ground.expected_byte(at)
        });
        let Some(changed) = changed else {
            target.wait("waiting for the last byte of a WRITE in memory")?;
            continue;
        };
        target.progressed();
        let (qp, message) = waiting.swap_remove(changed);
        let what = format!("a WRITE of {} bytes when its last byte had changed", message.length);
        target.check(qp, message.at, u64::from(message.length), &what)?;
    }
    Ok(())
}

/// Client: one WRITE on each queue pair.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let mut bytes = 0;
    for qp in 0..client.qps() {
        let message = message(client, qp);
        client.paint_elements(&message);
        bytes += u64::from(message.length);
        client.post(qp, &[Request::of(Opcode::Write, &message)])?;
    }
    client.finish()?;
    Ok(bytes)
}
