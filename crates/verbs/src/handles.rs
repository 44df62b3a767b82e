//! Which handles are alive: how a null, freed or foreign one is told from an object.
//!
//! A program names objects by their addresses. Every control call looks the address up here before it is
//! followed, so a handle that was never given out, was given back, or names an object of another kind is EINVAL, and an
//! object that another thread removes meanwhile stays in memory until the call ends.
//!
//! Calls of the data path are inline functions of the header, which have followed the handle before we are asked.
//! For them an object that was removed stays in memory for a while, marked as gone (a grave), and the call is
//! EINVAL as well. A wild pointer given to one of *those* crashes in the program's own code, as with every verbs
//! library. An address may be used again for a later object; graves put that off.

use crate::border::Errno;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Removed objects that stay in memory.
const GRAVES_MAX: usize = 256;
/// Bytes that they may hold, rings included.
const GRAVE_BYTES_MAX: usize = 4 << 20;

/// A handle: an address as programs have it.
pub(crate) type Address = usize;

/// An object that programs know by its address.
pub(crate) trait Handle: Sized + 'static {
    /// From the start of the object to the address that programs have.
    const OFFSET: usize = 0;

    /// It was removed: what must not be used any more says so from now on, descriptors are closed.
    fn retire(&self) {}

    /// Bytes that it keeps while in its grave.
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// An object as the registry keeps it.
#[repr(transparent)]
struct Kept<T>(T);

// SAFETY: verbs objects may be used and removed by any thread. Ours guard their state by locks and atomics; their C
// part is in cells that only the calls of one thread at a time write, as the manual pages ask of programs.
unsafe impl<T: Handle> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T: Handle> Sync for Kept<T> {}

