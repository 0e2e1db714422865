//! Which page a fault gets.

use super::*;
use crate::error::FaultError;
use crate::frame::{FrameKind, Reach};
use crate::request::{Access, FaultOutcome, MapRequest};
use crate::thp::HugeAdvice;

fn fault(sim: &Sim, cpu: usize, at: VirtAddr) -> Result<FaultOutcome, FaultError> {
    sim.on(cpu, |cpu| cpu.mm().fault(at, Access::Write))
}

fn outcome(size: PageSize, node: u8) -> Result<FaultOutcome, FaultError> {
    Ok(FaultOutcome {
        size,
        node: NodeId::new(node),
        spurious: false,
    })
}

/// Takes blocks from a node until only `left` are whole.
fn take_blocks(sim: &Sim, node: u8, left: u64) {
    let (cpu, node) = (CpuId::new(0), NodeId::new(node));
    let mm = sim.mm();
    while mm.frames().node_memory(node).free_blocks > left {
        let kind = FrameKind::Unmovable;
        mm.alloc_frames(cpu, node, Order::HUGE, kind, Reach::ThisNode)
            .unwrap();
    }
}

#[test]
fn modes_and_advice_decide_the_size() {
    let sizes = |thp, huge| {
        let sim = stepped(1, 1, 16, thp);
        let request = MapRequest {
            huge,
            ..MapRequest::new(2 * HUGE + PAGE)
        };
        let range = sim.on(0, |cpu| cpu.mm().map(request).unwrap());
        let at = |bytes: usize| VirtAddr(range.start.0 + bytes as u64);
        let size = |at| fault(&sim, 0, at).unwrap().size;
        (size(at(HUGE - 1)), size(at(HUGE)), size(at(2 * HUGE)))
    };
    use PageSize::{Base, Huge};
    let always = sizes(ThpMode::Always, HugeAdvice::Default);
    // The last page has its slot not for itself.
    assert_eq!(always, (Huge, Huge, Base));
    let advised = sizes(ThpMode::Always, HugeAdvice::Never);
    assert_eq!(advised, (Base, Base, Base));
    let never = sizes(ThpMode::Never, HugeAdvice::Default);
    assert_eq!(never, (Base, Base, Base));
}

#[test]
fn pages_are_placed_on_the_node_of_the_toucher() {
    for (thp, size) in [
        (ThpMode::Never, PageSize::Base),
        (ThpMode::Always, PageSize::Huge),
    ] {
        let sim = stepped(4, 2, 16, thp);
        let range = sim.on(0, |cpu| cpu.map(4 * HUGE).unwrap());
        for cpu in 0..4 {
            let at = VirtAddr(range.start.0 + (cpu * HUGE + 12345) as u64);
            let node = cpu as u8 / 2;
            assert_eq!(fault(&sim, cpu, at), outcome(size, node));
            assert_eq!(sim.mm().page_home(at), Some(NodeId::new(node)));
            let again = FaultOutcome {
                spurious: true,
                ..outcome(size, node).unwrap()
            };
            assert_eq!(fault(&sim, 3 - cpu, at), Ok(again));
        }
        for node in 0..2 {
            let faults = Counter::Fault(size, NodeId::new(node));
            assert_eq!(counter(&sim, faults), 2);
        }
        check(&sim);
    }
}

