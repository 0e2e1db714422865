//! Programs that run at the same time: deterministic interleavings and real threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use super::*;
use crate::error::{FaultError, MapError};
use crate::request::{Access, Prot};
use crate::stats::LockClass;

const SHARED_PAGES: usize = 1200;

fn machine(seed: u64, schedule: Schedule, thp: ThpMode, node_mib: usize) -> Sim {
    let (cpus, nodes) = [(2, 1), (3, 2), (4, 2), (8, 4)][seed as usize % 4];
    Sim::new(SimConfig {
        schedule,
        seed,
        ..SimConfig::new(cpus, nodes, node_mib << 20, thp)
    })
}

/// Memory that only one processor knows of, with all its values.
struct Private {
    range: VirtRange,
    values: Vec<u64>,
}

/// Maps, touches and unmaps memory of its own, and compares.
fn private_step(cpu: &SimCpu, random: &Random, mine: &mut Vec<Private>) {
    if mine.is_empty() || (mine.len() < 6 && random.one_in(16)) {
        let pages = [1 + random.below(40), 1 + random.below(1100)][random.below(2)];
        match cpu.map(pages * PAGE) {
            Ok(range) => mine.push(Private {
                range,
                values: vec![0; pages],
            }),
            Err(error) => assert_eq!(error, MapError::OutOfMemory),
        }
        return;
    }
    let which = random.below(mine.len());
    let Private { range, values } = &mut mine[which];
    let first = random.below(values.len());
    let at = page(range.start, first);
    match random.below(12) {
        0 => {
            let pages = 1 + random.below(values.len() - first);
            match cpu.mm().unmap(part(*range, first, pages)) {
                Ok(()) => {
                    // What is left on either side; the addresses between may come back any time.
                    let behind = Private {
                        range: part(*range, first + pages, values.len() - first - pages),
                        values: values.split_off(first + pages),
                    };
                    values.truncate(first);
                    *range = part(*range, 0, first);
                    mine.push(behind);
                    mine.retain(|mine| !mine.values.is_empty());
                }
                Err(error) => assert_eq!(error, MapError::OutOfMemory),
            }
        }
        1 => match cpu.mm().unmap(*range) {
            Ok(()) => {
                mine.swap_remove(which);
            }
            Err(error) => assert_eq!(error, MapError::OutOfMemory),
        },
        2 => {
            let read_only = part(*range, first, 1);
            let sealed = cpu.mm().protect(read_only, Prot::READ);
            if sealed.is_ok() {
                let stored = cpu.store(at, 1);
                assert!(
                    matches!(
                        stored,
                        Err(FaultError::Protection | FaultError::OutOfMemory)
                    ),
                    "{stored:?}"
                );
            }
            if sealed.is_ok() {
                let opened = cpu.mm().protect(read_only, Prot::READ_WRITE);
                assert_eq!(opened, Ok(()));
            }
        }
        _ => {
            let value = random.next() / 2;
            let got = cpu.store(at, value);
            match got {
                Ok(was) => {
                    assert_eq!(was, values[first], "{at:?}");
                    values[first] = value;
                }
                Err(error) => assert_eq!(error, FaultError::OutOfMemory, "{at:?}"),
            }
        }
    }
}

/// Everybody touches, unmaps and protects the same memory. A page holds 0 or what was written to
/// this very page.
fn shared_step(cpu: &SimCpu, random: &Random, shared: VirtRange) {
    let first = random.below(SHARED_PAGES);
    let at = page(shared.start, first);
    let pages = 1 + random.below((SHARED_PAGES - first).min(40));
    let known = |value: u64| assert!(value == 0 || value >> 16 == first as u64 + 1, "{value:#x}");
    match random.below(24) {
        0 => cpu.mm().unmap(part(shared, first, pages)).unwrap_or(()),
        1 => {
            let prot = [Prot::READ, Prot::NONE][random.below(2)];
            let _ = cpu.mm().protect(part(shared, first, pages), prot);
            let _ = cpu
                .mm()
                .protect(part(shared, first, pages), Prot::READ_WRITE);
        }
        2..12 => {
            let value = (first as u64 + 1) << 16 | random.below(1 << 16) as u64;
            cpu.store(at, value).map(known).unwrap_or(());
        }
        _ => cpu.load(at).map(known).unwrap_or(()),
    }
}

fn run(sim: &Sim, steps: usize) -> Result<(), String> {
    // The page behind keeps the addresses of what is unmapped from being handed out again.
    let shared = sim.on(0, |cpu| cpu.map(SHARED_PAGES * PAGE).unwrap());
    let keeper = sim.on(0, |cpu| cpu.map(PAGE).unwrap());
    let seed = sim.random();
    let seeds: Vec<u64> = (0..8).map(|_| seed.next()).collect();
    sim.run(|cpu| {
        let random = Random::new(seeds[cpu.id().index()]);
        let mut mine = Vec::new();
        for _ in 0..steps {
            if random.one_in(3) {
                shared_step(cpu, &random, shared);
            } else {
                private_step(cpu, &random, &mut mine);
            }
        }
        for Private { range, .. } in mine {
            cpu.mm().unmap(range).unwrap();
        }
    })?;
    sim.check_tlbs()?;
    sim.check_accounts()?;
    sim.on(0, |cpu| {
        cpu.mm().unmap(shared).unwrap();
        cpu.mm().unmap(keeper).unwrap();
    });
    check_empty(sim);
    Ok(())
}

