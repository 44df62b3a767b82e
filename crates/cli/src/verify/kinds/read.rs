//! When a READ completes, all its bytes are there: scattered over any elements, of any size, up to 16 at once and
//! more waiting. In some rounds a fenced WRITE over the memory of one READ follows: it never changes what the READ
//! brings. Nothing else changes on either side.

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, Span, LENGTH_MAX};
use crate::verify::side::{Request, Side};
use srdma_abi::{Opcode, SendFlags};

struct Plan {
    reads: Vec<Message>,
    /// What the fenced WRITE writes over.
    fenced: Option<Message>,
}

fn plan(side: &Side, qp: usize) -> Plan {
    let mut rng = side.round.rng("count", qp);
    let count = 1 + rng.below(48);
    let reads = side.round.apart(qp, count, LENGTH_MAX);
    let over = reads[rng.below(count) as usize].clone();
    // Plans leave half of each part free at its end.
    let at = side.round.data(qp).1 - u64::from(LENGTH_MAX);
    let elements = vec![Span { at, length: over.length }];
    let tag = side.round.tag(qp, reads.len());
    let fenced = Message { tag, elements, inline: false, signalled: true, ..over };
    Plan { reads, fenced: (rng.below(2) == 0).then_some(fenced) }
}

/// Target: lays the bytes out.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    for qp in 0..target.qps() {
        let plan = plan(target, qp);
        for message in &plan.reads {
            target.ground.paint(message.at, u64::from(message.length), message.tag, 0);
        }
        plan.fenced.iter().for_each(|message| target.expect_piece(message));
    }
    Ok(())
}

/// Client: at each completion, looks at what that READ and those before it brought.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let plans: Vec<Plan> = (0..client.qps()).map(|qp| plan(client, qp)).collect();
    for (qp, plan) in plans.iter().enumerate() {
        plan.reads.iter().for_each(|message| client.expect_elements(message));
        let mut requests: Vec<Request> =
            plan.reads.iter().map(|message| Request::of(Opcode::Read, message)).collect();
        if let Some(message) = &plan.fenced {
            client.paint_elements(message);
            let mut request = Request::of(Opcode::Write, message);
            request.entry.flags = request.entry.flags.with(SendFlags::FENCE);
            requests.push(request);
        }
        client.post(qp, &requests)?;
    }
    let mut seen = vec![0; plans.len()];
    while let Some(done) = client.next_sent()? {
        let first = std::mem::replace(&mut seen[done.qp], done.index + 1);
        for (index, message) in plans[done.qp].reads.iter().enumerate().take(done.index + 1).skip(first) {
            let what = format!("READ {index} when request {} had completed", done.index);
            client.check_all(done.qp, &message.elements, &what)?;
        }
    }
    client.check_region()?;
    let lengths = plans.iter().flat_map(|plan| plan.reads.iter().chain(&plan.fenced));
    Ok(lengths.map(|message| u64::from(message.length)).sum())
}
