//! Faults put in on purpose: the checks must find each of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::request::Prot;
use crate::tlb::{Gather, Step};

/// Everybody touches pages that processor 0 maps, unmaps and maps again.
fn churn(sim: &Sim) -> Result<(), String> {
    let shared = sim.on(0, |cpu| cpu.map(16 * HUGE).unwrap());
    sim.run(|cpu| {
        let random = Random::new(cpu.id().index() as u64);
        for round in 0..200 {
            let first = random.below(16 * 512);
            let _ = cpu.store(page(shared.start, first / 64 * 64), round);
            if cpu.id().index() == 0 {
                let _ = cpu.mm().unmap(part(shared, first / 512 * 512, 512));
            }
            let own = cpu.map(8 * PAGE).unwrap();
            for number in 0..8 {
                cpu.store(page(own.start, number), 1).unwrap();
            }
            cpu.mm().unmap(own).unwrap();
        }
    })?;
    sim.check_tlbs()?;
    sim.check_accounts()
}

fn interleaved(seed: u64, deaf_cpu: Option<CpuId>) -> Sim {
    Sim::new(SimConfig {
        schedule: Schedule::Interleaved(5),
        seed,
        deaf_cpu,
        ..SimConfig::new(3, 1, 32 << 20, ThpMode::Never)
    })
}

/// What the checks say about a program whose flushes go through these steps, in one of a few runs.
fn found_with(steps: &'static [Step]) -> Option<String> {
    (0..20).find_map(|seed| {
        let sim = interleaved(seed, None);
        sim.mm().tlb.mutation.set(steps).unwrap();
        churn(&sim).err()
    })
}

#[test]
fn the_right_order_passes() {
    let steps = &[Step::Shoot, Step::WaitForWalks, Step::Free];
    assert_eq!(found_with(steps), None);
}

#[test]
fn a_forgotten_shootdown_is_found() {
    let found = found_with(&[Step::WaitForWalks, Step::Free]).unwrap();
    assert!(found.contains("handed out again"), "{found}");
}

#[test]
fn freeing_before_the_flush_is_found() {
    let found = found_with(&[Step::Free, Step::Shoot, Step::WaitForWalks]).unwrap();
    assert!(found.contains("handed out again"), "{found}");
}

#[test]
fn freeing_a_table_that_is_being_walked_is_found() {
    let found = found_with(&[Step::Shoot, Step::Free]).unwrap();
    assert!(found.contains("walks through it"), "{found}");
}

#[test]
fn frames_that_are_not_freed_are_found() {
    let found = found_with(&[Step::Shoot, Step::WaitForWalks]);
    assert!(found.is_some());
}

#[test]
fn a_processor_that_does_not_flush_is_found() {
    let found = churn(&interleaved(1, Some(CpuId::new(2)))).unwrap_err();
    assert!(found.contains("handed out again"), "{found}");

    // Also a stepped machine notices: at once by comparing, and when the frame comes back.
    let sim = Sim::new(SimConfig {
        deaf_cpu: Some(CpuId::new(1)),
        ..SimConfig::new(2, 1, 4 << 20, ThpMode::Never)
    });
    let range = sim.on(0, |cpu| cpu.map(2 * PAGE).unwrap());
    sim.on(1, |cpu| cpu.store(range.start, 1).unwrap());
    sim.on(0, |cpu| cpu.mm().protect(range, Prot::READ).unwrap());
    assert!(sim.check_tlbs().unwrap_err().contains("is mapped as"));
    sim.on(0, |cpu| cpu.mm().unmap(range).unwrap());
    assert!(sim.check_tlbs().unwrap_err().contains("is not mapped"));
    let again = catch_unwind(AssertUnwindSafe(|| {
        sim.on(0, |cpu| {
            let all = cpu.map(3 << 20).unwrap();
            cpu.mm().populate(all)
        })
    }));
    let message = again.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("handed out again"), "{message}");
}

#[test]
#[cfg(debug_assertions)]
fn a_pending_flush_that_is_never_ended_panics() {
    let sim = stepped(2, 1, 4, ThpMode::Never);
    let range = sim.on(0, |cpu| cpu.map(PAGE).unwrap());
    sim.on(0, |_| core::mem::forget(Gather::new(sim.mm())));
    assert_eq!(sim.mm().pending_flushes(), 1);
    // Another processor has a count of its own.
    let other = sim.on(1, |cpu| cpu.map(PAGE).unwrap());
    sim.on(1, |cpu| cpu.mm().unmap(other).unwrap());
    let next = catch_unwind(AssertUnwindSafe(|| sim.on(0, |cpu| cpu.mm().unmap(range))));
    let message = next.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("do not balance"), "{message}");
}