#[test]
fn programs_survive_every_interleaving_tried() {
    for seed in 0..24 {
        let thp = [ThpMode::Never, ThpMode::Always][seed as usize / 4 % 2];
        let sim = machine(seed, Schedule::Interleaved(3 + seed % 20), thp, 32);
        run(&sim, 250).unwrap();
    }
}

#[test]
fn programs_survive_shortage_of_memory() {
    for seed in 0..12 {
        let thp = [ThpMode::Never, ThpMode::Always][seed as usize / 4 % 2];
        let sim = machine(seed, Schedule::Interleaved(9), thp, 1 + seed as usize % 3);
        run(&sim, 250).unwrap();
    }
}

#[test]
fn programs_run_on_real_threads() {
    for seed in 0..8 {
        let thp = [ThpMode::Never, ThpMode::Always][seed as usize / 4 % 2];
        let sim = machine(seed, Schedule::Free, thp, 64);
        run(&sim, 2000).unwrap();
    }
}

#[test]
fn an_interleaving_repeats_from_its_seed() {
    let counters = || {
        let sim = machine(6, Schedule::Interleaved(5), ThpMode::Always, 32);
        run(&sim, 100).unwrap();
        let snapshot = sim.mm().snapshot();
        let values: Vec<_> = snapshot.iter().collect();
        (values, sim.random().next())
    };
    assert_eq!(counters(), counters());
}

#[test]
fn nobody_writes_through_a_stale_entry_once_protect_has_returned() {
    for seed in 0..8 {
        let thp = [ThpMode::Never, ThpMode::Always][seed as usize % 2];
        let sim = machine(seed, Schedule::Interleaved(6), thp, 16);
        let range = sim.on(0, |cpu| cpu.map(HUGE).unwrap());
        // Odd while the page is sealed.
        let epoch = AtomicU64::new(0);
        let at = page(range.start, 77);
        sim.run(|cpu| {
            if cpu.id().index() == 0 {
                for _ in 0..100 {
                    cpu.mm().protect(range, Prot::READ).unwrap();
                    epoch.fetch_add(1, Ordering::SeqCst);
                    cpu.pause();
                    epoch.fetch_add(1, Ordering::SeqCst);
                    cpu.mm().protect(range, Prot::READ_WRITE).unwrap();
                    cpu.pause();
                }
                epoch.store(u64::MAX, Ordering::SeqCst);
                return;
            }
            let mut before = epoch.load(Ordering::SeqCst);
            while before != u64::MAX {
                let stored = cpu.store(at, 1);
                let after = epoch.load(Ordering::SeqCst);
                let sealed = before == after && before % 2 == 1;
                assert!(!sealed || stored == Err(FaultError::Protection));
                before = after;
            }
        })
        .unwrap();
        check(&sim);
    }
}

#[test]
fn one_of_many_faults_on_a_page_wins() {
    for (seed, thp) in [
        (3, ThpMode::Never),
        (3, ThpMode::Always),
        (7, ThpMode::Always),
    ] {
        let sim = machine(seed, Schedule::Interleaved(2), thp, 32);
        let range = sim.on(0, |cpu| cpu.map(8 * HUGE).unwrap());
        let wins = AtomicU64::new(0);
        sim.run(|cpu| {
            for slot in 0..8 {
                let at = VirtAddr(range.start.0 + (slot * HUGE) as u64);
                let outcome = cpu.mm().fault(at, Access::Write).unwrap();
                wins.fetch_add(u64::from(!outcome.spurious), Ordering::SeqCst);
            }
        })
        .unwrap();
        assert_eq!(wins.into_inner(), 8);
        assert_eq!(
            counter(&sim, Counter::PgFault) - counter(&sim, Counter::PgFaultSpurious),
            8
        );
        check(&sim);
    }
}

#[test]
fn disjoint_faults_and_mappings_never_wait_for_each_other() {
    let sim = machine(7, Schedule::Interleaved(3), ThpMode::Always, 64);
    let range = sim.on(0, |cpu| cpu.map(16 * HUGE).unwrap());
    let small = sim.on(0, |cpu| {
        let request = crate::request::MapRequest {
            align_bytes: HUGE,
            huge: crate::thp::HugeAdvice::Never,
            ..crate::request::MapRequest::new(8 * HUGE)
        };
        cpu.mm().map(request).unwrap()
    });
    sim.run(|cpu| {
        let slot = |range: VirtRange, slot: usize| VirtAddr(range.start.0 + (slot * HUGE) as u64);
        let me = cpu.id().index();
        cpu.store(slot(range, me), 1).unwrap();
        cpu.store(slot(range, 8 + me), 1).unwrap();
        for number in 0..64 {
            cpu.store(page(slot(small, me), number), 1).unwrap();
        }
        for _ in 0..4 {
            let own = cpu.map(64 * HUGE).unwrap();
            cpu.store(own.start, 1).unwrap();
            cpu.mm().unmap(own).unwrap();
        }
    })
    .unwrap();
    for class in [LockClass::PageTable, LockClass::Arena] {
        assert_eq!(counter(&sim, Counter::LockWait(class)), 0, "{class:?}");
    }
    check(&sim);
}
