//! The application's heap: `sys_malloc` and its relatives, over demand-paged mappings.

use core::ptr::NonNull;

use dolmen_heap::{Backing, Heap};
use dolmen_mm::ids::{HUGE_BYTES, PAGE_BYTES, VirtAddr, VirtRange};
use dolmen_mm::{HugeAdvice, MapRequest, Prot};

use crate::cpu::local;

/// The heap.
pub(crate) static HEAP: Heap<Mappings> = Heap::new(Mappings);

/// Spans of the application's heap: anonymous mappings.
pub(crate) struct Mappings;

/// Maps `bytes` of fresh zero pages for the application; null when that many are not to be had.
pub(crate) fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
    // What can hold a huge page starts where one can start.
    let natural = if bytes >= HUGE_BYTES {
        HUGE_BYTES
    } else {
        PAGE_BYTES
    };
    let request = MapRequest {
        bytes,
        align_bytes: align.max(natural),
        prot: Prot::READ_WRITE,
        huge: HugeAdvice::Default,
        guard_bytes: 0,
    };
    let range = super::enter(|manager| manager.map(request)).ok()?;
    NonNull::new(core::ptr::with_exposed_provenance_mut(
        range.start.0 as usize,
    ))
}

/// Unmaps what [`map`] mapped.
pub(crate) fn unmap(memory: NonNull<u8>, bytes: usize) -> Result<(), dolmen_mm::MapError> {
    let start = VirtAddr(memory.addr().get() as u64);
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    super::enter(|manager| manager.unmap(VirtRange::new(start, bytes)))
}

impl Backing for Mappings {
    type Guard = local::PreemptionOff;

    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        map(bytes, align)
    }

    fn unmap(&self, memory: NonNull<u8>, bytes: usize) {
        unmap(memory, bytes).expect("the heap unmaps only what it mapped");
    }

    fn current_cpu(&self) -> usize {
        local::this().cpu.index()
    }

    fn pin(&self) -> Self::Guard {
        local::PreemptionOff::new()
    }
}
