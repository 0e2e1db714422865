//! The calls that change ranges: reserve, unmap, protect.
//!
//! Each goes through the units of its range, one lock at a time. Memory is needed only to push down
//! units on the two borders, and that is done before anything else ([`Walk::split_border`]): so a
//! call that runs out of memory has changed nothing. (Another call that makes the border
//! uniform again in between can defeat this; then the call fails half-way, with every page either
//! done or as it was.)

use super::entry::Entry;
use super::state::State;
use super::table::ENTRIES;
use super::walk::{ROOT_LEVEL, Unit, Walk};
use super::{OutOfMemory, index_at};
use crate::ids::{PAGE_BYTES, PageSize, VirtAddr, VirtRange};
use crate::machine::Machine;
use crate::manager::MemoryManager;
use crate::request::Prot;
use crate::tlb::Gather;

impl<M: Machine> MemoryManager<M> {
    /// Gives `range`, all of which is unreserved, a state. Without memory for a page-table page it
    /// fails and says how far it came.
    pub(crate) fn reserve(&self, range: VirtRange, state: State) -> Result<(), VirtAddr> {
        let mut at = range.start;
        let walk = Walk::enter(self);
        while at < range.end() {
            at = walk.reserve_unit(at, range.end(), state).map_err(|_| at)?;
        }
        Ok(())
    }

    /// Frees the tables over `address` that a failed reservation has left empty.
    pub(crate) fn tidy(&self, address: VirtAddr) {
        let mut gather = Gather::new(self);
        let walk = Walk::enter(self);
        let unit = walk.lock(address);
        if unit.level > 1 && unit.state().is_unreserved() {
            unit.clear_slot(&mut gather);
        } else if unit.level == 1 && unit.table().live() == 0 {
            unit.unlink(State::UNRESERVED, &mut gather);
        }
    }

    /// Makes `range` unreserved and frees what is mapped there.
    pub(crate) fn release(&self, range: VirtRange) -> Result<(), OutOfMemory> {
        self.sweep(range, |walk, at, end, gather| {
            walk.release_unit(at, end, gather)
        })
    }

    /// Gives everything reserved in `range` a protection.
    pub(crate) fn reprotect(&self, range: VirtRange, prot: Prot) -> Result<(), OutOfMemory> {
        self.sweep(range, |walk, at, end, gather| {
            walk.protect_unit(at, end, prot, gather)
        })
    }

    /// Applies `step` to `range` from unit to unit. It returns how far it has come, and stops when the
    /// gather is full. All flushes are done when the call returns, also when it fails.
    fn sweep(
        &self,
        range: VirtRange,
        step: impl Fn(
            &Walk<'_, M>,
            VirtAddr,
            VirtAddr,
            &mut Gather<'_, M>,
        ) -> Result<VirtAddr, OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let (mut at, end) = (range.start, range.end());
        let mut gather = Gather::new(self);
        while at < end {
            let walk = Walk::enter(self);
            if at == range.start {
                walk.split_border(at)?;
                walk.split_border(end)?;
            }
            while at < end && !gather.is_full() {
                at = step(&walk, at, end, &mut gather)?;
            }
            drop(walk);
            gather.flush();
        }
        Ok(())
    }
}

impl<'a, M: Machine> Walk<'a, M> {
    /// Makes sure that no unit with something in it reaches across `border`.
    fn split_border(&self, border: VirtAddr) -> Result<(), OutOfMemory> {
        let is_split = |level: usize, state: State| {
            level == 1
                || level == ROOT_LEVEL
                || state.is_unreserved()
                || border.0.is_multiple_of(super::span_bytes(level) as u64)
        };
        if !self.mm.config.arena.contains(border) {
            return Ok(());
        }
        loop {
            let spot = self.find(border);
            if is_split(spot.level, spot.state()) {
                return Ok(());
            }
            let unit = self.lock(border);
            if !is_split(unit.level, unit.state()) {
                unit.push_down()?;
            }
        }
    }

    fn reserve_unit(
        &self,
        at: VirtAddr,
        end: VirtAddr,
        state: State,
    ) -> Result<VirtAddr, OutOfMemory> {
        let unit = self.lock(at);
        let table = unit.table();
        if unit.level == 1 {
            let indexes = unit.indexes_until(end);
            let pages = indexes.len();
            for index in indexes {
                debug_assert!(table.state(index).is_unreserved(), "{at:?} is in use");
                table.set_state_alone(index, state);
            }
            table.set_live(table.live() + pages as u64);
            return Ok(VirtAddr(at.0 + (pages * PAGE_BYTES) as u64));
        }
        if unit.level == ROOT_LEVEL || !unit.is_within(at, end) {
            unit.push_down()?;
            return Ok(at);
        }
        debug_assert!(unit.state().is_unreserved(), "{at:?} is in use");
        if !table.raise_live() {
            // The table has just died; its successor comes with the next attempt.
            drop(unit);
            self.mm.spin();
            return Ok(at);
        }
        table.set_state(unit.index(), state);
        Ok(VirtAddr(at.0 + unit.bytes() as u64))
    }

