//! The kernel's own heap.
//!
//! Until the memory manager exists, memory comes from an arena in the image and then from a part of
//! RAM set aside at boot, and is never given back. From then on it comes from frames, through the
//! direct map: the kernel's data is never paged.

use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use dolmen_heap::{Backing, Heap};
use dolmen_mm::frame::{FrameKind, Reach};
use dolmen_mm::ids::{FrameId, Order, PAGE_BYTES, PhysAddr};

use super::direct;
use crate::cpu::local;
use crate::sync::SpinLock;

/// Bytes of the arena in the image: enough to read the boot information and the firmware's tables.
const ARENA_BYTES: usize = 256 << 10;

#[repr(C, align(4096))]
struct Arena([u8; ARENA_BYTES]);

static mut ARENA: Arena = Arena([0; ARENA_BYTES]);

/// What is left of the current boot memory; addresses.
static BOOT: SpinLock<Range<usize>> = SpinLock::new(0..0);
/// The part of RAM set aside at boot; addresses in the direct map.
static SET_ASIDE: SpinLock<Range<usize>> = SpinLock::new(0..0);
/// Frames that the kernel's heap holds.
static FRAMES: AtomicU64 = AtomicU64::new(0);

static HEAP: Heap<Frames> = Heap::new(Frames);

#[global_allocator]
static GLOBAL: KernelHeap = KernelHeap;

struct KernelHeap;

/// Starts with the arena in the image.
pub(crate) fn begin() {
    let start = (&raw mut ARENA).expose_provenance();
    *BOOT.lock() = start..start + ARENA_BYTES;
}

/// Goes on with `bytes` of RAM at `physical`, which are in the direct map.
pub(crate) fn set_aside(physical: u64, bytes: usize) {
    let start = (direct::BASE + physical) as usize;
    *BOOT.lock() = start..start + bytes;
    *SET_ASIDE.lock() = start..start + bytes;
}

/// Zeroed pages of boot memory, for ever.
pub(crate) fn boot_pages(pages: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(pages * PAGE_BYTES, PAGE_BYTES).ok()?;
    let memory = NonNull::new(boot_alloc(layout))?;
    // SAFETY: the memory was just allocated with this size.
    unsafe { memory.write_bytes(0, layout.size()) };
    Some(memory)
}

fn boot_alloc(layout: Layout) -> *mut u8 {
    let mut left = BOOT.lock();
    let start = left.start.next_multiple_of(layout.align());
    match start.checked_add(layout.size()) {
        Some(end) if end <= left.end => {
            left.start = end;
            core::ptr::with_exposed_provenance_mut(start)
        }
        _ => core::ptr::null_mut(),
    }
}

/// Prepares the heap for this many processors. Frames are its source as soon as the memory manager
/// is installed.
pub(crate) fn prepare(cpus: usize) {
    HEAP.init(cpus);
}

/// Takes in what other processors have freed of this one's memory.
pub(crate) fn collect() {
    HEAP.collect();
}

/// Frames that the kernel's heap holds now.
pub(crate) fn held_frames() -> u64 {
    FRAMES.load(Ordering::Relaxed)
}

fn is_boot_memory(address: usize) -> bool {
    let arena = (&raw const ARENA).addr();
    (arena..arena + ARENA_BYTES).contains(&address) || SET_ASIDE.lock().contains(&address)
}

// SAFETY: boot memory is handed out once and never again; the rest is `Heap`'s contract.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if super::manager().is_none() {
            return boot_alloc(layout);
        }
        HEAP.allocate(layout.size(), layout.align())
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_boot_memory(memory.addr()) {
            return;
        }
        // SAFETY: it is not boot memory, so it came from the heap, with this layout.
        unsafe { HEAP.deallocate(memory, layout.size(), layout.align()) };
    }
}

/// Spans of the kernel's heap: runs of frames in the direct map.
struct Frames;

fn order_for(bytes: usize, align: usize) -> Option<Order> {
    let pages = bytes.max(align).div_ceil(PAGE_BYTES);
    Order::new(pages.checked_next_power_of_two()?.trailing_zeros() as u8)
}

// SAFETY: frames are handed out once; a guard turns preemption off, and no interrupt handler uses
// this heap.
unsafe impl Backing for Frames {
    /// The kernel keeps little, and needs it in one piece on small machines too.
    const CHUNK_BYTES: usize = 128 << 10;

    type Guard = local::PreemptionOff;

    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let order = order_for(bytes, align)?;
        let frame = super::enter(|manager| {
            let local = local::this();
            manager.alloc_frames(
                local.cpu,
                local.node,
                order,
                FrameKind::Unmovable,
                Reach::AnyNode,
            )
        })?;
        FRAMES.fetch_add(order.frames() as u64, Ordering::Relaxed);
        let memory = NonNull::new(direct::pointer::<u8>(frame.address().0))?;
        // SAFETY: the frames are the heap's alone, and all RAM is in the direct map.
        unsafe { memory.write_bytes(0, order.bytes()) };
        Some(memory)
    }

    fn unmap(&self, memory: NonNull<u8>, bytes: usize) {
        let Some(order) = order_for(bytes, 1) else {
            return;
        };
        let physical = PhysAddr(memory.addr().get() as u64 - direct::BASE);
        super::enter(|manager| {
            manager.frames().free(
                local::this().cpu,
                FrameId::containing(physical),
                order,
                FrameKind::Unmovable,
            );
        });
        FRAMES.fetch_sub(order.frames() as u64, Ordering::Relaxed);
    }

    fn current_cpu(&self) -> usize {
        local::this().cpu.index()
    }

    fn pin(&self) -> Self::Guard {
        local::PreemptionOff::new()
    }
}
