//! The start of the other processors.

pub(crate) mod parked;
mod trampoline;

use core::sync::atomic::Ordering;

use x86_64::registers::control::{Cr0, Cr4, Efer};

use crate::cpu::features::Features;
use crate::cpu::local::{self, Local};
use crate::cpu::{apic, clock, fpu, interrupts, machine_check, thread_pointer};
use crate::mem::direct;
use crate::{console, sched};

use trampoline::Trampoline;

/// Bytes of the stack on which a processor starts and later idles.
const STACK_BYTES: usize = 32 << 10;
/// How long a processor has to come up, in nanoseconds.
const PATIENCE_NANOS: u64 = 10_000_000_000;

/// Where the other processors are when this one has set the machine up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// In reset, waiting for start-up interrupts.
    InReset,
    /// In the kernel's entry: the hypervisor started all processors at once.
    Parked,
}

/// What every processor starts with: this one's control registers, and where to go.
struct Start {
    cr0: u64,
    cr3: u64,
    cr4: u64,
    efer: u64,
    entry: u64,
}

/// Starts all processors that have been published and are not online. One that does not come up
/// within ten seconds ends the run: its threads would never run.
pub(super) fn start_all(others: Others) {
    if local::count() == 1 {
        return;
    }
    let start = Start {
        cr0: Cr0::read_raw(),
        cr3: direct::root(),
        cr4: Cr4::read_raw(),
        efer: Efer::read_raw(),
        entry: start_here as *const () as u64,
    };
    let trampoline = (others == Others::InReset).then(|| Trampoline::new(&start));
    for local in local::all().filter(|local| !local.online.load(Ordering::Relaxed)) {
        let stack = local::stack(STACK_BYTES);
        match &trampoline {
            Some(trampoline) => trampoline.launch(local, stack),
            None => parked::release(&start, local, stack),
        }
        wait_for(local);
    }
}

fn wait_for(local: &Local) {
    let begin = clock::ticks();
    let patience = clock::ticks_from_nanos(PATIENCE_NANOS);
    while !local.online.load(Ordering::Acquire) {
        if clock::ticks() - begin > patience {
            crate::fatal::refuse(format_args!(
                "CPU {} (APIC {}) does not start",
                local.cpu.get(),
                local.apic_id
            ));
        }
        core::hint::spin_loop();
    }
}

/// The first function of every other processor, on the page tables and the stack that it keeps.
extern "C" fn start_here(local: &'static Local) -> ! {
    let features = Features::detect();
    super::load_descriptors(local);
    machine_check::enable(&features);
    fpu::enable(&features);
    thread_pointer::enable(&features);
    apic::enable(&features);
    if apic::id() != local.apic_id {
        console::line(format_args!(
            "CPU {} answers as APIC {}, not {}",
            local.cpu.get(),
            apic::id(),
            local.apic_id
        ));
    }
    sched::become_idle_context();
    interrupts::go_online();
    sched::idle_loop()
}
