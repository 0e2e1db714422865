//! The memory manager on the simulated machine.

mod calls;
mod counters;
mod faults;
mod model;
mod mutations;
mod parallel;

use super::*;
use crate::stats::Counter;

const PAGE: usize = PAGE_BYTES;
const HUGE: usize = crate::ids::HUGE_BYTES;

/// A stepped machine.
fn stepped(cpus: usize, nodes: usize, node_mib: usize, thp: ThpMode) -> Sim {
    Sim::new(SimConfig::new(cpus, nodes, node_mib << 20, thp))
}

/// The address `pages` pages behind `start`.
fn page(start: VirtAddr, pages: usize) -> VirtAddr {
    VirtAddr(start.0 + (pages * PAGE) as u64)
}

/// `pages` pages from the `first` on in a mapping.
fn part(range: VirtRange, first: usize, pages: usize) -> VirtRange {
    VirtRange::new(page(range.start, first), pages * PAGE)
}

fn counter(sim: &Sim, counter: Counter) -> u64 {
    sim.mm().snapshot().get(counter)
}

/// Everything that must hold between calls.
fn check(sim: &Sim) {
    sim.check_tlbs().unwrap();
    sim.check_accounts().unwrap();
    assert_eq!(sim.mm().pending_flushes(), 0);
}

/// Everything that must hold when nothing is mapped any more.
fn check_empty(sim: &Sim) {
    check(sim);
    assert_eq!(sim.mm().mapped_frames(), 0);
    assert_eq!(sim.mm().page_table_frames(), 0);
    assert_eq!(sim.mm().frames().allocated_frames(), 0);
}
