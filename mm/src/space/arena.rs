//! Which addresses a new mapping gets.
//!
//! The range for mappings is divided: each processor has an arena of whole gigabytes, so that what
//! different processors map shares no page-table page below the third level, and the upper half is one
//! arena for large mappings and for whoever has filled his own.
//!
//! No list of free ranges is kept, so nothing can overflow and nothing is allocated: the states in the page
//! tables say what is free. An arena goes through its addresses once without looking (`high` is where
//! no mapping has been yet), then finds gaps behind its cursor. Unmapping what lies directly
//! below the cursor moves it back, so that a program that maps and unmaps in turn stays in the same
//! page-table pages.
//!
//! Addresses below `high` may still be known to a TLB: whoever unmapped them has emptied the entries but
//! perhaps not flushed. So a mapping there waits for the gathers that are open, after it has
//! reserved them and released the arena's lock.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::state::State;
use super::walk::Walk;
use super::{OutOfMemory, span_bytes, table};
use crate::ids::{CpuId, GIANT_BYTES, PAGE_BYTES, VirtAddr, VirtRange};
use crate::machine::Machine;
use crate::manager::MemoryManager;
use crate::stats::{Counter, LockClass};

/// A mapping of more than this part of a processor's arena goes to the common one.
const LARGE_PART: usize = 8;

/// A mapping to be placed; everything in bytes and in whole pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) guard: usize,
    pub(crate) bytes: usize,
    pub(crate) align: usize,
    pub(crate) state: State,
}

/// The changing part of one arena. All under its lock, which its own processor takes, and others only
/// when they have no addresses left.
#[repr(align(128))]
struct Arena {
    locked: AtomicBool,
    /// Where the search for the next mapping begins.
    cursor: AtomicU64,
    /// No address from here on has ever been mapped.
    high: AtomicU64,
}

/// All arenas: one for each processor, then the common one.
pub(super) struct Arenas {
    whole: VirtRange,
    each_bytes: usize,
    arenas: Box<[Arena]>,
}

impl Arenas {
    /// `whole` has at least two gigabytes per processor.
    pub(super) fn new(whole: VirtRange, cpus: usize) -> Self {
        let each_bytes = whole.bytes / 2 / cpus / GIANT_BYTES * GIANT_BYTES;
        let arenas = (0..=cpus).map(|number| {
            let start = whole.start.0 + (number * each_bytes) as u64;
            Arena {
                locked: AtomicBool::new(false),
                cursor: AtomicU64::new(start),
                high: AtomicU64::new(start),
            }
        });
        Self {
            whole,
            each_bytes,
            arenas: arenas.collect(),
        }
    }

    fn common(&self) -> usize {
        self.arenas.len() - 1
    }

    fn range(&self, number: usize) -> VirtRange {
        let offset = number * self.each_bytes;
        let bytes = if number == self.common() {
            self.whole.bytes - offset
        } else {
            self.each_bytes
        };
        VirtRange::new(VirtAddr(self.whole.start.0 + offset as u64), bytes)
    }

    fn number_of(&self, address: VirtAddr) -> usize {
        let offset = (address.0 - self.whole.start.0) as usize;
        (offset / self.each_bytes).min(self.common())
    }

    /// All arenas, in the order in which `cpu` tries them.
    fn order(&self, cpu: CpuId, bytes: usize) -> impl Iterator<Item = usize> + use<> {
        let (own, common) = (cpu.index(), self.common());
        let first = if bytes > self.each_bytes / LARGE_PART {
            [common, own]
        } else {
            [own, common]
        };
        let others = (0..common).filter(move |&number| number != own);
        first.into_iter().chain(others)
    }
}

impl<M: Machine> MemoryManager<M> {
    /// Reserves addresses for a mapping.
    pub(crate) fn place(&self, cpu: CpuId, placement: Placement) -> Result<VirtRange, OutOfMemory> {
        let Placement { guard, bytes, .. } = placement;
        for number in self.space.arenas.order(cpu, guard + bytes) {
            self.lock_arena(cpu, number);
            let result = self.place_in(number, placement);
            self.unlock_arena(number);
            let Some(placed) = result else {
                continue;
            };
            if let Err(reached) = placed.reserved {
                self.take_back(placed.start, reached)?;
                return Err(OutOfMemory);
            }
            if placed.reused {
                self.tlb.wait_for_gathers(cpu, || self.spin());
            }
            return Ok(VirtRange::new(
                VirtAddr(placed.start.0 + guard as u64),
                bytes,
            ));
        }
        Err(OutOfMemory)
    }

