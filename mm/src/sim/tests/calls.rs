//! map, unmap, protect, lookup: one case each.

use std::string::ToString;

use super::*;
use crate::error::{FaultError, InitError, MapError};
use crate::request::{MIN_RAM_BYTES, MapRequest, Prot};
use crate::thp::HugeAdvice;

#[test]
fn fresh_memory_is_zero_and_keeps_what_is_written() {
    for thp in [ThpMode::Never, ThpMode::Always] {
        let sim = stepped(2, 2, 16, thp);
        let range = sim.on(0, |cpu| cpu.map(5 << 20).unwrap());
        for number in [0, 1, 511, 512, 1279] {
            let at = page(range.start, number);
            assert_eq!(sim.on(0, |cpu| cpu.store(at, 7 + number as u64)), Ok(0));
        }
        for number in [0, 1, 511, 512, 1279] {
            let at = page(range.start, number);
            assert_eq!(sim.on(1, |cpu| cpu.load(at)), Ok(7 + number as u64));
        }
        check(&sim);
        sim.on(1, |cpu| cpu.mm().unmap(range).unwrap());
        assert_eq!(
            sim.on(0, |cpu| cpu.load(range.start)),
            Err(FaultError::Unmapped)
        );
        check_empty(&sim);
    }
}

#[test]
fn unmapping_a_part_of_a_huge_page_frees_that_part_at_once() {
    let sim = stepped(2, 1, 16, ThpMode::Always);
    let range = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
    sim.on(0, |cpu| cpu.store(range.start, 5).unwrap());
    sim.on(1, |cpu| cpu.load(range.start).unwrap());
    let mm = sim.mm();
    assert_eq!(mm.lookup(range.start).unwrap().size, PageSize::Huge);
    assert_eq!(mm.mapped_frames(), 512);

    sim.on(0, |cpu| cpu.mm().unmap(part(range, 100, 300)).unwrap());
    assert_eq!(mm.mapped_frames(), 212);
    assert_eq!(counter(&sim, Counter::ThpSplitPmd), 1);
    assert_eq!(mm.lookup(range.start).unwrap().size, PageSize::Base);
    assert_eq!(sim.on(1, |cpu| cpu.load(range.start)), Ok(5));
    let gone = page(range.start, 100);
    assert_eq!(sim.on(1, |cpu| cpu.load(gone)), Err(FaultError::Unmapped));
    check(&sim);
    sim.on(0, |cpu| cpu.mm().unmap(range).unwrap());
    check_empty(&sim);
}

#[test]
fn a_guard_lies_below_its_mapping_and_goes_with_it() {
    let sim = stepped(1, 1, 16, ThpMode::Always);
    let request = MapRequest {
        guard_bytes: 2 * PAGE,
        huge: HugeAdvice::Never,
        ..MapRequest::new(64 * PAGE)
    };
    let first = sim.on(0, |cpu| cpu.mm().map(request).unwrap());
    let second = sim.on(0, |cpu| cpu.mm().map(request).unwrap());
    let load = |at: u64| sim.on(0, |cpu| cpu.load(VirtAddr(at)));
    for range in [first, second] {
        assert_eq!(load(range.start.0), Ok(0));
        assert_eq!(load(range.start.0 - 1), Err(FaultError::Guard));
        assert_eq!(
            load(range.start.0 - 2 * PAGE as u64),
            Err(FaultError::Guard)
        );
    }
    // Neither protecting nor populating makes memory of a guard.
    let with_guard = VirtRange::new(VirtAddr(second.start.0 - PAGE as u64), 2 * PAGE);
    sim.on(0, |cpu| {
        cpu.mm().protect(with_guard, Prot::READ_WRITE).unwrap();
        assert_eq!(cpu.mm().populate(with_guard), Err(FaultError::Guard));
    });
    // Unmapping the upper part leaves it, unmapping the lowest page takes it away; the neighbour's
    // stays.
    sim.on(0, |cpu| cpu.mm().unmap(part(first, 1, 63)).unwrap());
    assert_eq!(load(first.start.0 - 1), Err(FaultError::Guard));
    sim.on(0, |cpu| cpu.mm().unmap(part(first, 0, 1)).unwrap());
    assert_eq!(load(first.start.0 - 1), Err(FaultError::Unmapped));
    assert_eq!(load(second.start.0 - 1), Err(FaultError::Guard));
    sim.on(0, |cpu| cpu.mm().unmap(second).unwrap());
    check_empty(&sim);
}

