//! Heap and mappings.

use core::ptr::NonNull;

use dolmen_mm::ids::{PAGE_BYTES, VirtAddr, VirtRange};
use dolmen_mm::{HugeAdvice, MapError, MapRequest, Prot};
use hermit_abi::errno::{EINVAL, ENOMEM};
use hermit_abi::{PROT_EXEC, PROT_READ, PROT_WRITE};

use crate::mem::app_heap::HEAP;
use crate::mem::{self, ARENA};

/// Allocates `size` bytes at a multiple of `align`, a power of two; null when memory is short.
#[unsafe(no_mangle)]
pub extern "C" fn sys_malloc(size: usize, align: usize) -> *mut u8 {
    HEAP.allocate(size, align)
}

/// As [`sys_malloc`].
#[unsafe(no_mangle)]
pub extern "C" fn sys_alloc(size: usize, align: usize) -> *mut u8 {
    HEAP.allocate(size, align)
}

/// As [`sys_malloc`], with zeroed memory. Large requests are fresh mappings, whose pages go to
/// whoever touches them first.
#[unsafe(no_mangle)]
pub extern "C" fn sys_alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    HEAP.allocate_zeroed(size, align)
}

/// Frees what an allocation of the same `size` and `align` returned.
///
/// # Safety
///
/// `memory` came from this heap with the same `size` and `align` and was not freed since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_free(memory: *mut u8, size: usize, align: usize) {
    // SAFETY: by the contract.
    unsafe { HEAP.deallocate(memory, size, align) };
}

/// As [`sys_free`].
///
/// # Safety
///
/// As [`sys_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_dealloc(memory: *mut u8, size: usize, align: usize) {
    // SAFETY: by the contract.
    unsafe { HEAP.deallocate(memory, size, align) };
}

/// Changes the size of an allocation; the contents move along. Null when memory is short, and then
/// the allocation stays as it was.
///
/// # Safety
///
/// As [`sys_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_realloc(
    memory: *mut u8,
    size: usize,
    align: usize,
    new_size: usize,
) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe { HEAP.reallocate(memory, size, align, new_size) }
}

/// Bytes in a base page.
#[unsafe(no_mangle)]
pub extern "C" fn sys_getpagesize() -> i32 {
    PAGE_BYTES as i32
}

fn prot(flags: u32) -> Result<Prot, i32> {
    if flags & !(PROT_READ | PROT_WRITE | PROT_EXEC) != 0 {
        return Err(EINVAL);
    }
    Ok(Prot {
        read: flags & PROT_READ != 0,
        write: flags & PROT_WRITE != 0,
        exec: flags & PROT_EXEC != 0,
    })
}

fn errno(error: MapError) -> i32 {
    match error {
        MapError::OutOfMemory => ENOMEM,
        MapError::InvalidArgument => EINVAL,
    }
}

fn outcome(result: Result<(), i32>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(errno) => -errno,
    }
}

/// Maps `size` bytes of demand-paged zero pages and stores their address in `out`.
#[unsafe(no_mangle)]
pub extern "C" fn sys_mmap(size: usize, prot_flags: u32, out: &mut *mut u8) -> i32 {
    let mut map = || {
        let bytes = size.checked_next_multiple_of(PAGE_BYTES).ok_or(ENOMEM)?;
        let request = MapRequest {
            bytes,
            align_bytes: PAGE_BYTES,
            prot: prot(prot_flags)?,
            huge: HugeAdvice::Default,
            guard_bytes: 0,
        };
        let range = mem::enter(|manager| manager.map(request)).map_err(errno)?;
        *out = core::ptr::with_exposed_provenance_mut(range.start.0 as usize);
        Ok(())
    };
    outcome(map())
}

fn mapped_range(start: *mut u8, size: usize) -> Result<VirtRange, i32> {
    let start = VirtAddr(start.addr() as u64);
    let bytes = size.checked_next_multiple_of(PAGE_BYTES).ok_or(EINVAL)?;
    let range = VirtRange::new(start, bytes);
    let inside = bytes > 0
        && start.0.is_multiple_of(PAGE_BYTES as u64)
        && ARENA.contains(start)
        && bytes as u64 <= ARENA.end().0 - start.0;
    inside.then_some(range).ok_or(EINVAL)
}

/// Unmaps any pages between `start` and `start + size`.
#[unsafe(no_mangle)]
pub extern "C" fn sys_munmap(start: *mut u8, size: usize) -> i32 {
    let unmap = || {
        let range = mapped_range(start, size)?;
        mem::enter(|manager| manager.unmap(range)).map_err(errno)
    };
    outcome(unmap())
}

/// Changes what the pages between `start` and `start + size` allow.
#[unsafe(no_mangle)]
pub extern "C" fn sys_mprotect(start: *mut u8, size: usize, prot_flags: u32) -> i32 {
    let protect = || {
        let range = mapped_range(start, size)?;
        let prot = prot(prot_flags)?;
        mem::enter(|manager| manager.protect(range, prot)).map_err(errno)
    };
    outcome(protect())
}

/// Maps `bytes` of demand-paged zero pages at a multiple of `align`, a power of two; null when
/// memory or addresses are short.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dolmen_map(bytes: usize, align: usize) -> *mut u8 {
    if bytes == 0 || !align.is_power_of_two() {
        return core::ptr::null_mut();
    }
    mem::app_heap::map(bytes, align).map_or(core::ptr::null_mut(), NonNull::as_ptr)
}

/// Unmaps what [`sys_dolmen_map`] mapped, or any part of it in whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dolmen_unmap(start: *mut u8, bytes: usize) -> i32 {
    let unmap = || {
        mapped_range(start, bytes)?;
        let start = NonNull::new(start).ok_or(EINVAL)?;
        mem::app_heap::unmap(start, bytes).map_err(errno)
    };
    outcome(unmap())
}
