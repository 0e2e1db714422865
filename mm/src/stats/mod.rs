//! Counters, one padded set per processor.
//!
//! **Model.** [`Stats`] holds one set of counters for each processor; [`Stats::snapshot`] adds them
//! up. The sets are 128 bytes apart at least, because the adjacent-line prefetcher makes pairs of
//! cache lines one unit: counting never touches what another processor writes.
//!
//! **Who writes.** Only processor `cpu` calls [`Stats::add`] with `cpu`, with preemption off. So a
//! counter needs no locked instruction: a relaxed load and a relaxed store lose nothing as long as
//! nobody else writes in between. On the same processor that could be an interrupt handler, so
//! there are two classes, told apart by [`Counter::counted_in_interrupts`]:
//!
//! * most counters are written by the memory manager's calls and by the page-fault handler, which
//!   never interrupts the memory manager (the kernel does not fault inside it). Load and store;
//! * what serving a shootdown counts is written by the interrupt handler *and* by whoever polls
//!   while it waits, with interrupts on. These use an atomic addition: locked, but on a line of
//!   one's own, and next to an interrupt its cost is nothing.
//!
//! A read while others count may see one counter before and another after an event.

#![forbid(unsafe_code)]

mod counter;

use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::{AtomicU64, Ordering};

pub use counter::{Counter, LockClass};

use crate::ids::{CpuId, MAX_NODES};

/// The counters of one processor.
#[derive(Debug)]
#[repr(align(128))]
struct CpuCounters {
    values: [AtomicU64; Counter::COUNT],
}

// What one processor counts shares no pair of lines with what another does.
const _: () = assert!(align_of::<CpuCounters>() == 128);
const _: () = assert!(size_of::<CpuCounters>().is_multiple_of(128));

/// The counters of all processors.
#[derive(Debug)]
pub struct Stats {
    cpus: Box<[CpuCounters]>,
    nodes: usize,
}

impl Stats {
    /// Counters at zero for processors 0 to `cpus - 1`, of a machine with `nodes` nodes.
    pub fn new(cpus: usize, nodes: usize) -> Self {
        Self {
            cpus: (0..cpus)
                .map(|_| CpuCounters {
                    values: [const { AtomicU64::new(0) }; Counter::COUNT],
                })
                .collect(),
            nodes: nodes.min(MAX_NODES),
        }
    }

    /// Adds `n` to a counter of `cpu`, the processor that executes the caller, with preemption off.
    #[inline]
    pub fn add(&self, cpu: CpuId, counter: Counter, n: u64) {
        let value = &self.cpus[cpu.index()].values[counter.index()];
        if counter.counted_in_interrupts() {
            value.fetch_add(n, Ordering::Relaxed);
        } else {
            value.store(
                value.load(Ordering::Relaxed).wrapping_add(n),
                Ordering::Relaxed,
            );
        }
    }

    /// The sums over all processors.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::empty(self.nodes);
        for cpu in &self.cpus {
            for (sum, value) in snapshot.values.iter_mut().zip(&cpu.values) {
                *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
            }
        }
        snapshot
    }
}

/// The counters of the whole machine at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    values: Box<[u64]>,
    nodes: usize,
}

impl Snapshot {
    /// All counters at zero, of a machine with `nodes` nodes.
    pub fn empty(nodes: usize) -> Self {
        Self {
            values: vec![0; Counter::COUNT].into(),
            nodes,
        }
    }

    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter.index()]
    }

    /// Adds to a counter what was counted elsewhere.
    pub fn add(&mut self, counter: Counter, n: u64) {
        self.values[counter.index()] += n;
    }

    /// What was counted between `earlier` and this snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            values: self
                .values
                .iter()
                .zip(&earlier.values)
                .map(|(now, then)| now.wrapping_sub(*then))
                .collect(),
            nodes: self.nodes,
        }
    }

    /// The names and values of all counters that this machine can have.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::all(self.nodes).map(|counter| (counter.name(), self.get(counter)))
    }
}

#[cfg(test)]
mod tests;
