//! What is counted is exact.

use super::*;
use crate::request::{MapRequest, Prot};
use crate::thp::HugeAdvice;
use crate::tlb::{BATCH_FRAMES, FULL_FLUSH_ABOVE_PAGES};

/// Maps `pages` small pages and lets every processor touch them all.
fn touched_by_all(sim: &Sim, cpus: usize, pages: usize) -> VirtRange {
    let request = MapRequest {
        huge: HugeAdvice::Never,
        ..MapRequest::new(pages * PAGE)
    };
    let range = sim.on(0, |cpu| cpu.mm().map(request).unwrap());
    for cpu in 0..cpus {
        for number in 0..pages {
            let at = page(range.start, number);
            sim.on(cpu, |cpu| cpu.store(at, 1).unwrap());
        }
    }
    range
}

#[test]
fn faults_are_counted_by_size_and_the_rest_is_spurious() {
    let sim = stepped(2, 2, 64, ThpMode::Always);
    let range = sim.on(0, |cpu| cpu.map(8 * HUGE + 16 * PAGE).unwrap());
    for number in 0..range.bytes / PAGE {
        let at = page(range.start, number);
        sim.on(number % 2, |cpu| cpu.store(at, 1).unwrap());
    }
    let count = |size| {
        let on = |node| counter(&sim, Counter::Fault(size, NodeId::new(node)));
        on(0) + on(1)
    };
    assert_eq!(count(PageSize::Huge), 8);
    assert_eq!(count(PageSize::Base), 16);
    assert_eq!(counter(&sim, Counter::ThpFaultAlloc), 8);
    let all = counter(&sim, Counter::PgFault);
    assert_eq!(all - counter(&sim, Counter::PgFaultSpurious), 24);
    check(&sim);
}

#[test]
fn one_interrupt_for_each_processor_and_batch() {
    let (cpus, pages) = (8, 3 * BATCH_FRAMES);
    let sim = stepped(cpus, 1, 64, ThpMode::Never);
    let range = touched_by_all(&sim, cpus, pages);
    let before = sim.mm().snapshot();
    sim.on(3, |cpu| cpu.mm().unmap(range).unwrap());
    let counted = sim.mm().snapshot().since(&before);
    assert_eq!(counted.get(Counter::TlbBatches), 3);
    let sent = counted.get(Counter::TlbRemoteFlush);
    assert!(sent <= 3 * 7, "{sent}");
    assert_eq!(counted.get(Counter::TlbRemoteFlushReceived), 3 * 7);
    assert!(counted.get(Counter::TlbRemoteFlushPages) >= 7 * pages as u64);
    // 512 pages at once are too many to name.
    assert_eq!(counted.get(Counter::TlbLocalFlushAll), 3 * 8);
    assert_eq!(counted.get(Counter::TlbLocalFlushOne), 0);
    check_empty(&sim);
}

#[test]
fn few_pages_are_flushed_one_by_one() {
    let few = FULL_FLUSH_ABOVE_PAGES as usize;
    for (pages, all, one) in [(1, 0, 4), (few, 0, 4 * few as u64), (few + 1, 4, 0)] {
        let sim = stepped(4, 1, 16, ThpMode::Never);
        let range = touched_by_all(&sim, 4, few + 2);
        let before = sim.mm().snapshot();
        sim.on(0, |cpu| cpu.mm().unmap(part(range, 0, pages)).unwrap());
        let counted = sim.mm().snapshot().since(&before);
        assert_eq!(counted.get(Counter::TlbRemoteFlush), 3);
        assert_eq!(counted.get(Counter::TlbLocalFlushAll), all);
        assert_eq!(counted.get(Counter::TlbLocalFlushOne), one);
        check(&sim);
    }
}

#[test]
fn pages_far_apart_are_flushed_in_full_when_they_are_too_many_to_list() {
    for (pages, all) in [(16, 0), (17, 2)] {
        let sim = stepped(2, 1, 16, ThpMode::Never);
        let range = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
        for number in 0..pages {
            sim.on(1, |cpu| {
                cpu.store(page(range.start, 20 * number), 1).unwrap()
            });
        }
        // Keeps the page-table page out of it.
        sim.on(0, |cpu| cpu.store(page(range.start, 511), 1).unwrap());
        let before = sim.mm().snapshot();
        sim.on(0, |cpu| cpu.mm().unmap(part(range, 0, 511)).unwrap());
        let counted = sim.mm().snapshot().since(&before);
        assert_eq!(counted.get(Counter::TlbLocalFlushAll), all, "{pages}");
        assert_eq!(counted.get(Counter::TlbBatches), 1);
        check(&sim);
    }
}

#[test]
fn what_was_never_mapped_and_what_gains_rights_needs_no_flush() {
    let sim = stepped(4, 1, 64, ThpMode::Never);
    let request = MapRequest {
        prot: Prot::READ,
        ..MapRequest::new(8 << 20)
    };
    let range = sim.on(0, |cpu| cpu.mm().map(request).unwrap());
    sim.on(1, |cpu| cpu.load(range.start).unwrap());
    sim.on(0, |cpu| cpu.mm().protect(range, Prot::READ_WRITE).unwrap());
    let untouched = part(range, 512, 512);
    sim.on(0, |cpu| cpu.mm().protect(untouched, Prot::NONE).unwrap());
    sim.on(0, |cpu| cpu.mm().unmap(untouched).unwrap());
    for name in [
        Counter::TlbBatches,
        Counter::TlbRemoteFlush,
        Counter::TlbLocalFlushAll,
        Counter::TlbLocalFlushOne,
    ] {
        assert_eq!(counter(&sim, name), 0, "{name:?}");
    }
    // Processor 1 has the old right in its TLB and faults without harm.
    assert_eq!(sim.on(1, |cpu| cpu.store(range.start, 1)), Ok(0));
    check(&sim);
}

#[test]
fn growing_and_shrinking_by_a_page_flushes_that_page_alone() {
    let sim = stepped(2, 1, 16, ThpMode::Never);
    let keep = sim.on(0, |cpu| cpu.map(PAGE).unwrap());
    sim.on(0, |cpu| cpu.store(keep.start, 1).unwrap());
    let before = sim.mm().snapshot();
    for _ in 0..50 {
        sim.on(0, |cpu| {
            let range = cpu.map(PAGE).unwrap();
            cpu.store(range.start, 1).unwrap();
            cpu.mm().unmap(range).unwrap();
        });
    }
    let counted = sim.mm().snapshot().since(&before);
    assert_eq!(counted.get(Counter::TlbLocalFlushAll), 0);
    assert_eq!(counted.get(Counter::TlbRemoteFlush), 50);
    assert_eq!(counted.get(Counter::TlbLocalFlushOne), 100);
    check(&sim);
}