    fn release_unit(
        &self,
        at: VirtAddr,
        end: VirtAddr,
        gather: &mut Gather<'_, M>,
    ) -> Result<VirtAddr, OutOfMemory> {
        let unit = self.lock(at);
        if unit.level == 1 {
            return Ok(release_pages(unit, at, end, gather));
        }
        let unit_end = VirtAddr(unit.base().0 + unit.bytes() as u64);
        if unit.is_within(at, end) {
            let (table, index) = (unit.table(), unit.index());
            let entry = unit.entry();
            if entry.is_leaf() {
                // Kept locked, the slot stays ours until its state is changed too.
                let entry = table.replace(index, Entry::EMPTY.locked());
                gather.add_page(unit.base(), PageSize::Huge, entry.frame());
            }
            unit.clear_slot(gather);
        } else if !unit.state().is_unreserved() {
            unit.push_down()?;
            return Ok(at);
        }
        Ok(unit_end.min(end))
    }

    fn protect_unit(
        &self,
        at: VirtAddr,
        end: VirtAddr,
        prot: Prot,
        gather: &mut Gather<'_, M>,
    ) -> Result<VirtAddr, OutOfMemory> {
        let unit = self.lock(at);
        if unit.level == 1 {
            return Ok(protect_pages(unit, at, end, prot, gather));
        }
        let unit_end = VirtAddr(unit.base().0 + unit.bytes() as u64);
        let state = unit.state();
        let changed = state.with_prot(prot);
        if !state.is_reserved() || changed == state {
            return Ok(unit_end.min(end));
        }
        if !unit.is_within(at, end) {
            unit.push_down()?;
            return Ok(at);
        }
        let (table, index) = (unit.table(), unit.index());
        table.set_state(index, changed);
        if unit.entry().is_leaf() {
            let (old, new) = table.change(index, |entry| entry.with_prot(prot));
            if old.loses_rights(new) {
                gather.add_flush(unit.base(), PageSize::Huge);
            }
        }
        Ok(unit_end)
    }
}

impl<M: Machine> Unit<'_, '_, M> {
    /// The indexes in a lowest-level table from the unit's address up to `end`.
    fn indexes_until(&self, end: VirtAddr) -> core::ops::Range<usize> {
        let table_end = VirtAddr(self.base().0 + self.bytes() as u64);
        let last = if end >= table_end {
            ENTRIES
        } else {
            index_at(end, 1)
        };
        self.index()..last
    }
}

fn release_pages<M: Machine>(
    unit: Unit<'_, '_, M>,
    mut at: VirtAddr,
    end: VirtAddr,
    gather: &mut Gather<'_, M>,
) -> VirtAddr {
    let table = unit.table();
    let (mut live, mut mapped) = (table.live(), table.mapped());
    for index in unit.indexes_until(end) {
        if gather.is_full() {
            break;
        }
        if table.entry(index).is_leaf() {
            let entry = table.replace(index, Entry::EMPTY);
            gather.add_page(at, PageSize::Base, entry.frame());
            mapped -= 1;
        }
        if !table.state(index).is_unreserved() {
            table.set_state_alone(index, State::UNRESERVED);
            live -= 1;
        }
        at = VirtAddr(at.0 + PAGE_BYTES as u64);
    }
    table.set_live(live);
    table.set_mapped(mapped);
    if live == 0 {
        unit.unlink(State::UNRESERVED, gather);
    }
    at
}

fn protect_pages<M: Machine>(
    unit: Unit<'_, '_, M>,
    at: VirtAddr,
    end: VirtAddr,
    prot: Prot,
    gather: &mut Gather<'_, M>,
) -> VirtAddr {
    let table = unit.table();
    let indexes = unit.indexes_until(end);
    let next = VirtAddr(at.0 + (indexes.len() * PAGE_BYTES) as u64);
    for (page, index) in indexes.clone().enumerate() {
        let state = table.state(index);
        if !state.is_reserved() {
            continue;
        }
        table.set_state_alone(index, state.with_prot(prot));
        if table.entry(index).is_leaf() {
            let (old, new) = table.change(index, |entry| entry.with_prot(prot));
            if old.loses_rights(new) {
                gather.add_flush(VirtAddr(at.0 + (page * PAGE_BYTES) as u64), PageSize::Base);
            }
        }
    }
    // Nothing mapped and all alike: without the table, the slot can have a huge page again.
    let first = table.state(0);
    if indexes.len() == ENTRIES
        && table.mapped() == 0
        && indexes.into_iter().all(|index| table.state(index) == first)
    {
        unit.unlink(first, gather);
    }
    next
}
