//! Walks through the page tables, and the units they lock.
//!
//! **Units.** An operation on a range goes from unit to unit and holds one lock at a time, so no
//! order of locks is needed. The unit at an address is whatever covers it at the lowest level that
//! exists: a table of the lowest level with all its pages, or an entry above that is no table. A
//! unit that the operation covers only in part is pushed down ([`Unit::push_down`]): it becomes a
//! table whose entries inherit what it was.
//!
//! **States under tables.** The state beside an entry that refers to a table means nothing. Whoever
//! unlinks the table writes the state that holds afterwards *before* it empties the entry, so a
//! reader without a lock that reads the entry first and the state second never takes a reserved
//! page for a free one.
//!
//! **Why a table that is being read is not freed.** A walk is a [`Walk`] value; entering and leaving
//! it change a word of the processor's own. A table is unlinked first, and freed after every
//! other processor has been seen outside of a walk or in a later one ([`Space::wait_for_walks`]).
//! Nobody waits for that, or for a flush, inside a walk.

use core::sync::atomic::{AtomicU64, Ordering};

use super::entry::Entry;
use super::state::State;
use super::table::{Attempt, ENTRIES, TABLE_ORDER, Table};
use super::{OutOfMemory, Space, index_at, span_bytes};
use crate::frame::{FrameKind, Reach};
use crate::ids::{CpuId, VirtAddr};
use crate::machine::Machine;
use crate::manager::MemoryManager;
use crate::stats::{Counter, LockClass};
use crate::tlb::Gather;

/// The level of the root.
pub(crate) const ROOT_LEVEL: usize = 4;

/// How often a processor has entered or left a walk: odd while it is in one.
#[derive(Default)]
pub(crate) struct WalkCount(AtomicU64);

impl Space {
    /// How often `cpu` has entered or left a walk.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn walk_count(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu.index()].walks.0.load(Ordering::SeqCst)
    }

    /// Waits until every table that was unlinked before the call can be reached by nobody but
    /// `cpu`. The caller is in no walk and holds no lock.
    pub(crate) fn wait_for_walks(&self, cpu: CpuId, mut wait: impl FnMut()) {
        for (number, other) in self.cpus.iter().enumerate() {
            let seen = other.walks.0.load(Ordering::SeqCst);
            if number == cpu.index() || seen.is_multiple_of(2) {
                continue;
            }
            while other.walks.0.load(Ordering::SeqCst) == seen {
                wait();
            }
        }
    }
}

/// A processor reading page tables.
pub(crate) struct Walk<'a, M: Machine> {
    pub(crate) mm: &'a MemoryManager<M>,
    pub(crate) cpu: CpuId,
}

impl<'a, M: Machine> Walk<'a, M> {
    pub(crate) fn enter(mm: &'a MemoryManager<M>) -> Self {
        let cpu = mm.machine.this_cpu();
        let before = mm.space.cpus[cpu.index()]
            .walks
            .0
            .fetch_add(1, Ordering::SeqCst);
        debug_assert!(before.is_multiple_of(2), "a walk inside a walk");
        Self { mm, cpu }
    }
}

impl<M: Machine> Drop for Walk<'_, M> {
    fn drop(&mut self) {
        let walks = &self.mm.space.cpus[self.cpu.index()].walks.0;
        walks.store(walks.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The lowest entry that covers an address, as read without a lock.
pub(crate) struct Spot<'a, M> {
    pub(crate) table: Table<'a, M>,
    pub(crate) level: usize,
    pub(crate) index: usize,
    pub(crate) entry: Entry,
}

impl<M: Machine> Spot<'_, M> {
    /// The state that goes with the entry.
    pub(crate) fn state(&self) -> State {
        if self.level == ROOT_LEVEL {
            State::UNRESERVED
        } else {
            self.table.state(self.index)
        }
    }
}

impl<'a, M: Machine> Walk<'a, M> {
    /// The lowest entry that covers `address`.
    pub(crate) fn find(&self, address: VirtAddr) -> Spot<'a, M> {
        let mut table = self.mm.table(self.mm.space.root);
        let mut level = ROOT_LEVEL;
        loop {
            let index = index_at(address, level);
            let entry = table.entry(index);
            if level == 1 || !entry.is_table() {
                return Spot {
                    table,
                    level,
                    index,
                    entry: entry.unlocked(),
                };
            }
            table = self.mm.table(entry.frame());
            level -= 1;
        }
    }

    /// Locks the unit at `address`. The caller holds no other unit.
    pub(crate) fn lock(&self, address: VirtAddr) -> Unit<'_, 'a, M> {
        let root = self.mm.table(self.mm.space.root);
        let mut waited = false;
        let mut wait = || {
            if !waited {
                self.mm
                    .count(self.cpu, Counter::LockWait(LockClass::PageTable), 1);
                waited = true;
            }
            self.mm.spin();
        };
        let mut path = [root; ROOT_LEVEL];
        let mut level = ROOT_LEVEL;
        loop {
            let table = path[level - 1];
            let index = index_at(address, level);
            let entry = table.entry(index);
            if entry.is_table() {
                let child = self.mm.table(entry.frame());
                path[level - 2] = child;
                if level > 2 {
                    level -= 1;
                    continue;
                }
                match child.try_lock() {
                    Attempt::Taken => {
                        level = 1;
                        break;
                    }
                    Attempt::Busy => wait(),
                    Attempt::Dead => {
                        wait();
                        level = ROOT_LEVEL;
                    }
                }
            } else if !entry.is_locked() && table.try_lock_entry(index, entry) {
                break;
            } else {
                wait();
            }
        }
        Unit {
            walk: self,
            path,
            level,
            address,
            held: true,
        }
    }
}

