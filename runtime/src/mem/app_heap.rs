//! The application's heap: `sys_malloc` and its relatives, over demand-paged mappings.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use dolmen_heap::{Backing, Heap};
use dolmen_mm::ids::{HUGE_BYTES, PAGE_BYTES, VirtAddr, VirtRange};
use dolmen_mm::{HugeAdvice, MapError, MapRequest, Prot};

use crate::cpu::local;

/// The heap.
pub(crate) static HEAP: Heap<Mappings> = Heap::new(Mappings);

/// Spans of the application's heap: anonymous mappings.
pub(crate) struct Mappings;

/// Bytes that the application's heap has promised.
static COMMITTED: AtomicU64 = AtomicU64::new(0);

/// What is kept for page tables, stacks and the kernel: a part of this many of memory.
const RESERVE_PART: u64 = 32;

/// Bytes that the heap may promise: a promise that memory cannot keep would end the run at some
/// later touch, where the application cannot handle it.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Prepares the heap for this many processors and this much memory.
pub(crate) fn prepare(cpus: usize, memory_bytes: u64) {
    LIMIT.store(
        memory_bytes - memory_bytes / RESERVE_PART,
        Ordering::Relaxed,
    );
    HEAP.init(cpus);
}

fn commit(bytes: usize) -> Option<()> {
    let before = COMMITTED.fetch_add(bytes as u64, Ordering::Relaxed);
    if before.saturating_add(bytes as u64) <= LIMIT.load(Ordering::Relaxed) {
        return Some(());
    }
    release(bytes);
    None
}

fn release(bytes: usize) {
    // The application may unmap what it mapped in another way and never promised.
    let _ = COMMITTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |committed| {
        Some(committed.saturating_sub(bytes as u64))
    });
}

/// Maps `bytes` of fresh zero pages for the application; `None` when that many are not to be had.
pub(crate) fn map(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
    commit(bytes)?;
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
    let Ok(range) = super::enter(|manager| manager.map(request)) else {
        release(bytes);
        return None;
    };
    NonNull::new(core::ptr::with_exposed_provenance_mut(
        range.start.0 as usize,
    ))
}

/// Unmaps what [`map`] mapped.
pub(crate) fn unmap(memory: NonNull<u8>, bytes: usize) -> Result<(), MapError> {
    let start = VirtAddr(memory.addr().get() as u64);
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    super::enter(|manager| manager.unmap(VirtRange::new(start, bytes)))?;
    release(bytes);
    Ok(())
}

// SAFETY: mappings are handed out once; a guard turns preemption off, and no interrupt handler uses
// this heap.
unsafe impl Backing for Mappings {
    type Guard = local::PreemptionOff;

    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        map(bytes, align)
    }

    fn unmap(&self, memory: NonNull<u8>, bytes: usize) {
        unmap(memory, bytes).expect("the heap unmaps only what it mapped");
    }

    fn unmap_tail(&self, memory: NonNull<u8>, bytes: usize, keep: usize) -> bool {
        // SAFETY: `keep` is less than the mapping's length.
        let tail = unsafe { memory.add(keep) };
        unmap(tail, bytes - keep).is_ok()
    }

    fn current_cpu(&self) -> usize {
        local::this().cpu.index()
    }

    fn pin(&self) -> Self::Guard {
        local::PreemptionOff::new()
    }
}
