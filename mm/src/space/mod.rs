//! The address space: page tables with metadata, faults, and the calls that change ranges.
//!
//! **Model.** There is no tree of regions. What a virtual page *is* (unreserved, reserved with a
//! protection and advice, guard) stands in a state beside the page-table entry at the highest level that
//! covers it uniformly; what it *maps to* stands in the entry. Reserving a terabyte writes a
//! thousand states and maps nothing; the first fault in a slot pushes the state down as far as it needs.
//!
//! | file | |
//! |---|---|
//! | `entry`, `state` | the two words and what they mean |
//! | `table` | a page-table page with its metadata: locks and life |
//! | `walk` | finding, locking, pushing down and unlinking |
//! | `change` | reserve, unmap, protect |
//! | `fault` | faults |
//! | `arena` | which addresses a new mapping gets |
//!
//! **Sharing.** A fault takes the lock of its 2 MiB slot and nothing else, and writes only the page
//! table, its metadata and per-processor words. Counts of frames are kept by processor and added
//! up when somebody asks.

#![forbid(unsafe_code)]

mod arena;
mod change;
mod entry;
mod fault;
mod state;
mod table;
mod walk;

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::ids::{CpuId, FrameId, PAGE_BYTES, VirtAddr, VirtRange};
use crate::machine::Machine;
use arena::Arenas;
use entry::Entry;
use walk::{ROOT_LEVEL, WalkCount};

pub(crate) use arena::Placement;
pub(crate) use state::State;
pub(crate) use table::{TABLE_ORDER, Table};
pub(crate) use walk::Walk;

/// No frame for a page-table page or a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfMemory;

/// What one processor writes.
#[derive(Default)]
#[repr(align(128))]
struct SpaceCpu {
    walks: WalkCount,
    /// Frames mapped minus frames unmapped by this processor, modulo 2^64.
    mapped: AtomicU64,
    /// The same of frames for tables.
    tables: AtomicU64,
}

/// The address space's own data. The tables are in frames, reached through the machine.
pub(crate) struct Space {
    pub(crate) root: FrameId,
    cpus: Box<[SpaceCpu]>,
    arenas: Arenas,
}

impl Space {
    /// An empty address space for mappings in `arena`.
    pub(crate) fn new(root: FrameId, arena: VirtRange, cpus: usize) -> Self {
        Self {
            root,
            cpus: (0..cpus).map(|_| SpaceCpu::default()).collect(),
            arenas: Arenas::new(arena, cpus),
        }
    }

    /// The first address in `arena` whose entry in the root is not empty.
    pub(crate) fn first_used<M: Machine>(
        machine: &M,
        root: FrameId,
        arena: VirtRange,
    ) -> Option<VirtAddr> {
        let root = Table::new(machine, root);
        let span = span_bytes(ROOT_LEVEL);
        (0..arena.bytes / span)
            .map(|slot| VirtAddr(arena.start.0 + (slot * span) as u64))
            .find(|&at| root.entry(index_at(at, ROOT_LEVEL)) != Entry::EMPTY)
    }

    fn add(&self, cpu: CpuId, count: impl Fn(&SpaceCpu) -> &AtomicU64, n: u64) {
        // Only `cpu` writes here, and not from an interrupt.
        let count = count(&self.cpus[cpu.index()]);
        let sum = count.load(Ordering::Relaxed).wrapping_add(n);
        count.store(sum, Ordering::Relaxed);
    }

    fn sum(&self, count: impl Fn(&SpaceCpu) -> &AtomicU64) -> u64 {
        self.cpus
            .iter()
            .map(|cpu| count(cpu).load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }

    pub(crate) fn count_mapped(&self, cpu: CpuId, frames: u64) {
        self.add(cpu, |cpu| &cpu.mapped, frames);
    }

    pub(crate) fn count_unmapped(&self, cpu: CpuId, frames: u64) {
        self.add(cpu, |cpu| &cpu.mapped, frames.wrapping_neg());
    }

    /// Counts frames that began to serve as tables; modulo 2^64 also those that ceased to.
    pub(crate) fn count_tables(&self, cpu: CpuId, frames: u64) {
        self.add(cpu, |cpu| &cpu.tables, frames);
    }

    pub(crate) fn mapped_frames(&self) -> u64 {
        self.sum(|cpu| &cpu.mapped)
    }

    pub(crate) fn table_frames(&self) -> u64 {
        self.sum(|cpu| &cpu.tables)
    }
}

/// Bytes under one entry of a table of `level` (1 is the lowest).
const fn span_bytes(level: usize) -> usize {
    PAGE_BYTES << (table::ENTRIES.ilog2() as usize * (level - 1))
}

/// The index of `address` in a table of `level`.
const fn index_at(address: VirtAddr, level: usize) -> usize {
    (address.0 / span_bytes(level) as u64) as usize % table::ENTRIES
}
