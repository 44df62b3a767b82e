//! Mapped memory that RDMA reaches, and that tests take away again.

use std::ptr::NonNull;

/// Anonymous memory of this process. It stays mapped when dropped: a test that ends while a peer still
/// writes must not hand the pages to another test. Only [`Memory::unmap`] takes it away.
///
/// The device and other threads change it at any time, so no Rust reference to its bytes is ever made.
#[derive(Clone, Copy)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: every access goes through raw pointers; a race shows wrong values, which is what tests look for.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes`, all zero.
    pub fn new(bytes: u64) -> Memory {
        Memory::map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, 0)
    }

    /// Maps `bytes` at `address`, where nothing is yet.
    pub fn new_at(address: u64, bytes: u64) -> Memory {
        Memory::map(address, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED_NOREPLACE)
    }

    /// Reserves `bytes` of address space that nothing backs.
    pub fn reserve(bytes: u64) -> Memory {
        Memory::map(0, bytes, libc::PROT_NONE, libc::MAP_NORESERVE)
    }

    fn map(address: u64, bytes: u64, protection: i32, flags: i32) -> Memory {
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let (hint, length) = (address as *mut libc::c_void, bytes as usize);
        // SAFETY: a new mapping, where the kernel likes or where nothing is, touches nothing that exists.
        let at = unsafe { libc::mmap(hint, length, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Memory { base: NonNull::new(at.cast()).unwrap(), bytes }
    }

    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn at(&self, at: u64, length: u64) -> *mut u8 {
        assert!(at + length <= self.bytes, "{length} bytes at {at} of {}", self.bytes);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(at as usize) }
    }

    pub fn store(&self, at: u64, bytes: &[u8]) {
        let to = self.at(at, bytes.len() as u64);
        // SAFETY: `to` has room for them, and a slice of ours never lies in the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub fn load(&self, at: u64, length: u64) -> Vec<u8> {
        let from = self.at(at, length);
        let mut out = vec![0; length as usize];
        // SAFETY: as in `store`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        out
    }

    pub fn fill(&self, value: u8) {
        // SAFETY: the whole mapping.
        unsafe { std::ptr::write_bytes(self.base.as_ptr(), value, self.bytes as usize) };
    }

    pub fn word(&self, at: u64) -> u64 {
        u64::from_ne_bytes(self.load(at, 8).try_into().unwrap())
    }

    /// Whether every byte of it is `value`.
    pub fn is_all(&self, value: u8) -> bool {
        self.load(0, self.bytes).iter().all(|&byte| byte == value)
    }

    /// Changes the protection of `length` bytes at `at`.
    pub fn protect(&self, at: u64, length: u64, protection: i32) {
        let start = self.at(at, length);
        // SAFETY: pages of this mapping, which the test uses only as the new protection allows.
        let rc = unsafe { libc::mprotect(start.cast(), length as usize, protection) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }

    /// Unmaps all of it. Only in a process where nothing else runs: another thread may get the address.
    pub fn unmap(&self) {
        // SAFETY: the mapping made by `map`; the test touches it no more.
        let rc = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes as usize) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }
}
