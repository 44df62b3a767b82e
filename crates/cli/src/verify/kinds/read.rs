//! When a READ completes, all its bytes are there: scattered over any elements, of any size, up to 16 at once and
//! more waiting. Nothing else changes on either side.

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, LENGTH_MAX};
use crate::verify::side::{Request, Side};
use srdma_abi::Opcode;

fn messages(side: &Side, qp: usize) -> Vec<Message> {
    let count = 1 + side.round.rng("count", qp).below(48);
    side.round.apart(qp, count, LENGTH_MAX)
}

/// Target: lays the bytes out.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    for qp in 0..target.qps() {
        for message in messages(target, qp) {
            target.ground.paint(message.at, u64::from(message.length), message.tag, 0);
        }
    }
    Ok(())
}

/// Client: at each completion, looks at what that READ and those before it brought.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let plans: Vec<Vec<Message>> = (0..client.qps()).map(|qp| messages(client, qp)).collect();
    for (qp, messages) in plans.iter().enumerate() {
        messages.iter().for_each(|message| client.expect_elements(message));
        let requests: Vec<Request> =
            messages.iter().map(|message| Request::of(Opcode::Read, message)).collect();
        client.post(qp, &requests)?;
    }
    let mut seen = vec![0; plans.len()];
    while let Some(done) = client.next_sent()? {
        for index in std::mem::replace(&mut seen[done.qp], done.index + 1)..=done.index {
            let what = format!("READ {index} when READ {} had completed", done.index);
            client.check_all(done.qp, &plans[done.qp][index].elements, &what)?;
        }
    }
    client.check_region()?;
    Ok(plans.iter().flatten().map(|message| u64::from(message.length)).sum())
}
