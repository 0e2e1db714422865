//! Physical memory through the identity map.

use core::ptr;
use core::slice;

use dolmen_firmware::PhysicalMemory;
use dolmen_firmware::ranges::Range;
use dolmen_loader::layout::Placed;

/// The addresses that the page tables map one to one.
pub(super) struct Identity {
    /// The first address that is not mapped.
    pub(super) end: u64,
}

impl PhysicalMemory for Identity {
    fn read(&self, phys: u64, len: usize) -> Option<&[u8]> {
        let end = phys.checked_add(len as u64)?;
        if phys == 0 || end > self.end {
            return None;
        }
        // SAFETY: The range is mapped, and any bytes are valid. Nothing writes there: the loader
        // writes only to what it has placed in free memory, away from everything that it reads
        // (`Layout`).
        Some(unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(phys as usize), len) })
    }
}

/// The memory of something that was placed, filled with zeros.
pub(super) fn clear(placed: &Placed) -> &'static mut [u8] {
    let Range { start, .. } = placed.range();
    let bytes = placed.range().bytes() as usize;
    let first = ptr::with_exposed_provenance_mut::<u8>(start as usize);
    // SAFETY: `Layout` hands out usable memory, which the page tables map, and never twice; a
    // `Placed` cannot be copied and each is cleared once.
    unsafe {
        ptr::write_bytes(first, 0, bytes);
        slice::from_raw_parts_mut(first, bytes)
    }
}

/// The loader's own memory: all of it, and the part that the application needs.
pub(super) fn loader() -> (Range, Range) {
    unsafe extern "C" {
        static __loader_start: u8;
        static __kept_end: u8;
        static __loader_end: u8;
    }
    let start = (&raw const __loader_start).addr() as u64;
    let kept = (&raw const __kept_end).addr() as u64;
    let end = (&raw const __loader_end).addr() as u64;
    (Range::new(start, end), Range::new(start, kept))
}
