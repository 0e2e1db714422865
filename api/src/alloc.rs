//! The allocator that leaves first touch to the application.
//!
//! `vec![0; n]` asks the allocator for zeroed memory. Without help, std for the Hermit target serves that with a plain
//! allocation and a memset by the allocating thread, which dirties every page from one CPU. Here requests of
//! [`LARGE_BYTES`] and more are fresh mappings, which are zero without being touched; smaller ones go to the system's
//! heap. Which of the two an allocation is follows from its size alone, and the layout that comes back with every
//! free says the size, so no header is needed.

use crate::place::PAGE_BYTES;
use crate::sys;
use std::alloc::{GlobalAlloc as Alloc, Layout, System};

/// Requests of at least this many bytes are mapped on their own.
pub const LARGE_BYTES: usize = 128 << 10;

/// Mappings of at least this many bytes start on a huge-page boundary, so that huge pages can serve all of them.
const HUGE_BYTES: usize = 2 << 20;

/// A `#[global_allocator]` whose large allocations are fresh, untouched, zero pages.
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobalAlloc;

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}

/// Whole pages that hold `bytes`; `None` past the end of the address space.
fn page_round(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE_BYTES)
}

fn map(layout: Layout) -> *mut u8 {
    let Some(bytes) = page_round(layout.size()) else {
        return std::ptr::null_mut();
    };
    let natural = if bytes >= HUGE_BYTES {
        HUGE_BYTES
    } else {
        PAGE_BYTES
    };
    sys::map(bytes, layout.align().max(natural))
}

// SAFETY: memory is either the system allocator's or a private mapping of at least the asked size and alignment; the
// choice depends on the size only, so `dealloc` gives it back to where it came from.
unsafe impl Alloc for GlobalAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size()) {
            map(layout)
        } else {
            // SAFETY: the caller's promise about the layout is the one `System` asks for.
            unsafe { System.alloc(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size()) {
            map(layout)
        } else {
            // SAFETY: as in `alloc`.
            unsafe { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if is_large(layout.size()) {
            // A layout that was allocated has a size that could be rounded.
            if let Some(bytes) = page_round(layout.size()) {
                // SAFETY: a large layout was mapped by `map` with exactly this rounded size, and the caller gives it up.
                unsafe { sys::unmap(ptr, bytes) }
            }
        } else {
            // SAFETY: a small layout came from `System`.
            unsafe { System.dealloc(ptr, layout) }
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_large(layout.size()) && !is_large(new_size) {
            // SAFETY: both sizes are small, so the block is and stays `System`'s.
            return unsafe { System.realloc(ptr, layout, new_size) };
        }
        if is_large(layout.size())
            && is_large(new_size)
            && page_round(layout.size()) == page_round(new_size)
        {
            return ptr;
        }
        let Ok(new_layout) = Layout::from_size_align(new_size, layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: `new_layout` has a size above zero (the caller's promise); old and new blocks are distinct live
        // allocations of at least the copied length; the old one is given up only after a successful copy.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(ptr, new, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn zeroed_memory_is_zero_aligned_and_reusable() {
        for (size, align) in [
            (1, 1),
            (LARGE_BYTES - 1, 64),
            (LARGE_BYTES, 8),
            (LARGE_BYTES + 5, 1 << 16),
            (HUGE_BYTES * 3 + 1, 8),
        ] {
            let layout = layout(size, align);
            for _ in 0..3 {
                // SAFETY: size above zero; every byte accessed lies in the block; freed once with its layout.
                unsafe {
                    let block = GlobalAlloc.alloc_zeroed(layout);
                    assert!(!block.is_null());
                    assert_eq!(block.addr() % align, 0);
                    if size >= HUGE_BYTES {
                        assert_eq!(block.addr() % HUGE_BYTES, 0);
                    }
                    let bytes = std::slice::from_raw_parts_mut(block, size);
                    assert!(bytes.iter().all(|&b| b == 0));
                    bytes.fill(0xa5);
                    GlobalAlloc.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn realloc_keeps_the_contents_across_the_threshold() {
        let sizes = [
            100,
            LARGE_BYTES - 1,
            LARGE_BYTES,
            LARGE_BYTES + 1,
            3 * LARGE_BYTES,
            50,
        ];
        // SAFETY: every block is accessed within its size and reallocated or freed with its current layout.
        unsafe {
            let mut block = GlobalAlloc.alloc(layout(sizes[0], 16));
            for i in 0..50 {
                *block.add(i) = i as u8;
            }
            for pair in sizes.windows(2) {
                block = GlobalAlloc.realloc(block, layout(pair[0], 16), pair[1]);
                assert!(!block.is_null());
                assert!((0..50).all(|i| *block.add(i) == i as u8));
            }
            GlobalAlloc.dealloc(block, layout(50, 16));
        }
    }

    #[test]
    fn an_impossible_size_is_null() {
        // SAFETY: the result is only compared with null.
        let block = unsafe { GlobalAlloc.alloc_zeroed(layout(isize::MAX as usize & !0xfff, 8)) };
        assert!(block.is_null());
    }
}
