//! Atomics are carried out once each, whatever is lost or sent again, and one at a time, whichever queue pair they
//! come from. First every queue pair adds to one counter: the sum is exact, and the values returned are those of
//! some order of all additions that keeps each queue pair's own. Then they take turns behind a lock made of
//! compare-and-swap, and change a plain word under it.

use crate::verify::failure::Failure;
use crate::verify::plan::Round;
use crate::verify::side::{Request, Side};
use srdma_abi::Opcode;
use std::sync::atomic::Ordering;

/// Additions per queue pair.
const ADDITIONS: u64 = 40;
/// Turns behind the lock per queue pair.
const TURNS: u64 = 6;

// Words of the target, in the part of queue pair 0.
const COUNTER: u64 = 300;
const LOCK: u64 = 301;
const GUARDED: u64 = 302;
// Words of the client, in the part of each queue pair.
const RESULTS: u64 = 128;
const OLD_LOCK: u64 = 400;
const READ_BACK: u64 = 401;
const NEXT: u64 = 402;

struct Plan {
    base: u64,
    addend: u64,
    /// The inverse of `addend`, which is odd, modulo 2⁶⁴.
    inverse: u64,
    guarded: u64,
}

fn plan(round: &Round) -> Plan {
    let mut rng = round.rng("words", 0);
    // Every other round wraps.
    let base = if rng.below(2) == 0 { rng.next_u64() } else { u64::MAX - rng.below(ADDITIONS) };
    let addend = if rng.below(2) == 0 { 1 } else { rng.next_u64() | 1 };
    // Newton's iteration doubles the number of right bits, three of which are right at the start.
    let inverse = (0..5).fold(addend, |x, _| x.wrapping_mul(2u64.wrapping_sub(addend.wrapping_mul(x))));
    Plan { base, addend, inverse, guarded: rng.next_u64() }
}

/// Target: sets the words.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    let plan = plan(&target.round);
    let qps = target.qps() as u64;
    let word = |index| target.round.word(0, index);
    let (counter, lock, guarded) = (word(COUNTER), word(LOCK), word(GUARDED));
    target.set_word(counter, plan.base, plan.base.wrapping_add(plan.addend.wrapping_mul(ADDITIONS * qps)));
    target.set_word(lock, 0, 0);
    target.set_word(guarded, plan.guarded, plan.guarded.wrapping_add(TURNS * qps));
    Ok(())
}

/// Client: additions, then turns.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let plan = plan(&client.round);
    add(client, &plan)?;
    let swaps = take_turns(client)?;
    let qps = client.qps() as u64;
    client.check_region()?;
    Ok((ADDITIONS * qps + swaps) * 8)
}

fn add(client: &mut Side, plan: &Plan) -> Result<(), Failure> {
    let counter = client.round.word(0, COUNTER);
    for qp in 0..client.qps() {
        let additions: Vec<Request> = (0..ADDITIONS)
            .map(|number| {
                let result = client.round.word(qp, RESULTS + number);
                let mut request = Request::word(Opcode::FetchAdd, counter, result);
                request.entry.compare_add = plan.addend;
                request
            })
            .collect();
        client.post(qp, &additions)?;
    }
    client.finish()?;
    let total = ADDITIONS * client.qps() as u64;
    let mut taken = vec![false; total as usize];
    for qp in 0..client.qps() {
        let mut least = 0;
        for number in 0..ADDITIONS {
            let old = adopt(client, qp, RESULTS + number);
            let place = old.wrapping_sub(plan.base).wrapping_mul(plan.inverse);
            if place >= total || place < least || std::mem::replace(&mut taken[place as usize], true) {
                let what = format!("value before addition {number} to a counter");
                let expected = format!(
                    "{:#x} + k * {:#x}, k from {least} to {} and not seen before",
                    plan.base,
                    plan.addend,
                    total - 1
                );
                return Err(client.violated(qp, what, expected, format!("{old:#x} (k = {place})")));
            }
            least = place + 1;
        }
    }
    Ok(())
}

/// What came to one of our words; it is right from now on.
fn adopt(client: &mut Side, qp: usize, index: u64) -> u64 {
    let at = client.round.word(qp, index);
    client.ground.adopt(at, 8);
    client.ground.region().word(at).load(Ordering::Acquire)
}

/// Where a queue pair is in its turn.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Asked for the lock.
    Asking,
    /// Has the lock, reads the word.
    Reading,
    /// Has written it; lets go of the lock with the second of two requests.
    Writing,
    /// The WRITE is complete.
    LettingGo,
    Finished,
}

/// Returns the number of atomics it took.
fn take_turns(client: &mut Side) -> Result<u64, Failure> {
    let mut steps = vec![Step::Asking; client.qps()];
    let mut turns = vec![0; client.qps()];
    let mut atomics = 0;
    for qp in 0..client.qps() {
        ask(client, qp)?;
    }
    while let Some(done) = client.next_sent()? {
        let qp = done.qp;
        steps[qp] = match steps[qp] {
            Step::Asking => {
                atomics += 1;
                match adopt(client, qp, OLD_LOCK) {
                    0 => {
                        let (from, to) = (client.round.word(0, GUARDED), client.round.word(qp, READ_BACK));
                        client.post(qp, &[Request::word(Opcode::Read, from, to)])?;
                        Step::Reading
                    }
                    _ => {
                        ask(client, qp)?;
                        Step::Asking
                    }
                }
            }
            Step::Reading => {
                let next = adopt(client, qp, READ_BACK).wrapping_add(1);
                write_and_let_go(client, qp, next)?;
                Step::Writing
            }
            Step::Writing => Step::LettingGo,
            Step::LettingGo | Step::Finished => {
                atomics += 1;
                let (owner, expected) = (adopt(client, qp, OLD_LOCK), mark(qp));
                if owner != expected {
                    return Err(client.violated(qp, "the lock when its holder let go", expected, owner));
                }
                turns[qp] += 1;
                if turns[qp] < TURNS {
                    ask(client, qp)?;
                    Step::Asking
                } else {
                    Step::Finished
                }
            }
        };
    }
    Ok(atomics)
}

/// What the lock holds while a queue pair has it.
fn mark(qp: usize) -> u64 {
    qp as u64 + 1
}

fn swap(client: &Side, qp: usize, compare: u64, swap: u64) -> Request {
    let (lock, old) = (client.round.word(0, LOCK), client.round.word(qp, OLD_LOCK));
    let mut request = Request::word(Opcode::CompareSwap, lock, old);
    (request.entry.compare_add, request.entry.swap) = (compare, swap);
    request
}

fn ask(client: &mut Side, qp: usize) -> Result<(), Failure> {
    let request = swap(client, qp, 0, mark(qp));
    client.post(qp, &[request])
}

fn write_and_let_go(client: &mut Side, qp: usize, value: u64) -> Result<(), Failure> {
    let (own, guarded) = (client.round.word(qp, NEXT), client.round.word(0, GUARDED));
    client.set_word(own, value, value);
    let requests = [Request::word(Opcode::Write, guarded, own), swap(client, qp, mark(qp), 0)];
    client.post(qp, &requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::kinds::Kind;

    #[test]
    fn the_place_of_every_value_is_found_back() {
        for number in 0..50 {
            let plan = plan(&Round { kind: Kind::Atomic, number, seed: 8, part_bytes: 16 << 20 });
            for k in [0u64, 1, 39, 1_000_000] {
                let value = plan.base.wrapping_add(plan.addend.wrapping_mul(k));
                assert_eq!(value.wrapping_sub(plan.base).wrapping_mul(plan.inverse), k, "round {number}");
            }
        }
    }
}
