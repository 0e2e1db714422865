extern crate std;

use alloc::collections::BTreeSet;
use core::mem::size_of;

use super::{Counter, LockClass, Snapshot, Stats};
use crate::ids::{CpuId, MAX_NODES, NodeId, PageSize};

#[test]
fn every_counter_has_a_place_and_a_name_of_its_own() {
    let all: alloc::vec::Vec<Counter> = Counter::all(MAX_NODES).collect();
    let places: BTreeSet<usize> = all.iter().map(|counter| counter.index()).collect();
    let names: BTreeSet<&str> = all.iter().map(|counter| counter.name()).collect();
    assert_eq!(places.len(), Counter::COUNT);
    assert_eq!(places.last(), Some(&(Counter::COUNT - 1)));
    assert_eq!(names.len(), Counter::COUNT);
}

#[test]
fn a_snapshot_adds_up_the_processors() {
    let stats = Stats::new(3, 2);
    let huge_on_1 = Counter::Fault(PageSize::Huge, NodeId::new(1));
    stats.add(CpuId::new(0), Counter::PgFault, 2);
    stats.add(CpuId::new(2), Counter::PgFault, 5);
    stats.add(CpuId::new(1), huge_on_1, 1);
    stats.add(CpuId::new(1), Counter::TlbLocalFlushOne, 3);
    let before = stats.snapshot();
    assert_eq!(before.get(Counter::PgFault), 7);
    assert_eq!(before.get(huge_on_1), 1);
    assert_eq!(before.get(Counter::TlbLocalFlushOne), 3);
    assert_eq!(before.get(Counter::PgAlloc), 0);

    stats.add(CpuId::new(0), Counter::LockWait(LockClass::PageTable), 4);
    let between = stats.snapshot().since(&before);
    let changed: alloc::vec::Vec<_> = between.iter().filter(|&(_, value)| value != 0).collect();
    assert_eq!(changed, [("lock_wait_page_table", 4)]);
}

#[test]
fn reports_name_only_the_nodes_that_exist() {
    let named = |nodes: usize, name: &str| {
        Snapshot::empty(nodes)
            .iter()
            .any(|(found, _)| found == name)
    };
    assert!(named(2, "fault_4k_node1"));
    assert!(!named(2, "fault_4k_node2"));
    assert!(named(16, "fault_1g_node15"));
    assert!(named(1, "nr_tlb_remote_flush"));
}

#[test]
fn counters_of_two_processors_share_no_pair_of_lines() {
    let stats = Stats::new(4, 1);
    for pair in stats.cpus.windows(2) {
        let end = &raw const pair[0] as usize + size_of::<[u64; Counter::COUNT]>();
        let start = &raw const pair[1] as usize;
        assert!(end.div_ceil(128) <= start / 128);
    }
}

#[test]
fn what_interrupts_count_loses_nothing() {
    // Another thread stands for the handler that comes between any two instructions.
    let stats = Stats::new(1, 1);
    let count = || {
        for _ in 0..200_000 {
            stats.add(CpuId::new(0), Counter::TlbRemoteFlushReceived, 1);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(count);
        scope.spawn(count);
    });
    let received = stats.snapshot().get(Counter::TlbRemoteFlushReceived);
    assert_eq!(received, 400_000);
}
