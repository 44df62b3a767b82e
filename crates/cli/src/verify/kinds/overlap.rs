//! WRITEs of one queue pair to the same memory, posted back to back, end as if done one after the other: on
//! every byte the last one that covers it wins, whichever path was faster and whatever was lost.

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, LENGTH_MAX};
use crate::verify::side::Side;

fn messages(side: &Side, qp: usize) -> Vec<Message> {
    let round = side.round;
    let mut rng = round.rng("window", qp);
    let count = 2 + rng.below(127);
    let (start, end) = round.data(qp);
    // From windows in which all lie in one packet, to megabytes.
    let window = 64u64 << rng.below(16);
    let from = start + rng.below(end - start - window);
    round.anywhere(qp, count, LENGTH_MAX, (from, from + window))
}

/// Target: expects them in order.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    target.expect_writes(messages);
    Ok(())
}

/// Client: posts all of them at once.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let mut bytes = 0;
    for qp in 0..client.qps() {
        let (requests, length) = client.writes(&messages(client, qp));
        bytes += length;
        client.post(qp, &requests)?;
    }
    client.finish()?;
    Ok(bytes)
}
