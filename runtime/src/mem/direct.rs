//! The direct map: all RAM, and the device registers that are used, at a constant distance from
//! their physical addresses. For the kernel only, by convention.
//!
//! The page tables built here are the kernel's half of the one address space; the memory manager
//! builds the application's half in the same root.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use dolmen_fs::runs::Translation;
use dolmen_mm::frame::FrameMemory;
use dolmen_mm::ids::{FrameId, GIANT_BYTES, HUGE_BYTES, Order, PAGE_BYTES, VirtAddr};
use x86_64::structures::paging::PageTableFlags as Flags;

use crate::sync::SpinLock;

/// Virtual address of physical address 0.
pub(crate) const BASE: u64 = 0xffff_8000_0000_0000;

/// The physical address bits of an entry.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Page-table pages in the image, for what is mapped before any RAM is at hand.
const POOL_TABLES: usize = 64;

type Table = [AtomicU64; 512];

#[repr(C, align(4096))]
struct Pool([Table; POOL_TABLES]);

static POOL: Pool = Pool([const { [const { AtomicU64::new(0) }; 512] }; POOL_TABLES]);
static POOL_USED: AtomicUsize = AtomicUsize::new(0);
static LOCK: SpinLock<()> = SpinLock::new(());
static GIANT_PAGES: AtomicBool = AtomicBool::new(false);
/// Flags that every leaf of the kernel's half has: global where the processor has global pages.
static LEAF_FLAGS: AtomicU64 = AtomicU64::new(0);
static NO_EXECUTE: AtomicU64 = AtomicU64::new(0);

/// Notes what the processor can do. Called once, before anything is mapped.
pub(crate) fn configure(features: &crate::cpu::features::Features) {
    GIANT_PAGES.store(features.giant_pages, Ordering::Relaxed);
    if features.global_pages {
        LEAF_FLAGS.store(Flags::GLOBAL.bits(), Ordering::Relaxed);
    }
    if features.no_execute {
        NO_EXECUTE.store(Flags::NO_EXECUTE.bits(), Ordering::Relaxed);
    }
    // The first page of the pool is the root.
    POOL_USED.store(1, Ordering::Relaxed);
}

/// Physical address of the root of the page tables.
pub(crate) fn root() -> u64 {
    address_of(&POOL.0[0])
}

fn address_of(table: &'static Table) -> u64 {
    // The image is mapped at its physical address.
    table.as_ptr().addr() as u64
}

/// The direct-map pointer to a physical address.
pub(crate) fn pointer<T>(physical: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut((BASE + physical) as usize)
}

fn table_at(physical: u64) -> &'static Table {
    let pool = address_of(&POOL.0[0])..address_of(&POOL.0[0]) + size_of::<Pool>() as u64;
    let table: *const Table = if pool.contains(&physical) {
        core::ptr::with_exposed_provenance(physical as usize)
    } else {
        pointer(physical)
    };
    // SAFETY: every physical address that comes here was taken from the pool or, in `new_table`,
    // from the boot memory, as a page-table page for ever; both are mapped.
    unsafe { &*table }
}

/// An empty page-table page: from the pool in the image, then from boot memory.
fn new_table() -> u64 {
    let used = POOL_USED.load(Ordering::Relaxed);
    if let Some(table) = POOL.0.get(used) {
        POOL_USED.store(used + 1, Ordering::Relaxed);
        return address_of(table);
    }
    let memory = super::kernel_heap::boot_pages(1)
        .expect("boot memory is sized for the page tables of the direct map");
    memory.as_ptr().addr() as u64 - BASE
}

/// What a mapping of the kernel's half allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Read and execute.
    Execute,
    /// Everything: for an image that does not say.
    All,
    /// Everything, and not global: for pages that are only passed through.
    Passing,
    /// Read and write, uncached: device registers.
    Device,
}

