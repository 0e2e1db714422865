//! The identity map. The entry code maps the first 4 GiB; here the rest of the memory follows.

use core::arch::x86_64::__cpuid;
use core::cell::UnsafeCell;
use core::ptr;

use dolmen_loader::layout::{Layout, NoPlace};

use super::memory;

const ENTRIES: usize = 512;
const PRESENT_WRITABLE: u64 = 3;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const MIB_2: u64 = 2 << 20;
const GIB: u64 = 1 << 30;
/// What the entry code maps.
pub(super) const FIRST_END: u64 = 4 * GIB;

/// Page tables, consecutive in memory.
#[repr(C, align(4096))]
pub(super) struct Tables<const N: usize>(UnsafeCell<[[u64; ENTRIES]; N]>);

// SAFETY: One processor runs, and only the entry code and `extend` write, one after the other.
unsafe impl<const N: usize> Sync for Tables<N> {}

impl<const N: usize> Tables<N> {
    const fn new() -> Self {
        Self(UnsafeCell::new([[0; ENTRIES]; N]))
    }
}

pub(super) static ROOT: Tables<1> = Tables::new();
pub(super) static DIRECTORY_POINTERS: Tables<1> = Tables::new();
pub(super) static DIRECTORIES: Tables<4> = Tables::new();

/// Maps everything up to `end`, with 1 GiB pages if the processor has them. Returns the first
/// address that is not mapped.
pub(super) fn extend(end: u64, layout: &mut Layout) -> Result<u64, NoPlace> {
    let giant_pages = has_giant_pages();
    let root = ROOT.0.get().addr() as u64;
    let mut address = FIRST_END;
    while address < end {
        let pointers = next_table(root, index(address, 39), layout)?;
        if giant_pages {
            set(
                pointers,
                index(address, 30),
                address | LARGE | PRESENT_WRITABLE,
            );
        } else {
            let directory = next_table(pointers, index(address, 30), layout)?;
            for i in 0..ENTRIES {
                let page = address + i as u64 * MIB_2;
                set(directory, i, page | LARGE | PRESENT_WRITABLE);
            }
        }
        address += GIB;
    }
    Ok(address)
}

fn has_giant_pages() -> bool {
    // The entry code has made sure of this leaf.
    __cpuid(0x8000_0001).edx & (1 << 26) != 0
}

fn index(address: u64, shift: u32) -> usize {
    (address >> shift) as usize % ENTRIES
}

/// The table that an entry leads to, a new one if there is none yet.
fn next_table(table: u64, index: usize, layout: &mut Layout) -> Result<u64, NoPlace> {
    let entry = get(table, index);
    if entry & PRESENT_WRITABLE != 0 {
        return Ok(entry & ADDRESS);
    }
    // The lowest free page is mapped already: memory is mapped in ascending order.
    let page = layout.place("a page table", 4096, 4096)?;
    memory::clear(&page);
    set(table, index, page.range().start | PRESENT_WRITABLE);
    Ok(page.range().start)
}

fn get(table: u64, index: usize) -> u64 {
    // SAFETY: `table` is one of the statics or was cleared by `next_table`, and the index is below
    // 512. The processor only sets accessed and dirty bits.
    unsafe { entry(table, index).read_volatile() }
}

fn set(table: u64, index: usize, value: u64) {
    // SAFETY: As for `get`. Only entries that were not present are written, so no translation
    // changes.
    unsafe { entry(table, index).write_volatile(value) }
}

fn entry(table: u64, index: usize) -> *mut u64 {
    ptr::with_exposed_provenance_mut::<u64>(table as usize).wrapping_add(index % ENTRIES)
}
