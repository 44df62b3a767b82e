//! A bounded store of payload copies that wait for earlier bytes.

/// Smallest and largest class of buffer, as powers of two: 256 bytes to 64 KiB.
const CLASS_MIN: u32 = 8;
const CLASS_MAX: u32 = 16;
const CLASSES: usize = (CLASS_MAX - CLASS_MIN + 1) as usize;
/// Longest payload that can be kept, bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1 << CLASS_MAX;

/// A payload that is kept.
struct Held {
    buffer: Box<[u8]>,
    length: usize,
}

/// Copies of payloads, each named by a small number, with a limit on the memory of all.
///
/// Memory is taken when first needed, in powers of two, and reused after; nothing is given back to the
/// allocator but to make room for another size.
pub struct Holds {
    limit_bytes: usize,
    /// Memory of all buffers, free ones included.
    reserved_bytes: usize,
    held_bytes: usize,
    held: Vec<Option<Held>>,
    free_numbers: Vec<u32>,
    free_buffers: [Vec<Box<[u8]>>; CLASSES],
}

impl Holds {
    /// A store of at most `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Holds {
        Holds {
            limit_bytes,
            reserved_bytes: 0,
            held_bytes: 0,
            held: Vec::new(),
            free_numbers: Vec::new(),
            free_buffers: Default::default(),
        }
    }

    /// Keeps a copy of `payload`; `None` if it is longer than [`PAYLOAD_BYTES_MAX`] or the store is full.
    pub fn put(&mut self, payload: &[u8]) -> Option<u32> {
        let mut buffer = self.take_buffer(payload.len())?;
        buffer[..payload.len()].copy_from_slice(payload);
        self.held_bytes += payload.len();
        let held = Some(Held { buffer, length: payload.len() });
        match self.free_numbers.pop() {
            Some(number) => {
                self.held[number as usize] = held;
                Some(number)
            }
            None => {
                self.held.push(held);
                Some((self.held.len() - 1) as u32)
            }
        }
    }

    /// The payload kept under `number`; empty if there is none.
    pub fn get(&self, number: u32) -> &[u8] {
        match self.held.get(number as usize) {
            Some(Some(held)) => &held.buffer[..held.length],
            _ => &[],
        }
    }

    /// Forgets the payload kept under `number`, if there is one.
    pub fn release(&mut self, number: u32) {
        if let Some(held) = self.held.get_mut(number as usize).and_then(Option::take) {
            self.held_bytes -= held.length;
            self.free_numbers.push(number);
            self.free_buffers[class_of(held.buffer.len())].push(held.buffer);
        }
    }

    /// Payloads kept now.
    pub fn len(&self) -> usize {
        self.held.len() - self.free_numbers.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the payloads kept now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Memory taken, free buffers included; never above the limit.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    fn take_buffer(&mut self, length: usize) -> Option<Box<[u8]>> {
        if length > PAYLOAD_BYTES_MAX {
            return None;
        }
        let class = class_of(length);
        if let Some(buffer) = self.free_buffers[class].pop() {
            return Some(buffer);
        }
        let bytes = 1 << (CLASS_MIN as usize + class);
        while self.reserved_bytes + bytes > self.limit_bytes {
            // Largest first: fewest buffers have to go.
            let buffer = self.free_buffers.iter_mut().rev().find_map(Vec::pop)?;
            self.reserved_bytes -= buffer.len();
        }
        self.reserved_bytes += bytes;
        Some(vec![0; bytes].into_boxed_slice())
    }
}

fn class_of(length: usize) -> usize {
    (length.max(1 << CLASS_MIN).next_power_of_two().trailing_zeros() - CLASS_MIN) as usize
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use srdma_seams::Rng;

    use super::*;

    #[test]
    fn keeps_what_it_is_given_until_it_is_released() {
        let mut holds = Holds::new(1 << 20);
        let mut model: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut rng = Rng::new(11);
        let mut refused = 0;
        for step in 0..20_000u32 {
            if rng.chance_ppm(550_000) {
                let magnitude = rng.below(17);
                let length = rng.below(1 << magnitude) as usize;
                let payload: Vec<u8> = (0..length).map(|i| (i as u32 ^ step) as u8).collect();
                match holds.put(&payload) {
                    Some(number) => {
                        assert!(model.iter().all(|(other, _)| *other != number));
                        model.push((number, payload));
                    }
                    None => refused += 1,
                }
            } else if !model.is_empty() {
                let (number, payload) = model.swap_remove(rng.below(model.len() as u64) as usize);
                assert_eq!(holds.get(number), &payload[..]);
                holds.release(number);
                assert_eq!(holds.get(number), b"");
            }
            assert!(holds.reserved_bytes() <= 1 << 20);
            assert_eq!(holds.held_bytes(), model.iter().map(|(_, payload)| payload.len()).sum::<usize>());
            assert_eq!(holds.len(), model.len());
        }
        assert!(refused > 0, "the limit was never met");
    }

    #[test]
    fn memory_of_one_size_is_given_up_for_another() {
        let mut holds = Holds::new(4 << CLASS_MAX);
        let large: Vec<u32> = (0..4).map(|_| holds.put(&[1; PAYLOAD_BYTES_MAX]).unwrap()).collect();
        assert_eq!(holds.put(b"x"), None);
        holds.release(large[2]);
        let small = holds.put(b"x").unwrap();
        assert_eq!((holds.get(small), holds.get(large[3])), (&b"x"[..], &[1; PAYLOAD_BYTES_MAX][..]));
        assert_eq!(holds.put(&[1; PAYLOAD_BYTES_MAX]), None);
        assert_eq!(holds.put(&[0; PAYLOAD_BYTES_MAX + 1]), None);
        holds.release(small);
        holds.release(small);
        assert_eq!(holds.len(), 3);
    }
}
