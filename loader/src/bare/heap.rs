//! A small heap for the loader itself. The application may overwrite it.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use linked_list_allocator::LockedHeap;

const BYTES: usize = 1 << 20;

#[repr(C, align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: Only the allocator uses the content, and it locks.
unsafe impl Sync for Arena {}

#[unsafe(link_section = ".scratch")]
static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));

#[global_allocator]
static HEAP: LockedHeap = LockedHeap::empty();

/// Makes the heap usable.
pub(super) fn init() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: The arena is handed over once and used by nobody else.
        unsafe { HEAP.lock().init(ARENA.0.get().cast(), BYTES) }
    }
}
