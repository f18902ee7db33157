//! A range of memory shared with the kernel.

use std::{
    io,
    os::fd::BorrowedFd,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicU32, AtomicU64},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Memory of a socket's ring, of an XDP socket's packets, or of a program's counters. Dropping the
/// `Mapping` unmaps the memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread. Only its owner reaches it: a ring, a
// socket or a program. The public methods of the owner, and of the guards that borrow the owner,
// take `self` or `&mut self` wherever they read or write memory that is not atomic; with `&self`
// they only load and store atomic words.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of the ring or the BPF map that `fd` stands for.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::at(fd, len, 0)
    }

    /// Maps `len` bytes, from `offset` on, of the ring or the BPF map that `fd` stands for.
    /// `offset` must be a multiple of the page size.
    pub(crate) fn at(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other mapping.
        let address = unsafe { mmap(null_mut(), len, PROTECTION, flags, fd, offset) }?;
        Ok(Self::of(address.cast(), len))
    }

    /// Maps `len` private bytes of zeros, to hand to the kernel.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other mapping.
        let address = unsafe { mmap_anonymous(null_mut(), len, PROTECTION, flags) }?;
        Ok(Self::of(address.cast(), len))
    }

    fn of(address: *mut u8, len: usize) -> Self {
        let start = NonNull::new(address).expect("a mapping is never at address 0");
        Self { start, len }
    }

    /// Returns the 32-bit word at `offset`, which the kernel changes concurrently.
    ///
    /// **Panics** (bug): when the word is not inside the mapping or not aligned.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset < self.len && self.len - offset >= 4,
            "a word outside of its ring"
        );
        // SAFETY: `offset` lies inside the mapping with four bytes behind it.
        let word = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: mappings start at a page and `offset` is a multiple of 4, so the word is aligned;
        // it lives as long as `self`; this side reaches it only atomically.
        unsafe { AtomicU32::from_ptr(word.cast::<u32>()) }
    }

    /// Returns the 64-bit word at `offset`, which the kernel changes concurrently.
    ///
    /// **Panics** (bug): when the word is not inside the mapping or not aligned.
    #[inline]
    pub(crate) fn long_word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset < self.len && self.len - offset >= 8,
            "a word outside of its ring"
        );
        // SAFETY: `offset` lies inside the mapping with eight bytes behind it.
        let word = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: mappings start at a page and `offset` is a multiple of 8, so the word is aligned;
        // it lives as long as `self`; this side reaches it only atomically.
        unsafe { AtomicU64::from_ptr(word.cast::<u64>()) }
    }

    /// Returns `len` bytes from `offset` on.
    ///
    /// **Panics** (bug): when they are not inside the mapping.
    ///
    /// # Safety
    /// Until the slice is gone, neither the kernel nor another reference writes these bytes: the
    /// kernel has released the block or slot that holds them, and this process has not returned it.
    #[inline]
    pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(
            offset <= self.len && self.len - offset >= len,
            "bytes outside of their ring"
        );
        // SAFETY: `offset` lies inside the mapping or at its end.
        let start = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: `len` bytes behind `start` are mapped for as long as `self` lives; that nobody
        // writes them is the caller's promise.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Returns `len` bytes from `offset` on, for the caller to write.
    ///
    /// **Panics** (bug): when they are not inside the mapping.
    ///
    /// # Safety
    /// Until the slice is gone nobody else reads or writes these bytes, the kernel included.
    #[expect(clippy::mut_from_ref, reason = "the ring's memory is not the struct's")]
    #[inline]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(
            offset <= self.len && self.len - offset >= len,
            "bytes outside of their ring"
        );
        // SAFETY: `offset` lies inside the mapping or at its end.
        let start = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: `len` bytes behind `start` are mapped, writable, for as long as `self` lives;
        // that they are exclusive is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Makes the processor fetch the cache line at `offset`, which will be read soon. Does nothing
    /// when `offset` is outside the mapping.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if offset < self.len {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: `offset` lies inside the mapping.
            let line = unsafe { self.start.as_ptr().add(offset) };
            // SAFETY: a hint about an address that is mapped; it reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
    }

    /// Returns the address where the mapping begins, a multiple of the page size.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// Returns the length of the whole mapping in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `at` or `anonymous` made the mapping with this length, and only this call unmaps
        // it; every reference into it borrows `self`.
        let _result = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
