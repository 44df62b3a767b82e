//! Memory may change while it is transferred. Programs are allowed to do that (a checkpoint of live memory, a
//! ring whose tail is still written), so nothing may fail, and every byte that arrives is one that was there.
//! Half of the messages are WRITEs from memory that the client changes, half are READs of memory that the
//! target changes.

use crate::verify::failure::Failure;
use crate::verify::ground::Region;
use crate::verify::pattern;
use crate::verify::plan::Message;
use crate::verify::side::{Request, Side};
use srdma_abi::Opcode;
use std::sync::atomic::{AtomicBool, Ordering};

const LENGTH_MAX: u32 = 1 << 20;
/// Bytes that are changed at a time.
const STROKE: usize = 4096;

/// Bytes that are one pattern or its complement.
#[derive(Clone, Copy)]
struct Stretch {
    at: u64,
    length: u32,
    tag: u64,
    from: u64,
}

/// WRITEs and READs of a queue pair.
fn messages(side: &Side, qp: usize) -> (Vec<Message>, Vec<Message>) {
    let count = 2 + side.round.rng("count", qp).below(30);
    let mut all = side.round.apart(qp, count, LENGTH_MAX);
    // Inline data is copied when it is posted.
    all.iter_mut().for_each(|message| (message.inline, message.signalled) = (false, true));
    let reads = all.split_off(all.len() / 2);
    (all, reads)
}

fn piece(message: &Message) -> Stretch {
    Stretch { at: message.at, length: message.length, tag: message.tag, from: 0 }
}

fn elements(message: &Message) -> Vec<Stretch> {
    let mut from = 0;
    let stretch = |span: &crate::verify::plan::Span| {
        let stretch = Stretch { at: span.at, length: span.length, tag: message.tag, from };
        from += u64::from(span.length);
        stretch
    };
    message.elements.iter().map(stretch).collect()
}

fn every(side: &Side, pick: impl Fn(Vec<Message>, Vec<Message>) -> Vec<Stretch>) -> Vec<(usize, Stretch)> {
    let of_qp = |qp| {
        let (writes, reads) = messages(side, qp);
        pick(writes, reads).into_iter().map(move |stretch| (qp, stretch))
    };
    (0..side.qps()).flat_map(of_qp).collect()
}

/// Paints the stretches with their pattern.
fn paint(side: &mut Side, stretches: &[(usize, Stretch)]) {
    for (_, stretch) in stretches {
        side.ground.paint(stretch.at, u64::from(stretch.length), stretch.tag, stretch.from);
    }
}

/// Changes the stretches from pattern to complement and back until told to stop.
fn change(region: &Region, stretches: &[(usize, Stretch)], stop: &AtomicBool) {
    let mut stroke = vec![0u8; STROKE];
    for complement in [true, false].into_iter().cycle() {
        for (_, stretch) in stretches {
            for start in (0..stretch.length as usize).step_by(STROKE) {
                let part = &mut stroke[..STROKE.min(stretch.length as usize - start)];
                pattern::fill(stretch.tag, stretch.from + start as u64, part);
                if complement {
                    part.iter_mut().for_each(|byte| *byte = !*byte);
                }
                region.store(stretch.at + start as u64, part);
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        std::thread::yield_now();
    }
}

/// Every byte of the stretches was there at one time.
fn check(side: &mut Side, stretches: &[(usize, Stretch)], what: &str) -> Result<(), Failure> {
    for &(qp, stretch) in stretches {
        let length = u64::from(stretch.length);
        if let Err(difference) = side.ground.check_either(stretch.at, length, stretch.tag, stretch.from) {
            return Err(side.broken(Some(qp), &difference, what));
        }
    }
    Ok(())
}

/// Runs `work` on `side` while another thread changes `stretches`; afterwards they are whatever they are.
fn while_changing<T>(
    side: &mut Side,
    stretches: &[(usize, Stretch)],
    work: impl FnOnce(&mut Side) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let region = side.ground.share();
    let stop = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| change(&region, stretches, &stop));
        let result = work(side);
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    for (_, stretch) in stretches {
        side.ground.adopt(stretch.at, u64::from(stretch.length));
    }
    Ok(result)
}

/// Target: lays out what will be read.
pub fn prepare(target: &mut Side) -> Result<(), Failure> {
    let read = every(target, |_, reads| reads.iter().map(piece).collect());
    paint(target, &read);
    Ok(())
}

/// Target: changes what is being read until the client is done.
pub fn watch(target: &mut Side) -> Result<(), Failure> {
    let read = every(target, |_, reads| reads.iter().map(piece).collect());
    while_changing(target, &read, |target| {
        while !target.channel.has_message()? {
            std::thread::sleep(std::time::Duration::from_millis(1));
            target.wait("waiting until the client has read")?;
        }
        Ok(())
    })
}

/// Target: looks at what was written.
pub fn settle(target: &mut Side) -> Result<(), Failure> {
    let written = every(target, |writes, _| writes.iter().map(piece).collect());
    check(target, &written, "a WRITE from memory that changed")
}

/// Client: changes what it writes; looks at what it read.
pub fn act(client: &mut Side) -> Result<u64, Failure> {
    let sources = every(client, |writes, _| writes.iter().flat_map(elements).collect());
    let results = every(client, |_, reads| reads.iter().flat_map(elements).collect());
    paint(client, &sources);
    let bytes = while_changing(client, &sources, |client| {
        let mut bytes = 0;
        for qp in 0..client.qps() {
            let (writes, reads) = messages(client, qp);
            bytes += writes.iter().chain(&reads).map(|message| u64::from(message.length)).sum::<u64>();
            let writes = writes.iter().map(|message| Request::of(Opcode::Write, message));
            let reads = reads.iter().map(|message| Request::of(Opcode::Read, message));
            let requests: Vec<Request> = writes.chain(reads).collect();
            client.post(qp, &requests)?;
        }
        client.finish()?;
        Ok(bytes)
    })?;
    check(client, &results, "a READ of memory that changed")?;
    client.check_region()?;
    Ok(bytes)
}