impl Access {
    fn flags(self) -> u64 {
        let no_execute = NO_EXECUTE.load(Ordering::Relaxed);
        let common = LEAF_FLAGS.load(Ordering::Relaxed) | (Flags::PRESENT | Flags::ACCESSED).bits();
        let written = (Flags::WRITABLE | Flags::DIRTY).bits();
        common
            | match self {
                Self::Read => no_execute,
                Self::Write => written | no_execute,
                Self::Execute => 0,
                Self::All => written,
                Self::Passing => return (Flags::PRESENT | Flags::ACCESSED).bits() | written,
                Self::Device => {
                    written | no_execute | (Flags::NO_CACHE | Flags::WRITE_THROUGH).bits()
                }
            }
    }
}

/// Maps `bytes` at `physical` to `virtual_start` with the largest pages that fit. What is mapped
/// already stays as it is. All three are multiples of 4096.
pub(crate) fn map(virtual_start: u64, physical: u64, bytes: u64, access: Access) {
    let _lock = LOCK.lock();
    let mut done = 0;
    while done < bytes {
        let at = virtual_start + done;
        let frame = physical + done;
        let left = bytes - done;
        let fits = |size: usize| {
            let size = size as u64;
            left >= size && at.is_multiple_of(size) && frame.is_multiple_of(size)
        };
        done += if GIANT_PAGES.load(Ordering::Relaxed) && fits(GIANT_BYTES) {
            install(at, frame, 2, access)
        } else if fits(HUGE_BYTES) {
            install(at, frame, 1, access)
        } else {
            install(at, frame, 0, access)
        };
    }
}

/// Maps one page whose entry stands on `level` (0: 4 KiB, 1: 2 MiB, 2: 1 GiB); returns the bytes
/// that are mapped now from `at` on.
fn install(at: u64, frame: u64, level: u32, access: Access) -> u64 {
    let mut table = table_at(root());
    for above in (level + 1..=3).rev() {
        let entry = &table[index(at, above)];
        let value = entry.load(Ordering::Acquire);
        if value & Flags::PRESENT.bits() == 0 {
            let next = new_table();
            let flags = (Flags::PRESENT | Flags::WRITABLE).bits();
            entry.store(next | flags, Ordering::Release);
            table = table_at(next);
        } else if value & Flags::HUGE_PAGE.bits() != 0 {
            // A larger page maps it already.
            let size = page_bytes(above);
            return size - (at & (size - 1));
        } else {
            table = table_at(value & ADDRESS);
        }
    }
    let entry = &table[index(at, level)];
    let value = entry.load(Ordering::Relaxed);
    if value & Flags::PRESENT.bits() == 0 {
        let huge = if level > 0 {
            Flags::HUGE_PAGE.bits()
        } else {
            0
        };
        entry.store(frame | access.flags() | huge, Ordering::Release);
    } else if level > 0 && value & Flags::HUGE_PAGE.bits() == 0 {
        // Smaller pages map a part of it already: their gaps are to be filled.
        return install(at, frame, level - 1, access);
    }
    page_bytes(level)
}

fn index(at: u64, level: u32) -> usize {
    (at >> (12 + 9 * level)) as usize & 511
}

fn page_bytes(level: u32) -> u64 {
    (PAGE_BYTES as u64) << (9 * level)
}

/// Where an address of the image or of the direct map leads. Their mappings last, so what is found
/// stays right; addresses of the arena are the memory manager's to translate.
pub(crate) fn translate(address: u64) -> Option<Translation> {
    if x86_64::VirtAddr::try_new(address).is_err() || super::ARENA.contains(VirtAddr(address)) {
        return None;
    }
    let mut table = table_at(root());
    for level in (0..=3).rev() {
        let value = table[index(address, level)].load(Ordering::Acquire);
        if value & Flags::PRESENT.bits() == 0 {
            return None;
        }
        if level == 0 || value & Flags::HUGE_PAGE.bits() != 0 {
            let size = page_bytes(level);
            let offset = address & (size - 1);
            return Some(Translation {
                physical: (value & ADDRESS & !(size - 1)) + offset,
                bytes: (size - offset) as usize,
                readable: true,
                writable: value & Flags::WRITABLE.bits() != 0,
            });
        }
        table = table_at(value & ADDRESS);
    }
    None
}

