//! Every byte of a WRITE lands once, where it belongs, and nowhere else; where WRITEs of a queue pair meet,
//! the later one's bytes remain. Sizes from 0 to 4 MiB, inline or gathered, signalled or not.

use crate::verify::failure::Failure;
use crate::verify::plan::{Message, LENGTH_MAX};
use crate::verify::side::Side;

fn messages(side: &Side, qp: usize) -> Vec<Message> {
    let round = side.round;
    let count = 1 + round.rng("count", qp).below(64);
    round.anywhere(qp, count, LENGTH_MAX, round.data(qp))
}

/// Target: expects each message in turn.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    target.expect_writes(messages);
    Ok(())
}

/// Client: posts them in goes of random size.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let mut bytes = 0;
    for qp in 0..client.qps() {
        let (requests, length) = client.writes(&messages(client, qp));
        bytes += length;
        let mut rng = client.round.rng("goes", qp);
        let mut rest = requests.as_slice();
        while !rest.is_empty() {
            let (go, later) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
            client.post(qp, go)?;
            rest = later;
        }
    }
    client.finish()?;
    Ok(bytes)
}
