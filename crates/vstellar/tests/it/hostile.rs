//! Anybody may send anything.

use srdma_abi::command::*;
use srdma_seams::Rng;
use srdma_vstellar::{SessionId, Who};

use crate::model::{name, Ground};

/// Messages per seed: 20,000, or `SRDMA_SEEDS` times as many.
fn seeds() -> u64 {
    std::env::var("SRDMA_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// A command with small numbers, or those made last, in its fields, so that it often means something; sometimes with
/// bytes changed, cut or added.
fn message(rng: &mut Rng, made: u32) -> Vec<u8> {
    let row = TABLE[rng.below(TABLE.len() as u64) as usize];
    let head = Header { magic: MAGIC, version: VERSION, code: row.code, sequence: rng.next_u32(), status: 0 };
    let mut bytes = vec![0; Header::BYTES + row.request_bytes];
    head.put(&mut Out(&mut bytes));
    let body = &mut bytes[Header::BYTES..];
    for word in body.chunks_exact_mut(4) {
        let value = match rng.below(8) {
            0 => rng.next_u32(),
            1 => u32::MAX,
            2 => 0,
            3..=5 => made.saturating_sub(rng.below(60) as u32),
            _ => rng.below(60) as u32,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    let names = matches!(row.code, 64..=69);
    if names && rng.chance_ppm(900_000) {
        let text = ["a", "b", "c", "d"][rng.below(4) as usize];
        name(text).put(&mut Out(&mut *body));
        if row.request_bytes >= 2 * NAME_BYTES {
            name("t").put(&mut Out(&mut body[NAME_BYTES..]));
            body[2 * NAME_BYTES..].fill(0);
        }
    }
    match rng.below(20) {
        0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        1 => bytes.extend((0..rng.below(80)).map(|_| 7)),
        2 => {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        _ => {}
    }
    bytes
}

/// The model panics when it is asked for what another session made, and when something is left behind.
#[test]
fn no_sequence_of_messages_reaches_what_another_made_or_leaves_anything_behind() {
    for seed in 0..seeds() {
        let mut rng = Rng::stream(seed, "vstellar-hostile", 0);
        let mut ground = Ground::new();
        ground.model.fail_every = 17;
        let devices = ["a", "b"];
        for device in devices {
            ground.define(device, "t", Quota { qps: 9, ..Quota::default() });
        }
        let mut sessions: Vec<SessionId> = Vec::new();
        let (mut done, mut refused) = (0u32, 0u32);
        for step in 0..20_000 {
            match rng.below(100) {
                0..=2 => {
                    let device = name(devices[rng.below(2) as usize]);
                    let Ok(device) = ground.interpreter.registry().find(&device) else { continue };
                    let session = ground.interpreter.connect(Who::Program(device));
                    let _ = ground.ask(session, AskAttach::default()).map_err(|_| refused += 1);
                    sessions.push(session);
                }
                3..=4 if !sessions.is_empty() => {
                    let at = rng.below(sessions.len() as u64) as usize;
                    ground.leave(sessions.swap_remove(at));
                }
                _ => {
                    let at = rng.below(sessions.len() as u64 * 20 / 19 + 1) as usize;
                    let session = sessions.get(at).copied().unwrap_or(ground.manager);
                    let message = message(&mut rng, ground.model.next);
                    let answer = ground.send(session, &message);
                    let status = header(&answer).map_or(u32::MAX, |(header, _)| header.status);
                    assert!(answer.len() <= MESSAGE_BYTES_MAX, "seed {seed}, step {step}");
                    *(if status == 0 { &mut done } else { &mut refused }) += 1;
                }
            }
        }
        assert!(done > 500 && refused > 500, "seed {seed}: {done} done, {refused} refused");
        assert_eq!(ground.interpreter.denials().total(), u64::from(refused), "seed {seed}: each is counted");
        sessions.into_iter().for_each(|session| ground.leave(session));
        assert!(ground.model.objects.is_empty(), "seed {seed}");
        assert_eq!(ground.interpreter.registry().used(), Quota::default(), "seed {seed}");
    }
}

#[test]
fn bytes_that_are_no_message_are_answered_and_counted_by_kind() {
    let mut ground = Ground::new();
    let device = ground.define("a", "t", Quota::default());
    let session = ground.attach(device);
    let mut good = [0; MESSAGE_BYTES_MAX];
    let bytes = encode(AskPd::CODE, 0xabcd, 0, &AskPd::default(), &mut good);
    let version = {
        let mut message = good;
        message[4] = 9;
        message
    };
    for (message, denial) in [
        (&[][..], Denial::Malformed),
        (&good[..bytes - 1], Denial::Malformed),
        (&good[..], Denial::Malformed),
        (&version[..bytes], Denial::Version),
    ] {
        let before = ground.interpreter.denials().of(denial);
        let answer = ground.send(session, message);
        assert_eq!(ground.interpreter.denials().of(denial), before + 1);
        let (header, body) = header(&answer).unwrap();
        let refused = Refused::get(&mut In(body));
        assert!(header.status != 0 && refused.denial == denial as u32 && !refused.text().is_empty());
    }
    assert!(ground.model.objects.len() == 1, "the program is attached as before");
}