#[test]
fn protections_are_enforced_and_keep_the_data() {
    for thp in [ThpMode::Never, ThpMode::Always] {
        let sim = stepped(2, 1, 16, thp);
        let range = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
        let at = page(range.start, 9);
        sim.on(1, |cpu| cpu.store(at, 3).unwrap());
        let exec = Prot {
            exec: true,
            ..Prot::NONE
        };
        let cases = [
            (Prot::READ, true, false, false),
            (Prot::NONE, false, false, false),
            (exec, true, false, true),
            (Prot::READ_WRITE, true, true, false),
        ];
        for (prot, read, write, execute) in cases {
            sim.on(0, |cpu| cpu.mm().protect(part(range, 8, 2), prot).unwrap());
            check(&sim);
            let outcome = |yes: bool| {
                if yes {
                    Ok(3)
                } else {
                    Err(FaultError::Protection)
                }
            };
            sim.on(1, |cpu| {
                assert_eq!(cpu.load(at), outcome(read), "{prot:?}");
                assert_eq!(cpu.store(at, 3), outcome(write), "{prot:?}");
                assert_eq!(cpu.execute(at), outcome(execute).map(drop), "{prot:?}");
                assert_eq!(cpu.store(range.start, 0), Ok(0));
            });
        }
        sim.on(0, |cpu| cpu.mm().unmap(range).unwrap());
        check_empty(&sim);
    }
}

#[test]
fn a_slot_that_is_uniform_again_can_have_a_huge_page() {
    let sim = stepped(1, 1, 16, ThpMode::Always);
    let range = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
    sim.on(0, |cpu| {
        cpu.mm().protect(part(range, 3, 1), Prot::NONE).unwrap();
        cpu.mm().protect(range, Prot::READ_WRITE).unwrap();
        assert_eq!(cpu.store(range.start, 1), Ok(0));
    });
    assert_eq!(sim.mm().lookup(range.start).unwrap().size, PageSize::Huge);
    check(&sim);
}

#[test]
fn wrong_ranges_are_refused() {
    let sim = stepped(1, 1, 4, ThpMode::Never);
    let range = sim.on(0, |cpu| cpu.map(4 * PAGE).unwrap());
    let arena_end = sim.mm().config().arena.end();
    let wrong = [
        VirtRange::new(range.start, 0),
        VirtRange::new(range.start, 5),
        VirtRange::new(VirtAddr(range.start.0 + 1), PAGE),
        VirtRange::new(VirtAddr(0), PAGE),
        VirtRange::new(VirtAddr(arena_end.0 - PAGE as u64), 2 * PAGE),
        VirtRange::new(range.start, usize::MAX - 4095),
    ];
    for range in wrong {
        sim.on(0, |cpu| {
            assert_eq!(cpu.mm().unmap(range), Err(MapError::InvalidArgument));
            let protected = cpu.mm().protect(range, Prot::READ);
            assert_eq!(protected, Err(MapError::InvalidArgument));
        });
    }
    let map = |request: MapRequest| sim.on(0, |cpu| cpu.mm().map(request));
    assert_eq!(map(MapRequest::new(0)), Err(MapError::InvalidArgument));
    let unaligned = MapRequest {
        align_bytes: 3 * PAGE,
        ..MapRequest::new(PAGE)
    };
    assert_eq!(map(unaligned), Err(MapError::InvalidArgument));
    assert_eq!(map(MapRequest::new(usize::MAX)), Err(MapError::OutOfMemory));
    let aligned = MapRequest {
        align_bytes: 1 << 63,
        ..MapRequest::new(PAGE)
    };
    assert_eq!(map(aligned), Err(MapError::OutOfMemory));
    // Never mapped at all is fine.
    let nothing = VirtRange::new(page(range.start, 1 << 20), HUGE);
    sim.on(0, |cpu| cpu.mm().unmap(nothing).unwrap());
    check(&sim);
}

#[test]
fn reserving_far_more_than_ram_costs_little_and_addresses_come_back() {
    let sim = stepped(2, 1, 4, ThpMode::Never);
    let none = |bytes| MapRequest {
        prot: Prot::NONE,
        ..MapRequest::new(bytes)
    };
    let map = |bytes| sim.on(0, |cpu| cpu.mm().map(none(bytes)));
    let mut ranges = Vec::new();
    // All of the arena, in pieces; more than once around.
    for round in 0..3 {
        while let Ok(range) = map((32 << 30) - (round * PAGE)) {
            ranges.push(range);
        }
        assert!((12..=16).contains(&ranges.len()), "{}", ranges.len());
        assert!(sim.mm().page_table_frames() < 200);
        // A hole in the middle is found again.
        let hole = ranges.swap_remove(5);
        sim.on(1, |cpu| cpu.mm().unmap(hole).unwrap());
        let again = map(hole.bytes).unwrap();
        assert_eq!(again, hole);
        ranges.push(again);
        for range in ranges.drain(..) {
            sim.on(1, |cpu| cpu.mm().unmap(range).unwrap());
        }
        check_empty(&sim);
    }
    assert_eq!(map(1 << 39), Err(MapError::OutOfMemory));
    check_empty(&sim);
}

