//! One page-table page and the metadata beside it.
//!
//! The two are one allocation of two frames: first the page-table page that the processor walks,
//! then the metadata: 512 states of 32 bits, two to a word, and a header on lines of its own.
//!
//! **Locks.** A table of the lowest level has one lock, in its header: it covers all its entries and
//! states. In the levels above, each entry that is not a table is locked by itself, by a bit in
//! the entry ([`Table::try_lock_entry`]); so two faults on different 2 MiB slots never meet. An entry
//! that *is* a table is changed only by whoever has killed that table.
//!
//! **Life.** `live` counts the entries that are tables or whose state is not unreserved. It is never
//! lower than the truth: it is raised before an entry comes to life and lowered after one has died.
//! Whoever finds it at 0 may *kill* the table ([`Table::kill`]), after which it can never be raised
//! again; then it is unlinked, and freed once every processor has flushed and left its walk.

use core::sync::atomic::{AtomicU64, Ordering};

use super::entry::Entry;
use super::state::State;
use crate::ids::{FrameId, Order};
use crate::machine::{self, Machine};

/// The order of a table with its metadata.
pub(crate) const TABLE_ORDER: Order = match Order::new(1) {
    Some(order) => order,
    None => panic!("order 1 exists"),
};
/// Entries in a table.
pub(crate) const ENTRIES: usize = 512;

const LOCK: usize = 256;
const LIVE: usize = 257;
const MAPPED: usize = 258;
// The header shares no pair of lines with the states.
const _: () = assert!((LOCK * 8).is_multiple_of(128));

const UNLOCKED: u64 = 0;
const HELD: u64 = 1;
const DEAD: u64 = 1 << 63;

/// What an attempt to lock a lowest-level table found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// The lock is the caller's.
    Taken,
    /// Somebody else has it.
    Busy,
    /// The table has been unlinked.
    Dead,
}

/// A table, seen through the machine.
pub(crate) struct Table<'a, M> {
    machine: &'a M,
    frame: FrameId,
}

impl<M> Clone for Table<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Table<'_, M> {}

impl<'a, M: Machine> Table<'a, M> {
    pub(crate) fn new(machine: &'a M, frame: FrameId) -> Self {
        Self { machine, frame }
    }

    pub(crate) fn frame(self) -> FrameId {
        self.frame
    }

    fn word(self, index: usize) -> &'a AtomicU64 {
        let words: &machine::Table = self.machine.table(self.frame);
        &words[index]
    }

    fn meta(self, index: usize) -> &'a AtomicU64 {
        let words: &machine::Table = self.machine.table(self.frame.add(1));
        &words[index]
    }

    pub(crate) fn entry(self, index: usize) -> Entry {
        Entry(self.word(index).load(Ordering::Acquire))
    }

    /// Exchanges an entry that the caller has locked. This also unlocks it if `entry` says so.
    pub(crate) fn replace(self, index: usize, entry: Entry) -> Entry {
        Entry(self.word(index).swap(entry.0, Ordering::SeqCst))
    }

    /// Writes an entry that was empty, of a table that the caller has locked.
    pub(crate) fn install(self, index: usize, entry: Entry) {
        self.word(index).store(entry.0, Ordering::Release);
    }

    /// Changes an entry that the caller has locked, keeping what the processor notes meanwhile.
    /// Returns the entry before and after.
    pub(crate) fn change(self, index: usize, change: impl Fn(Entry) -> Entry) -> (Entry, Entry) {
        let word = self.word(index);
        let mut old = Entry(word.load(Ordering::Relaxed));
        loop {
            let new = change(old);
            match word.compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return (old, new),
                Err(found) => old = Entry(found),
            }
        }
    }

    /// Sets the lock bit of an entry that was just read as `seen`, which is neither locked nor a
    /// table.
    pub(crate) fn try_lock_entry(self, index: usize, seen: Entry) -> bool {
        self.word(index)
            .compare_exchange(
                seen.0,
                seen.locked().0,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    pub(crate) fn unlock_entry(self, index: usize) {
        self.word(index).fetch_and(!Entry::LOCK, Ordering::Release);
    }

    pub(crate) fn state(self, index: usize) -> State {
        let word = self.meta(index / 2).load(Ordering::Acquire);
        State((word >> (index % 2 * 32)) as u32)
    }

    /// Sets the state under an entry that the caller has locked. The neighbour in the same word may
    /// change meanwhile.
    pub(crate) fn set_state(self, index: usize, state: State) {
        let change = u64::from(self.state(index).0 ^ state.0) << (index % 2 * 32);
        self.meta(index / 2).fetch_xor(change, Ordering::AcqRel);
    }

    /// The same in a table of the lowest level that the caller has locked as a whole.
    pub(crate) fn set_state_alone(self, index: usize, state: State) {
        let word = self.meta(index / 2);
        let shift = index % 2 * 32;
        let kept = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(kept | u64::from(state.0) << shift, Ordering::Release);
    }

    /// Gives every entry of a table that nobody else can reach yet the same state.
    pub(crate) fn fill_states(self, state: State) {
        let word = u64::from(state.0) << 32 | u64::from(state.0);
        for index in 0..ENTRIES / 2 {
            self.meta(index).store(word, Ordering::Relaxed);
        }
        let live = if state.is_unreserved() { 0 } else { ENTRIES };
        self.meta(LIVE).store(live as u64, Ordering::Relaxed);
    }

    pub(crate) fn try_lock(self) -> Attempt {
        let lock = self.meta(LOCK);
        match lock.compare_exchange(UNLOCKED, HELD, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Attempt::Taken,
            Err(HELD) => Attempt::Busy,
            Err(_) => Attempt::Dead,
        }
    }

    pub(crate) fn unlock(self) {
        self.meta(LOCK).store(UNLOCKED, Ordering::Release);
    }

    /// Marks a lowest-level table, locked by the caller and unlinked, as gone.
    pub(crate) fn unlock_dead(self) {
        self.meta(LOCK).store(DEAD, Ordering::Release);
    }

    /// Entries that are alive.
    pub(crate) fn live(self) -> u64 {
        self.meta(LIVE).load(Ordering::Acquire)
    }

    /// Raises `live` before an entry comes to life. Fails if the table has been killed.
    pub(crate) fn raise_live(self) -> bool {
        self.meta(LIVE)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |live| {
                (live & DEAD == 0).then_some(live + 1)
            })
            .is_ok()
    }

    /// Lowers `live` after an entry has died; returns what is left.
    pub(crate) fn lower_live(self) -> u64 {
        self.meta(LIVE).fetch_sub(1, Ordering::AcqRel) - 1
    }

    /// Sets `live` of a table of the lowest level that the caller has locked.
    pub(crate) fn set_live(self, live: u64) {
        self.meta(LIVE).store(live, Ordering::Relaxed);
    }

    /// Kills a table in which nothing lives. Only one caller succeeds.
    pub(crate) fn kill(self) -> bool {
        self.meta(LIVE)
            .compare_exchange(0, DEAD, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Leaves in a lowest-level table.
    pub(crate) fn mapped(self) -> u64 {
        self.meta(MAPPED).load(Ordering::Relaxed)
    }

    /// Sets the number of leaves in a table that the caller has locked.
    pub(crate) fn set_mapped(self, mapped: u64) {
        self.meta(MAPPED).store(mapped, Ordering::Relaxed);
    }
}