#[test]
fn small_pages_on_the_node_come_before_a_huge_page_elsewhere() {
    let sim = stepped(2, 2, 16, ThpMode::Always);
    let range = sim.on(0, |cpu| cpu.map(3 * HUGE).unwrap());
    let slot = |slot: usize| VirtAddr(range.start.0 + (slot * HUGE) as u64);
    // The root of the page tables takes a part of one block of node 0.
    assert_eq!(fault(&sim, 0, slot(0)), outcome(PageSize::Huge, 0));
    take_blocks(&sim, 0, 0);
    assert!(sim.mm().frames().node_memory(NodeId::new(0)).free_frames > 16);
    assert_eq!(fault(&sim, 0, slot(1)), outcome(PageSize::Base, 0));
    assert_eq!(fault(&sim, 0, page(slot(1), 1)), outcome(PageSize::Base, 0));
    assert_eq!(counter(&sim, Counter::ThpFaultFallback), 1);
    assert_eq!(counter(&sim, Counter::ThpFaultAlloc), 1);
    // The other node still gives huge pages, to its own.
    assert_eq!(fault(&sim, 1, slot(2)), outcome(PageSize::Huge, 1));
    // When the node is full, small pages come from the other.
    let mut at = page(slot(1), 2);
    let last = loop {
        let outcome = fault(&sim, 0, at).unwrap();
        assert_eq!(outcome.size, PageSize::Base);
        if outcome.node == NodeId::new(1) {
            break at;
        }
        at = page(at, 1);
    };
    let free = sim.mm().frames().node_memory(NodeId::new(0)).free_frames;
    assert_eq!(free, 0, "at {last:?}");
}

#[test]
fn a_huge_page_that_is_not_to_be_had_on_fragmented_memory_falls_back_at_once() {
    let sim = stepped(1, 1, 8, ThpMode::Always);
    let small = MapRequest {
        huge: HugeAdvice::Never,
        ..MapRequest::new(4 * HUGE)
    };
    let range = sim.on(0, |cpu| cpu.mm().map(small).unwrap());
    let mut pages = 0;
    while fault(&sim, 0, page(range.start, pages)).is_ok() {
        pages += 1;
    }
    // All but every 33rd page are given back.
    for number in (0..pages).filter(|number| number % 33 != 0) {
        sim.on(0, |cpu| cpu.mm().unmap(part(range, number, 1)).unwrap());
    }
    assert!(sim.mm().mapped_frames() <= pages as u64 / 33 + 1);
    let wanted = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
    assert_eq!(fault(&sim, 0, wanted.start), outcome(PageSize::Base, 0));
    assert_eq!(counter(&sim, Counter::ThpFaultFallback), 1);
    sim.on(0, |cpu| cpu.mm().unmap(range).unwrap());
    // The slot has small pages now and stays so; the next gets a huge one.
    assert_eq!(
        fault(&sim, 0, page(wanted.start, 1)),
        outcome(PageSize::Base, 0)
    );
    sim.on(0, |cpu| cpu.mm().unmap(wanted).unwrap());
    let next = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
    assert_eq!(fault(&sim, 0, next.start), outcome(PageSize::Huge, 0));
    sim.on(0, |cpu| cpu.mm().unmap(next).unwrap());
    check_empty(&sim);
}

#[test]
fn a_fault_without_memory_fails_and_works_again_later() {
    for thp in [ThpMode::Never, ThpMode::Always] {
        let sim = stepped(2, 1, 4, thp);
        let range = sim.on(0, |cpu| cpu.map(8 << 20).unwrap());
        let populated = sim.on(0, |cpu| cpu.mm().populate(range));
        assert_eq!(populated, Err(FaultError::OutOfMemory));
        check(&sim);
        let last = page(range.start, 2047);
        let store = |cpu: usize| sim.on(cpu, |cpu| cpu.store(last, 1));
        assert_eq!(store(1), Err(FaultError::OutOfMemory));
        sim.on(0, |cpu| cpu.mm().unmap(part(range, 0, 512)).unwrap());
        assert_eq!(store(1), Ok(0));
        sim.on(0, |cpu| cpu.mm().unmap(range).unwrap());
        check_empty(&sim);
    }
}

#[test]
fn stray_faults_are_told_apart() {
    let sim = stepped(1, 1, 4, ThpMode::Never);
    let range = sim.on(0, |cpu| cpu.map(PAGE).unwrap());
    let end = sim.mm().config().arena.end();
    for stray in [0, 8, range.end().0, end.0 - 1, end.0, u64::MAX] {
        assert_eq!(fault(&sim, 0, VirtAddr(stray)), Err(FaultError::Unmapped));
    }
    let fetch = sim.on(0, |cpu| cpu.mm().fault(range.start, Access::Execute));
    assert_eq!(fetch, Err(FaultError::Protection));
    assert_eq!(counter(&sim, Counter::PgFault), 7);
    check(&sim);
}
