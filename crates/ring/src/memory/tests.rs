#![allow(clippy::unwrap_used)]

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;

#[test]
fn only_powers_of_two_up_to_the_limit_make_a_ring() {
    for (units, ok) in [
        (0, false),
        (1, true),
        (2, true),
        (3, false),
        (96, false),
        (UNITS_LIMIT, true),
        (UNITS_LIMIT * 2, false),
        (u32::MAX, false),
    ] {
        assert_eq!(Layout::new(units).is_ok(), ok, "{units}");
    }
}

#[test]
fn the_parts_lie_where_the_table_says() {
    assert_eq!(Layout::new(4).unwrap().bytes(), 384 + 4 * 64);
    let memory = RingMemory::heap(Layout::new(4).unwrap()).unwrap();
    let at = |index| core::ptr::from_ref(memory.word(index)) as usize;
    assert_eq!(at(0) % ALIGNMENT, 0);
    assert_eq!((at(CONSUMER) - at(PRODUCER), at(ARMED) - at(PRODUCER)), (128, 256));
    let entry = |index: u64| core::ptr::from_ref(memory.unit(index).next().unwrap()) as usize;
    assert_eq!((entry(0) - at(0), entry(3) - at(0), entry(4)), (384, 384 + 192, entry(0)));
    assert_eq!(memory.entry_address(64, 1).unwrap() as usize, entry(1));
    assert!(memory.unit(u64::MAX).all(|word| word.load(crate::sync::Ordering::Relaxed) == 0));
}

#[test]
fn addresses_are_given_inside_the_entries_only() {
    let memory = RingMemory::heap(Layout::new(4).unwrap()).unwrap();
    for (offset, length, ok) in [
        (0, 256, true),
        (0, 257, false),
        (255, 1, true),
        (256, 0, true),
        (256, 1, false),
        (257, 0, false),
        (u64::MAX, 1, false),
        (u64::from(u32::MAX) + 1, 0, false),
        (0, u32::MAX, false),
    ] {
        assert_eq!(memory.entry_address(offset, length).is_some(), ok, "{offset} {length}");
    }
}

#[repr(align(128))]
struct Page([AtomicU64; 256]);

struct Keeper(Arc<AtomicBool>);
impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_mapping_is_checked_and_kept_until_the_last_handle_is_gone() {
    let page = Page([const { AtomicU64::new(0) }; 256]);
    let start = core::ptr::from_ref(&page).cast_mut().cast::<u8>();
    let layout = Layout::new(16).unwrap();
    let unmapped = Arc::new(AtomicBool::new(false));
    let map = |offset: usize, bytes| {
        let keeper = Arc::new(Keeper(unmapped.clone()));
        // SAFETY: the page outlives every handle made here, is accessed as atomics only, and the
        // lengths passed never exceed what follows the offset.
        unsafe { RingMemory::from_raw(layout, start.wrapping_add(offset), bytes, keeper) }
    };
    let needed = layout.bytes();
    assert_eq!(map(0, needed - 1).err(), Some(MemoryError::Short { given: needed - 1, needed }));
    for offset in [1, 8, 64] {
        assert_eq!(map(offset, needed).err(), Some(MemoryError::Alignment), "{offset}");
    }
    unmapped.store(false, SeqCst);
    let handles: Vec<RingMemory> = {
        let first = map(128, needed).unwrap();
        [first.clone(), first].into()
    };
    for memory in handles {
        assert!(!unmapped.load(SeqCst));
        memory.word(PRODUCER).store(7, crate::sync::Ordering::Relaxed);
    }
    assert!(unmapped.load(SeqCst));
    assert_eq!(page.0[16].load(SeqCst), 7);
}