/// What a walk has locked: a lowest-level table (level 1), or an entry above that is no table.
pub(crate) struct Unit<'w, 'a, M: Machine> {
    walk: &'w Walk<'a, M>,
    /// The tables from the root (last) down to the unit's own, by level.
    path: [Table<'a, M>; ROOT_LEVEL],
    pub(crate) level: usize,
    address: VirtAddr,
    held: bool,
}

impl<'a, M: Machine> Unit<'_, 'a, M> {
    /// The table that is locked, or that holds the entry that is locked.
    pub(crate) fn table(&self) -> Table<'a, M> {
        self.path[self.level - 1]
    }

    /// The index in [`Unit::table`] of the address that was asked for.
    pub(crate) fn index(&self) -> usize {
        index_at(self.address, self.level)
    }

    /// Bytes in the whole unit.
    pub(crate) fn bytes(&self) -> usize {
        span_bytes(self.level.max(2))
    }

    /// The first address of the unit.
    pub(crate) fn base(&self) -> VirtAddr {
        self.address.align_down(self.bytes())
    }

    /// The entry at the address, unlocked.
    pub(crate) fn entry(&self) -> Entry {
        self.table().entry(self.index()).unlocked()
    }

    /// The state at the address.
    pub(crate) fn state(&self) -> State {
        if self.level == ROOT_LEVEL {
            State::UNRESERVED
        } else {
            self.table().state(self.index())
        }
    }

    /// Whether the unit lies between the two addresses as a whole.
    pub(crate) fn is_within(&self, start: VirtAddr, end: VirtAddr) -> bool {
        start <= self.base() && end.0 - self.base().0 >= self.bytes() as u64
    }

    /// Puts `entry` into the locked entry, which unlocks it.
    pub(crate) fn replace(mut self, entry: Entry) {
        self.table().replace(self.index(), entry);
        self.held = false;
    }

    /// Turns the locked entry into a table whose entries are what it was: unreserved, reserved, or
    /// parts of a huge page. Also returns if the entry's own table has died; the caller locks
    /// the unit anew in any case.
    pub(crate) fn push_down(self) -> Result<(), OutOfMemory> {
        let Walk { mm, cpu } = *self.walk;
        let (state, entry) = (self.state(), self.entry());
        let node = mm.topology.node_of_cpu(cpu);
        let frame = mm
            .alloc_frames(cpu, node, TABLE_ORDER, FrameKind::Unmovable, Reach::AnyNode)
            .ok_or(OutOfMemory)?;
        mm.clear(cpu, frame, TABLE_ORDER, 0);
        // A root entry has no count, and a reserved one is counted already.
        let counted = self.level == ROOT_LEVEL || !state.is_unreserved();
        if !counted && !self.table().raise_live() {
            mm.frames
                .free(cpu, frame, TABLE_ORDER, FrameKind::Unmovable);
            return Ok(());
        }
        let child = mm.table(frame);
        if !state.is_unreserved() {
            child.fill_states(state);
        }
        if entry.is_leaf() {
            for index in 0..ENTRIES {
                child.install(index, entry.base_part(index));
            }
            child.set_mapped(ENTRIES as u64);
            mm.count(cpu, Counter::ThpSplitPmd, 1);
        }
        mm.space.count_tables(cpu, TABLE_ORDER.frames() as u64);
        self.replace(Entry::table(frame));
        Ok(())
    }

    /// Unlinks the locked lowest-level table, in which no page is mapped. `state` is what its 2 MiB
    /// are from now on.
    pub(crate) fn unlink(mut self, state: State, gather: &mut Gather<'_, M>) {
        let (table, parent) = (self.path[0], self.path[1]);
        let index = index_at(self.address, 2);
        parent.set_state(index, state);
        parent.replace(index, Entry::EMPTY);
        table.unlock_dead();
        self.held = false;
        gather.add_table(self.base(), table.frame());
        if state.is_unreserved() {
            parent.lower_live();
            self.prune(2, gather);
        }
    }

    /// Makes the locked entry unreserved. A leaf has been taken out of it before.
    pub(crate) fn clear_slot(mut self, gather: &mut Gather<'_, M>) {
        let (table, level) = (self.table(), self.level);
        if self.state().is_unreserved() {
            table.unlock_entry(self.index());
        } else {
            table.set_state(self.index(), State::UNRESERVED);
            table.unlock_entry(self.index());
            table.lower_live();
        }
        self.held = false;
        self.prune(level, gather);
    }

    /// Frees the table of `level` on the path, and those above it, as far as nothing lives in them.
    fn prune(&self, mut level: usize, gather: &mut Gather<'_, M>) {
        while level < ROOT_LEVEL {
            let table = self.path[level - 1];
            if table.live() != 0 || !table.kill() {
                return;
            }
            let parent = self.path[level];
            let index = index_at(self.address, level + 1);
            if level + 1 < ROOT_LEVEL {
                parent.set_state(index, State::UNRESERVED);
            }
            parent.replace(index, Entry::EMPTY);
            gather.add_table(self.address, table.frame());
            level += 1;
            if level < ROOT_LEVEL {
                parent.lower_live();
            }
        }
    }
}

impl<M: Machine> Drop for Unit<'_, '_, M> {
    fn drop(&mut self) {
        match (self.held, self.level) {
            (false, _) => {}
            (true, 1) => self.table().unlock(),
            (true, _) => self.table().unlock_entry(self.index()),
        }
    }
}