#[test]
fn mapping_and_unmapping_in_turn_stays_in_place() {
    let sim = stepped(1, 1, 16, ThpMode::Never);
    sim.on(0, |cpu| {
        let first = cpu.map(9 * PAGE).unwrap();
        cpu.store(first.start, 1).unwrap();
        cpu.mm().unmap(first).unwrap();
        for _ in 0..100 {
            let next = cpu.map(9 * PAGE).unwrap();
            assert_eq!(next, first);
            assert_eq!(cpu.store(next.start, 1), Ok(0));
            cpu.mm().unmap(next).unwrap();
        }
    });
    check_empty(&sim);
}

#[test]
fn a_map_that_runs_out_of_memory_leaves_nothing_behind() {
    let sim = stepped(1, 1, 1, ThpMode::Never);
    // Fill all of RAM, then leave room for one page-table page at a time.
    let whole = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
    let mut filled = 0;
    while sim
        .on(0, |cpu| cpu.store(page(whole.start, filled), 1))
        .is_ok()
    {
        filled += 1;
    }
    for room in 0..6 {
        sim.on(0, |cpu| {
            cpu.mm().unmap(part(whole, 0, 2 * room + 1)).unwrap()
        });
        let before = (
            sim.mm().page_table_frames(),
            sim.mm().frames().allocated_frames(),
        );
        // The guard in a slot of its own, the rest needs tables on three levels.
        let request = MapRequest {
            align_bytes: 4 << 30,
            guard_bytes: PAGE,
            ..MapRequest::new(HUGE + PAGE)
        };
        let mapped = sim.on(0, |cpu| cpu.mm().map(request));
        match mapped {
            Ok(range) => sim.on(0, |cpu| cpu.mm().unmap(range).unwrap()),
            Err(error) => assert_eq!(error, MapError::OutOfMemory),
        }
        let after = (
            sim.mm().page_table_frames(),
            sim.mm().frames().allocated_frames(),
        );
        assert_eq!(before, after, "{mapped:?}");
        check(&sim);
    }
    sim.on(0, |cpu| cpu.mm().unmap(whole).unwrap());
    check_empty(&sim);
}

#[test]
fn a_machine_that_cannot_work_is_refused_with_a_sentence() {
    let refused = |node_bytes, arena| {
        let config = SimConfig::new(1, 1, node_bytes, ThpMode::Never);
        let ram = [RamRange {
            start: PhysAddr(RAM_START as u64),
            bytes: node_bytes as u64,
            node: NodeId::new(0),
        }];
        let topology = Topology::uniform(1, &[NodeId::new(0)]).unwrap();
        let machine = SimMachine::new(config);
        machine.table_word(ROOT, 3).store(1, Ordering::SeqCst);
        let mm_config = Config {
            thp: ThpMode::Never,
            debug_frames: None,
            numa: Policy::Local,
            arena,
            root: ROOT,
        };
        MemoryManager::new(machine, topology, &ram, mm_config).err()
    };
    let slots = |first: u64, count: usize| {
        let start = VirtAddr(first * ARENA_ALIGN_BYTES as u64);
        VirtRange::new(start, count * ARENA_ALIGN_BYTES)
    };
    assert_eq!(refused(MIN_RAM_BYTES, slots(1, 2)), None);
    let little = refused(MIN_RAM_BYTES - PAGE, slots(1, 2)).unwrap();
    assert_eq!(
        little.to_string(),
        "1020 KiB of usable memory are too little: at least 1024 KiB are needed"
    );
    let used = refused(MIN_RAM_BYTES, slots(1, 4)).unwrap();
    assert!(used.to_string().contains("already maps 0x18000000000"));
    for arena in [
        slots(0, 1),
        slots(1, 0),
        slots(200, 100),
        VirtRange::new(VirtAddr(HUGE as u64), ARENA_ALIGN_BYTES),
    ] {
        let error = refused(MIN_RAM_BYTES, arena);
        assert!(matches!(error, Some(InitError::Arena(_))), "{error:?}");
    }
}
