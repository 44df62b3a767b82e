//! Memory of another process, reached through the kernel.
//!
//! What is opened once as `/proc/PID/mem` (proc(5)) is an address space, not a process number: it stays that of the
//! program that attached. When the program ends or executes another one, nothing can be reached any more, whatever runs under its
//! number by then. process_vm_writev(2) is faster, but goes by number each time: a program that attaches and then executes a
//! set-user-id one would have a privileged daemon write into that.
//!
//! The price: protection that the program has put on its *own* private pages does not count (the kernel lets a
//! debugger write there). What is not mapped, and shared pages that may not be written, are a [`Fault`] as ever.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::staging::moved;
use crate::transfer::{each_part, slice, Fault, Position, Slices, Transfer, Way, WORD_BYTES};

/// Bytes listed at a time.
const STEP_BYTES: usize = 1 << 18;

/// Moves bytes between buffers of ours and the memory of another process.
pub struct ProcessMemory {
    memory: OwnedFd,
    ours: Slices,
    theirs: Slices,
    /// Pieces of ours on their way to one place.
    gathered: Vec<u8>,
    /// System calls so far.
    pub calls: u64,
}

impl ProcessMemory {
    /// A mover for the address space that `memory` names: `/proc/PID/mem`, open for reading and writing. That it is the right
    /// one is for whoever opened it to know.
    ///
    /// # Safety
    /// Buffers of ours that it is handed live through the call and, for [`ProcessMemory::read`], are borrowed by
    /// nobody else. The address space is not our own, or only addresses come that [`crate::OwnMemory`] might be given.
    pub unsafe fn new(memory: OwnedFd) -> ProcessMemory {
        let (ours, theirs) = (Slices::default(), Slices::default());
        ProcessMemory { memory, ours, theirs, gathered: Vec::new(), calls: 0 }
    }

    /// Copies `ours` to `theirs`, in order. What may be polled comes last, as with [`crate::OwnMemory`].
    pub fn write(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::ToTheirs)
    }

    /// Copies `theirs` to `ours`.
    pub fn read(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::FromTheirs)
    }

    /// Replaces the 8 bytes at `address` by what `operation` makes of them (`None` leaves them alone); answers the value
    /// before. Atomic against other calls of the same caller, not against the program's own instructions
    /// (`IBV_ATOMIC_HCA`).
    pub fn atomic_u64(
        &mut self,
        address: u64,
        operation: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<u64, Fault> {
        let mut bytes = [0; WORD_BYTES];
        self.read(&[Transfer::back(&mut bytes, address)])?;
        let before = u64::from_ne_bytes(bytes);
        if let Some(after) = operation(before) {
            self.write(&[Transfer::out(&after.to_ne_bytes(), address)])?;
        }
        Ok(before)
    }

    fn transfer(&mut self, batch: &[Transfer], way: Way) -> Result<(), Fault> {
        let mut at = Position { index: 0, offset: 0 };
        while at.settle(batch).is_some() {
            if self.theirs.list(batch, at, STEP_BYTES) == 0 {
                return Err(Fault { index: at.index });
            }
            if way == Way::FromTheirs {
                // Nobody polls our buffers.
                self.theirs.join();
            }
            for number in 0..self.theirs.0.len() {
                let (address, length) =
                    (self.theirs.0[number].iov_base as usize, self.theirs.0[number].iov_len);
                let moved = self.step(batch, at, address, length, way);
                at.advance(batch, moved);
                if moved < length {
                    at.settle(batch);
                    return Err(Fault { index: at.index });
                }
            }
        }
        Ok(())
    }

    /// One system call: `length` bytes from `at` on, which lie at `address`. How many were moved.
    fn step(&mut self, batch: &[Transfer], at: Position, address: usize, length: usize, way: Way) -> usize {
        let ours = &mut self.ours;
        ours.0.clear();
        each_part(batch, at, length, |transfer, offset, _, part| {
            ours.0.push(slice(transfer.ours + offset, part));
        });
        ours.join();
        if way == Way::ToTheirs && ours.0.len() > 1 {
            // The kernel takes each piece by itself, page by page: what is copied together first costs it far less.
            self.gathered.clear();
            for part in &ours.0 {
                // SAFETY: that our side is there is the promise made to `new`.
                let bytes = unsafe { std::slice::from_raw_parts(part.iov_base as *const u8, part.iov_len) };
                self.gathered.extend_from_slice(bytes);
            }
            ours.0.clear();
            ours.0.push(slice(self.gathered.as_ptr() as usize, length));
        }
        let ours = &ours.0;
        // Beyond the half of the address space that programs have: negative, and refused.
        let (fd, count, start) = (self.memory.as_raw_fd(), ours.len() as libc::c_int, address as libc::off_t);
        self.calls += 1;
        moved(|| {
            // SAFETY: the list lives through the call; that our side is there, and borrowed by nobody, is the promise
            // made to `new`. The other side is checked by the kernel.
            unsafe {
                match way {
                    Way::ToTheirs => libc::pwritev(fd, ours.as_ptr(), count, start),
                    Way::FromTheirs => libc::preadv(fd, ours.as_ptr(), count, start),
                }
            }
        })
        .unwrap_or(0)
    }
}