    /// Notes that `range` is free again and flushed.
    pub(crate) fn recycle(&self, cpu: CpuId, range: VirtRange) {
        let arenas = &self.space.arenas;
        let number = arenas.number_of(range.start);
        let cursor = &arenas.arenas[number].cursor;
        let is_ours = number == cpu.index() || number == arenas.common();
        let is_last = || cursor.load(Ordering::Relaxed) == range.end().0;
        if is_ours && range.start >= arenas.range(number).start && is_last() {
            self.lock_arena(cpu, number);
            if is_last() {
                cursor.store(range.start.0, Ordering::Relaxed);
            }
            self.unlock_arena(number);
        }
    }

    fn lock_arena(&self, cpu: CpuId, number: usize) {
        let locked = &self.space.arenas.arenas[number].locked;
        let mut waited = false;
        while locked.swap(true, Ordering::Acquire) {
            if !waited {
                self.count(cpu, Counter::LockWait(LockClass::Arena), 1);
                waited = true;
            }
            self.spin();
        }
    }

    fn unlock_arena(&self, number: usize) {
        let locked = &self.space.arenas.arenas[number].locked;
        locked.store(false, Ordering::Release);
    }

    /// Finds and reserves addresses in an arena that the caller has locked.
    fn place_in(&self, number: usize, placement: Placement) -> Option<Placed> {
        let arena = &self.space.arenas.arenas[number];
        let range = self.space.arenas.range(number);
        let high = VirtAddr(arena.high.load(Ordering::Relaxed));
        let cursor = VirtAddr(arena.cursor.load(Ordering::Relaxed));
        let start = {
            let walk = Walk::enter(self);
            walk.find_gap(cursor, range.end(), high, placement)
                .or_else(|| walk.find_gap(range.start, range.end(), high, placement))?
        };
        let body = VirtAddr(start.0 + placement.guard as u64);
        let end = VirtAddr(body.0 + placement.bytes as u64);
        arena.cursor.store(end.0, Ordering::Relaxed);
        arena.high.store(end.0.max(high.0), Ordering::Relaxed);
        let guard = VirtRange::new(start, placement.guard);
        let reserved = self
            .reserve(guard, State::GUARD)
            .and_then(|()| self.reserve(VirtRange::new(body, placement.bytes), placement.state));
        Some(Placed {
            start,
            reused: start < high,
            reserved,
        })
    }

    /// Undoes a reservation that stopped at `reached` for want of memory.
    fn take_back(&self, start: VirtAddr, reached: VirtAddr) -> Result<(), OutOfMemory> {
        self.release(VirtRange::new(start, (reached.0 - start.0) as usize))?;
        self.tidy(reached);
        Ok(())
    }
}

/// Where a mapping was placed.
struct Placed {
    start: VirtAddr,
    /// Some of the addresses have been mapped before.
    reused: bool,
    /// Or how far the reservation came.
    reserved: Result<(), VirtAddr>,
}

impl<M: Machine> Walk<'_, M> {
    /// The first address from `from` at which the mapping, guard and all, fits below `end`. Nothing
    /// from `high` on is in use.
    fn find_gap(
        &self,
        mut from: VirtAddr,
        end: VirtAddr,
        high: VirtAddr,
        placement: Placement,
    ) -> Option<VirtAddr> {
        let Placement {
            guard,
            bytes,
            align,
            ..
        } = placement;
        loop {
            let body = from
                .0
                .checked_add(guard as u64)?
                .checked_next_multiple_of(align as u64)?;
            let body_end = body.checked_add(bytes as u64)?;
            if body_end > end.0 {
                return None;
            }
            let start = VirtAddr(body - guard as u64);
            let known_end = VirtAddr(body_end).min(high);
            let taken = self.seek(start, known_end, false);
            if taken >= known_end {
                return Some(start);
            }
            from = self.seek(taken, high, true);
        }
    }

    /// The first page from `at` that is unreserved, or that is not; at least `end` if there is none.
    fn seek(&self, mut at: VirtAddr, end: VirtAddr, unreserved: bool) -> VirtAddr {
        while at < end {
            let spot = self.find(at);
            if spot.level > 1 {
                let free = !spot.entry.is_leaf() && spot.state().is_unreserved();
                if free == unreserved {
                    return at;
                }
                let span = span_bytes(spot.level);
                at = VirtAddr(at.align_down(span).0 + span as u64);
                continue;
            }
            for index in spot.index..table::ENTRIES {
                if spot.table.state(index).is_unreserved() == unreserved {
                    return at;
                }
                at = VirtAddr(at.0 + PAGE_BYTES as u64);
            }
        }
        at
    }

    /// The lowest address of the guard that lies directly below `start`, or `start` itself.
    pub(crate) fn guard_start(&self, start: VirtAddr) -> VirtAddr {
        let mut at = start;
        loop {
            let below = VirtAddr(at.0 - PAGE_BYTES as u64);
            if !self.mm.config.arena.contains(below) {
                return at;
            }
            let spot = self.find(below);
            if !spot.state().is_guard() {
                return at;
            }
            at = below.align_down(span_bytes(spot.level));
        }
    }
}
