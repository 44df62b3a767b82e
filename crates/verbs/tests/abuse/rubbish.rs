//! Any call with anything, in any order, by one thread and by eight at once, seeded.

use std::sync::Mutex;

use crate::exports::{call, export};
use crate::handles::{device, field, qp_attributes, removed};
use crate::signatures::{Argument, Kind, Signature, ALL};

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Objects made so far, removed or not: any thread may use or remove any of them.
#[derive(Default)]
struct Known(Mutex<Vec<(Kind, usize)>>);

impl Known {
    fn add(&self, kind: Kind, handle: usize) {
        let mut all = self.0.lock().unwrap();
        if all.len() >= 256 {
            all.remove(0);
        }
        all.push((kind, handle));
    }

    /// A handle of that kind, mostly; perhaps freed, perhaps none at all.
    fn any(&self, kind: Kind, chance: &mut Chance) -> usize {
        let all = self.0.lock().unwrap();
        let fitting: Vec<usize> = all.iter().filter(|known| known.0 == kind).map(|known| known.1).collect();
        match chance.below(20) {
            0 => 0,
            1 => chance.next() as usize & !7,
            2 if !all.is_empty() => all[chance.below(all.len())].1,
            _ if !fitting.is_empty() => fitting[chance.below(fitting.len())],
            _ => 0,
        }
    }
}

const NUMBERS: [usize; 14] = [
    0,
    1,
    2,
    3,
    15,
    255,
    4096,
    1 << 20,
    i32::MAX as usize,
    1 << 31,
    u32::MAX as usize,
    1 << 40,
    isize::MAX as usize,
    usize::MAX,
];

/// Rubbish for a struct: words that are handles, small numbers, or noise.
fn fill(place: &mut [u64; 512], known: &Known, chance: &mut Chance) {
    let kinds = [Kind::Cq, Kind::Pd, Kind::Channel, Kind::Qp, Kind::Context];
    let noise = chance.below(3);
    for word in place.iter_mut().take(64) {
        *word = match (noise, chance.below(4)) {
            (0, _) => 0,
            (1, _) | (2, 0) => chance.next(),
            (_, 1) => known.any(kinds[chance.below(kinds.len())], chance) as u64,
            _ => chance.below(8) as u64 | (chance.below(8) as u64) << 32,
        };
    }
    if chance.below(4) == 0 {
        place[..64].copy_from_slice(&qp_attributes(known.any(Kind::Cq, chance)));
    }
}

fn one_call(signature: &Signature, known: &Known, chance: &mut Chance) {
    let mut places = [[0u64; 512]; 6];
    let mut words = [0; 6];
    for (index, argument) in signature.takes.iter().enumerate() {
        words[index] = match *argument {
            Argument::Of(kind) => known.any(kind, chance),
            Argument::Number if chance.below(2) == 0 => chance.below(20),
            Argument::Number => NUMBERS[chance.below(NUMBERS.len())],
            Argument::Size => [0, 8, 32, 4096][chance.below(4)],
            Argument::Struct if chance.below(10) == 0 => 0,
            Argument::Struct => {
                fill(&mut places[index], known, chance);
                places[index].as_mut_ptr() as usize
            }
            Argument::Zeros => 0,
        };
    }
    // SAFETY: structs have room for 4 KiB, and no function follows a pointer within one that is no handle.
    let (value, _) = unsafe { call(export(signature.name), words) };
    if let (Some(kind), true) = (signature.makes, value != 0) {
        if matches!(kind, Kind::Context | Kind::Channel) {
            let (of, name) = match kind {
                Kind::Context => ("ibv_context", "async_fd"),
                _ => ("ibv_comp_channel", "fd"),
            };
            // SAFETY: an object just made; nobody knows it yet. Reading from it must not wait for ever.
            unsafe { libc::fcntl(field::<i32>(value, of, name), libc::F_SETFL, libc::O_NONBLOCK) };
        }
        known.add(kind, value);
    }
}

fn calls(seed: u64, count: usize, known: &Known) {
    let mut chance = Chance(seed);
    let makers: Vec<&Signature> = ALL.iter().filter(|signature| signature.makes.is_some()).collect();
    for _ in 0..count {
        let signature = match chance.below(4) {
            0 => makers[chance.below(makers.len())],
            _ => &ALL[chance.below(ALL.len())],
        };
        // A list is the program's to free; making ten thousand proves nothing.
        if signature.name != "ibv_get_device_list" {
            one_call(signature, known, &mut chance);
        }
    }
}

fn run(threads: u64, count: usize) {
    let _alone = crate::alone();
    let seed = std::env::var("SRDMA_ABUSE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("SRDMA_ABUSE_SEED={seed}");
    let known = Known::default();
    known.add(Kind::Device, device());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let known = &known;
            scope.spawn(move || calls(seed * 1000 + thread, count, known));
        }
    });
    let known = known.0.into_inner().unwrap();
    assert!(known.len() > 50, "too tame: {} objects", known.len());
    for (kind, handle) in known {
        if kind == Kind::Context {
            removed("ibv_close_device", handle);
        }
    }
    // The library still works.
    crate::handles::Objects::new().remove();
}

#[test]
fn any_calls_in_any_order_do_no_harm() {
    run(1, 30_000);
}

#[test]
fn nor_do_they_from_eight_threads_at_once() {
    run(8, 4_000);
}