/// Maps RAM into the direct map. What it holds only a part of a page of is left out.
pub(crate) fn map_ram(start: u64, bytes: u64) {
    let first = start.next_multiple_of(PAGE_BYTES as u64);
    let end = (start + bytes) & !(PAGE_BYTES as u64 - 1);
    if first < end {
        map(BASE + first, first, end - first, Access::Write);
    }
}

/// Maps device registers into the direct map; returns their virtual address.
pub(crate) fn map_device(physical: u64, bytes: u64) -> u64 {
    let first = physical & !(PAGE_BYTES as u64 - 1);
    let end = (physical + bytes).next_multiple_of(PAGE_BYTES as u64);
    map(BASE + first, first, end - first, Access::Device);
    BASE + physical
}

/// The firmware's memory, for reading its tables. They may lie outside of RAM, in ranges that the
/// firmware keeps for itself: what is not mapped yet is mapped read-only on the way.
pub(crate) fn firmware_bytes(physical: u64, bytes: usize) -> Option<&'static [u8]> {
    let end = physical.checked_add(bytes as u64)?;
    // No table lies below the first page or beyond what a processor can address.
    if physical < PAGE_BYTES as u64 || end > 1 << 52 {
        return None;
    }
    let first = physical & !(PAGE_BYTES as u64 - 1);
    let mapped_end = end.next_multiple_of(PAGE_BYTES as u64);
    map(BASE + first, first, mapped_end - first, Access::Read);
    let start = NonNull::new(pointer::<u8>(physical))?;
    // SAFETY: the range is mapped, and firmware tables do not change once the system runs.
    Some(unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes) })
}

/// The root's entry for `at`, as the processors' start-up needs it.
pub(crate) fn root_entries() -> [u64; 512] {
    core::array::from_fn(|entry| POOL.0[0][entry].load(Ordering::Relaxed))
}

/// Maps one page of low memory at its physical address, for processors on their way out of real
/// mode. Each flushes its translation when it goes online.
pub(crate) fn map_low_page(physical: u64) {
    map(physical, physical, PAGE_BYTES as u64, Access::Passing);
}

/// Takes [`map_low_page`] back.
pub(crate) fn unmap_low_page(physical: u64) {
    let _lock = LOCK.lock();
    let mut table = table_at(root());
    for level in (1..=3).rev() {
        let value = table[index(physical, level)].load(Ordering::Relaxed);
        if value & Flags::PRESENT.bits() == 0 || value & Flags::HUGE_PAGE.bits() != 0 {
            return;
        }
        table = table_at(value & ADDRESS);
    }
    table[index(physical, 0)].store(0, Ordering::Release);
    x86_64::instructions::tlb::flush(x86_64::VirtAddr::new(physical));
}

/// The memory behind frames, for the frame allocator's debug mode.
#[derive(Debug)]
pub(crate) struct Frames;

/// The words of the frames of a run, frame by frame.
fn words_of(first: FrameId, order: Order) -> impl Iterator<Item = &'static AtomicU64> {
    (0..order.frames()).flat_map(move |number| {
        let table = pointer::<Table>(first.add(number).address().0);
        // SAFETY: the frame is RAM, which is in the direct map for ever. It belongs to the frame
        // allocator; who wrongly writes to it all the same is what this looks for.
        unsafe { &*table }.iter()
    })
}

impl FrameMemory for Frames {
    fn fill(&self, first: FrameId, order: Order, word: u64) {
        words_of(first, order).for_each(|at| at.store(word, Ordering::Relaxed));
    }

    fn first_other(&self, first: FrameId, order: Order, word: u64) -> Option<usize> {
        let other = words_of(first, order).position(|at| at.load(Ordering::Relaxed) != word);
        other.map(|index| index * size_of::<u64>())
    }
}