/// The part of [`Handle`] that needs no type.
trait Object: Send + Sync {
    fn retire(&self);
    fn bytes(&self) -> usize;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Handle> Object for Kept<T> {
    fn retire(&self) {
        self.0.retire();
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

struct Entry {
    object: Arc<dyn Object>,
    /// The context that it was made through.
    owner: Address,
    /// A call is about to remove it.
    claimed: bool,
}

struct Registry {
    alive: BTreeMap<Address, Entry>,
    graves: VecDeque<(usize, Arc<dyn Object>)>,
    grave_bytes: usize,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { alive: BTreeMap::new(), graves: VecDeque::new(), grave_bytes: 0 });
/// Process that the registry is of.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The registry; EIO in a child after fork if a thread that does not exist there held its lock.
fn registry() -> Result<MutexGuard<'static, Registry>, Errno> {
    match REGISTRY.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) if PROCESS.load(Ordering::Relaxed) != std::process::id() => {
            Err(Errno::EIO)
        }
        Err(TryLockError::WouldBlock) => Ok(REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// An object in use by a call.
pub(crate) struct Ref<T: Handle>(Arc<Kept<T>>);

impl<T: Handle> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0 .0
    }
}

impl<T: Handle> Ref<T> {
    fn address(&self) -> Address {
        Arc::as_ptr(&self.0).addr() + T::OFFSET
    }
}

/// Gives an object to the program: from now on its address is a handle. `owner` is the handle of its context; a
/// context has 0.
pub(crate) fn publish<T: Handle>(object: T, owner: Address) -> Result<*mut T, Errno> {
    let object = Arc::new(Kept(object));
    let place = Arc::as_ptr(&object);
    let key = place.addr() + T::OFFSET;
    let mut registry = registry()?;
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let owner = if owner == 0 { key } else { owner };
    registry.alive.insert(key, Entry { object, owner, claimed: false });
    Ok(place.cast_mut().cast())
}

fn typed<T: Handle>(entry: Option<&mut Entry>) -> Result<(Ref<T>, &mut bool), Errno> {
    let entry = entry.ok_or(Errno::EINVAL)?;
    let object = Arc::clone(&entry.object).into_any().downcast().map_err(|_| Errno::EINVAL)?;
    Ok((Ref(object), &mut entry.claimed))
}

/// The object that `handle` (an address as programs have it) names; EINVAL if it names none of this type.
pub(crate) fn find<T: Handle>(handle: *const ()) -> Result<Ref<T>, Errno> {
    Ok(typed(registry()?.alive.get_mut(&handle.addr()))?.0)
}

/// An object that this call, and no other, may remove.
pub(crate) struct Claim<T: Handle> {
    pub(crate) object: Ref<T>,
    done: bool,
}

/// Claims the object for its removal; EINVAL if there is none of this type, or another call removes it already.
pub(crate) fn claim<T: Handle>(handle: *const ()) -> Result<Claim<T>, Errno> {
    let mut registry = registry()?;
    let (object, claimed) = typed(registry.alive.get_mut(&handle.addr()))?;
    match std::mem::replace(claimed, true) {
        true => Err(Errno::EINVAL),
        false => Ok(Claim { object, done: false }),
    }
}

impl<T: Handle> Claim<T> {
    /// Removes the object. Without this, it stays alive when the claim is dropped.
    pub(crate) fn bury(mut self) {
        self.done = true;
        let Ok(mut registry) = registry() else { return };
        let removed = registry.alive.remove(&self.object.address());
        drop(registry);
        entomb(removed.into_iter().collect());
    }
}

impl<T: Handle> Drop for Claim<T> {
    fn drop(&mut self) {
        if let (false, Ok(mut registry)) = (self.done, registry()) {
            if let Some(entry) = registry.alive.get_mut(&self.object.address()) {
                entry.claimed = false;
            }
        }
    }
}

/// Removes everything that was made through the context `owner`, itself included.
pub(crate) fn bury_all_of(owner: Address) {
    let Ok(mut registry) = registry() else { return };
    let meant: Vec<Address> =
        registry.alive.iter().filter(|(_, entry)| entry.owner == owner).map(|(key, _)| *key).collect();
    let removed = meant.iter().filter_map(|key| registry.alive.remove(key)).collect();
    drop(registry);
    entomb(removed);
}

fn entomb(removed: Vec<Entry>) {
    removed.iter().for_each(|entry| entry.object.retire());
    let Ok(mut registry) = registry() else { return };
    for entry in removed {
        let bytes = entry.object.bytes();
        registry.grave_bytes += bytes;
        registry.graves.push_back((bytes, entry.object));
    }
    let mut oldest = Vec::new();
    while registry.graves.len() > GRAVES_MAX || registry.grave_bytes > GRAVE_BYTES_MAX {
        let Some((bytes, object)) = registry.graves.pop_front() else { break };
        registry.grave_bytes -= bytes;
        oldest.push(object);
    }
    // Freed without the lock.
    drop(registry);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Thing(usize, &'static AtomicUsize);

    impl Handle for Thing {
        fn retire(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Large(#[allow(dead_code)] u8);

    impl Handle for Large {
        fn bytes(&self) -> usize {
            GRAVE_BYTES_MAX
        }
    }

    fn handle<T: Handle>(object: T, owner: Address) -> *const () {
        publish(object, owner).unwrap().cast_const().cast()
    }

    fn error<T>(result: Result<T, Errno>) -> Option<i32> {
        result.err().map(|errno| errno.0)
    }

    #[test]
    fn only_what_is_alive_and_of_the_kind_is_found_and_one_call_removes_it() {
        static RETIRED: AtomicUsize = AtomicUsize::new(0);
        let thing = handle(Thing(7, &RETIRED), 1);
        assert_eq!(find::<Thing>(thing).unwrap().0 .0 .0, 7);
        for wrong in [std::ptr::null(), thing.wrapping_byte_add(8), std::ptr::without_provenance(8)] {
            assert_eq!(error(find::<Thing>(wrong)), Some(libc::EINVAL));
        }
        assert_eq!(error(find::<Large>(thing)), Some(libc::EINVAL));
        assert_eq!(error(claim::<Large>(thing)), Some(libc::EINVAL));
        let first = claim::<Thing>(thing).unwrap();
        assert_eq!(error(claim::<Thing>(thing)), Some(libc::EINVAL));
        assert!(find::<Thing>(thing).is_ok(), "its events are acknowledged while it is being removed");
        drop(first);
        let user = find::<Thing>(thing).unwrap();
        claim::<Thing>(thing).unwrap().bury();
        assert_eq!(RETIRED.load(Ordering::Relaxed), 1);
        assert_eq!(error(find::<Thing>(thing)), Some(libc::EINVAL));
        assert_eq!(error(claim::<Thing>(thing)), Some(libc::EINVAL));
        assert_eq!(user.0 .0 .0, 7, "a call that uses it may end");
    }

    #[test]
    fn with_their_context_all_its_objects_go_and_graves_are_bounded() {
        static RETIRED: AtomicUsize = AtomicUsize::new(0);
        let many: Vec<_> = (0..10).map(|i| handle(Thing(i, &RETIRED), 0x77)).collect();
        let stays = handle(Thing(99, &RETIRED), 0x78);
        bury_all_of(0x77);
        assert_eq!(RETIRED.load(Ordering::Relaxed), 10);
        assert!(many.iter().all(|&thing| find::<Thing>(thing).is_err()));
        assert!(find::<Thing>(stays).is_ok());
        for _ in 0..3 {
            claim::<Large>(handle(Large(0), 1)).unwrap().bury();
        }
        let registry = registry().unwrap();
        assert!(registry.graves.len() <= GRAVES_MAX && registry.grave_bytes <= GRAVE_BYTES_MAX);
    }
}
