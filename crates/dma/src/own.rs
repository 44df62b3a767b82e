//! Memory of this very process, reached through the kernel.
//!
//! Bytes are first copied into a piece of staging memory, which is also an anonymous file, and then read
//! from that file into the program's memory with one `preadv` per 64 KiB ([`crate::staging`]). That is
//! faster than `process_vm_writev`, which pins every page it touches (64 bytes: 0.3 against 0.9 µs), and
//! sandboxes allow it. Where they do not, a pipe does the same in smaller steps ([`crate::pipe`]).

use crate::fork::OwnPid;
use crate::pipe::Pipe;
use crate::staging::{Moved, Staging, STAGING_BYTES};
use crate::transfer::{each_part, Fault, Position, Slices, Transfer, Way, WORD_BYTES};

/// Moves bytes within this process and never faults.
pub struct OwnMemory {
    pid: OwnPid,
    staging: Option<Staging>,
    pipe: Option<Pipe>,
    /// No staging memory can be had, or must be used.
    piped: bool,
    theirs: Slices,
}

impl OwnMemory {
    /// A mover for this process. It opens what it needs when first used.
    ///
    /// # Safety
    /// Whoever holds it can change any byte of the process. The caller promises to hand it only
    /// addresses that the program has itself offered for such changes (registered memory), and buffers
    /// of its own that live through the call and, for [`OwnMemory::read`], are borrowed by nobody else.
    // SAFETY: nothing is done here; what it may be given later is the caller's promise, above.
    pub unsafe fn new() -> OwnMemory {
        OwnMemory { pid: OwnPid::new(), staging: None, pipe: None, piped: false, theirs: Slices::default() }
    }

    /// Uses the pipe from now on, as in a sandbox that forbids anonymous files.
    pub fn use_pipe(&mut self) {
        self.piped = true;
    }

    /// Whether the descriptors in use still are what was opened, and not closed or replaced by the program. One system
    /// call, or two where there is no staging memory.
    pub fn is_intact(&self) -> bool {
        self.staging.as_ref().is_none_or(Staging::is_intact) && self.pipe.as_ref().is_none_or(Pipe::is_intact)
    }

    /// Lets go of descriptors that are not intact without closing anything: the numbers may be the program's.
    pub fn abandon(&mut self) {
        std::mem::forget((self.staging.take(), self.pipe.take()));
    }

    /// Copies `ours` to `theirs`, in order. Adjoining targets are joined, and one system call takes up to
    /// 64 KiB.
    pub fn write(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::ToTheirs)
    }

    /// Copies `theirs` to `ours`, in order.
    pub fn read(&mut self, batch: &[Transfer]) -> Result<(), Fault> {
        self.transfer(batch, Way::FromTheirs)
    }

    /// Replaces the 8 bytes at `address` (a multiple of 8) by what `operation` makes of them (`None`
    /// leaves them alone); answers the value before. The memory must be writable either way. Atomic
    /// against other calls that the caller serialises with this one, not against the program's own
    /// instructions (`IBV_ATOMIC_HCA`).
    pub fn atomic_u64(
        &mut self,
        address: u64,
        operation: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<u64, Fault> {
        let mut bytes = [0; WORD_BYTES];
        self.read(&[Transfer::back(&mut bytes, address)])?;
        let before = u64::from_ne_bytes(bytes);
        match operation(before) {
            Some(after) => self.write(&[Transfer::out(&after.to_ne_bytes(), address)])?,
            None if is_writable(address) => {}
            None => return Err(Fault { index: 0 }),
        }
        Ok(before)
    }

    fn transfer(&mut self, batch: &[Transfer], way: Way) -> Result<(), Fault> {
        let mut at = Position { index: 0, offset: 0 };
        while let Some(transfer) = at.settle(batch) {
            let fault = Fault { index: at.index };
            let piped = self.piped || !self.open_staging();
            let moved = match (piped, way) {
                (true, _) => self.step(transfer, at.offset, way),
                (false, Way::ToTheirs) => self.pour(batch, at),
                (false, Way::FromTheirs) => self.draw(batch, at),
            }
            .ok_or(fault)?;
            at.advance(batch, moved);
        }
        Ok(())
    }

    fn open_staging(&mut self) -> bool {
        let pid = self.pid.get();
        if self.staging.as_ref().is_none_or(|staging| staging.pid != pid) {
            self.staging = Staging::open(pid).ok();
            self.piped = self.staging.is_none();
        }
        !self.piped
    }

    /// One call of bytes to the program's memory, from `at` on.
    fn pour(&mut self, batch: &[Transfer], at: Position) -> Moved {
        let staged = self.theirs.list(batch, at, STAGING_BYTES);
        let staging = self.staging.as_mut()?;
        each_part(batch, at, staged, |transfer, offset, done, length| {
            let source = (transfer.ours + offset) as *const u8;
            // SAFETY: that our side is there is the promise made to `new`.
            unsafe { staging.load(done, source, length) }
        });
        // SAFETY: that the targets may be overwritten is the promise made to `new`.
        unsafe { staging.pour(&self.theirs.0) }
    }

    /// One call of bytes from the program's memory, from `at` on.
    fn draw(&mut self, batch: &[Transfer], at: Position) -> Moved {
        self.theirs.list(batch, at, STAGING_BYTES);
        let staging = self.staging.as_mut()?;
        let moved = staging.draw(&self.theirs.0)?;
        each_part(batch, at, moved, |transfer, offset, done, length| {
            let target = (transfer.ours + offset) as *mut u8;
            // SAFETY: that our side is there and borrowed by nobody is the promise made to `new`.
            unsafe { staging.store(done, target, length) }
        });
        Some(moved)
    }

    /// A step through the pipe, from byte `offset` of `transfer` on.
    fn step(&mut self, transfer: &Transfer, offset: usize, way: Way) -> Moved {
        let pid = self.pid.get();
        if self.pipe.as_ref().is_none_or(|pipe| pipe.pid != pid) {
            self.pipe = Some(Pipe::open(pid).ok()?);
        }
        let (ours, theirs) = (transfer.ours + offset, transfer.theirs_at(offset)?);
        let (source, target) = match way {
            Way::ToTheirs => (ours, theirs),
            Way::FromTheirs => (theirs, ours),
        };
        // SAFETY: that the target may be overwritten is the promise made to `new`.
        unsafe { self.pipe.as_mut()?.step(source, target, transfer.length - offset) }
    }
}

/// Whether the kernel may write at `address`, found out by an atomic OR with nothing (FUTEX_WAKE_OP,
/// futex(2)), which changes no value and wakes nobody.
fn is_writable(address: u64) -> bool {
    /// FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0).
    const OR_NOTHING: u32 = 2 << 28;
    let own: u32 = 0;
    // SAFETY: `own` outlives the call and nobody waits on it; the word at `address` is checked by the
    // kernel and keeps its value.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0usize,
            address as usize,
            OR_NOTHING,
        )
    };
    result >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
}
