//! The interrupt descriptor table and what each vector does.

use core::sync::atomic::Ordering;

use dolmen_mm::ids::VirtAddr;
use dolmen_mm::{Access, FaultError};
use x86_64::registers::control::Cr2;
use x86_64::structures::idt::{Entry, InterruptDescriptorTable};

use crate::cpu::vectors::{TrapFrame, early_stub_address, stub_address};
use crate::cpu::{apic, clock, gdt, local, machine_check};
use crate::fatal::{self, Fault};
use crate::sync::Once;
use crate::{mem, sched};

const VECTOR_NMI: u64 = 2;
const VECTOR_PAGE_FAULT: u64 = 14;
const VECTOR_MACHINE_CHECK: u64 = 18;
const FIRST_INTERRUPT: u64 = 32;
const INTERRUPT_FLAG: u64 = 1 << 9;

static TABLE: Once<InterruptDescriptorTable> = Once::new();
static EARLY_TABLE: Once<InterruptDescriptorTable> = Once::new();

/// Where an exception goes: to a stub, and to a stack if the processor has interrupt stacks.
struct Gates {
    stub: fn(u8) -> u64,
    stacks: bool,
}

impl Gates {
    /// Points `entry` to the stub of `vector`, which starts on interrupt stack `stack`.
    fn set<F>(&self, entry: &mut Entry<F>, vector: u8, stack: u16) {
        // SAFETY: the stub saves and restores every register or never comes back, and the stacks
        // are those of `gdt::Descriptors`.
        unsafe {
            let options = entry.set_handler_addr(x86_64::VirtAddr::new((self.stub)(vector)));
            if self.stacks {
                options.set_stack_index(stack);
            }
        }
    }

    /// A table with all exceptions.
    fn exceptions(&self) -> InterruptDescriptorTable {
        let mut idt = InterruptDescriptorTable::new();
        let other = gdt::IST_EXCEPTION;
        self.set(&mut idt.divide_error, 0, other);
        self.set(&mut idt.debug, 1, other);
        self.set(&mut idt.non_maskable_interrupt, 2, gdt::IST_NMI);
        self.set(&mut idt.breakpoint, 3, other);
        self.set(&mut idt.overflow, 4, other);
        self.set(&mut idt.bound_range_exceeded, 5, other);
        self.set(&mut idt.invalid_opcode, 6, other);
        self.set(&mut idt.device_not_available, 7, other);
        self.set(&mut idt.double_fault, 8, gdt::IST_DOUBLE_FAULT);
        self.set(&mut idt.invalid_tss, 10, other);
        self.set(&mut idt.segment_not_present, 11, other);
        self.set(&mut idt.stack_segment_fault, 12, other);
        self.set(&mut idt.general_protection_fault, 13, other);
        self.set(&mut idt.page_fault, 14, gdt::IST_PAGE_FAULT);
        self.set(&mut idt.x87_floating_point, 16, other);
        self.set(&mut idt.alignment_check, 17, other);
        self.set(&mut idt.machine_check, 18, gdt::IST_MACHINE_CHECK);
        self.set(&mut idt.simd_floating_point, 19, other);
        self.set(&mut idt.virtualization, 20, other);
        self.set(&mut idt.cp_protection_exception, 21, other);
        self.set(&mut idt.hv_injection_exception, 28, other);
        self.set(&mut idt.vmm_communication_exception, 29, other);
        self.set(&mut idt.security_exception, 30, other);
        idt
    }
}

/// Lets exceptions end the run with a sentence from here on, until [`load`]: the processor that
/// boots executes this first of all.
pub(crate) fn load_early() {
    let gates = Gates {
        stub: early_stub_address,
        stacks: false,
    };
    gdt::load_early();
    EARLY_TABLE.set(gates.exceptions());
    // SAFETY: the table is in a static and never changes once it is built.
    unsafe { EARLY_TABLE.get().expect("just set").load_unsafe() };
}

/// An exception came before the processor was set up.
pub(crate) extern "C" fn early(frame: &TrapFrame) -> ! {
    let address = (frame.vector == VECTOR_PAGE_FAULT).then(Cr2::read_raw);
    fatal::report_early(name(frame.vector), address, frame)
}

/// Builds the table. Every vector has a stub and an interrupt stack.
pub(crate) fn build() {
    let gates = Gates {
        stub: stub_address,
        stacks: true,
    };
    let mut idt = gates.exceptions();
    for vector in FIRST_INTERRUPT as u8..=u8::MAX {
        gates.set(&mut idt[vector], vector, gdt::IST_INTERRUPT);
    }
    TABLE.set(idt);
}

/// Loads the table on the executing processor.
pub(crate) fn load() {
    // SAFETY: the table is in a static and never changes once it is built.
    unsafe { TABLE.get().expect("built at boot").load_unsafe() };
}

/// Every interrupt and exception comes here, on its interrupt stack, with interrupts off.
pub(crate) extern "C" fn dispatch(frame: &mut TrapFrame) {
    match frame.vector {
        VECTOR_PAGE_FAULT => page_fault(frame),
        vector if vector < FIRST_INTERRUPT => fatal::report(exception(frame), frame),
        vector => interrupt(vector as u8),
    }
    if frame.rflags & INTERRUPT_FLAG != 0 && local::may_preempt() && local::take_reschedule() {
        sched::preempt(frame);
    }
}

fn interrupt(vector: u8) {
    match vector {
        apic::VECTOR_TIMER => {
            apic::end_of_interrupt();
            sched::on_timer();
        }
        apic::VECTOR_RESCHEDULE => {
            apic::end_of_interrupt();
            sched::on_kick();
        }
        apic::VECTOR_SHOOTDOWN => {
            // The interrupt is acknowledged first: a request that comes while this one is served
            // raises another interrupt and is not lost.
            apic::end_of_interrupt();
            mem::serve_shootdowns();
        }
        apic::VECTOR_STOP => {
            apic::end_of_interrupt();
            fatal::on_stop_request();
        }
        apic::VECTOR_SPURIOUS => {}
        _ => apic::end_of_interrupt(),
    }
}

fn page_fault(frame: &TrapFrame) {
    let address = Cr2::read_raw();
    if local::this().descriptors.on_page_fault_stack(frame.rsp) {
        fatal::report(Fault::Nested { address }, frame);
    }
    let access = if frame.error & 1 << 4 != 0 {
        Access::Execute
    } else if frame.error & 1 << 1 != 0 {
        Access::Write
    } else {
        Access::Read
    };
    let result = match mem::manager() {
        Some(manager) if mem::ARENA.contains(VirtAddr(address)) => {
            let preemption = local::PreemptionOff::new();
            let start = clock::ticks();
            // The interrupted code was interruptible, so this is: clearing a huge page would
            // otherwise hold up everybody who waits for this processor's acknowledgement.
            let interruptible = frame.rflags & INTERRUPT_FLAG != 0;
            if interruptible {
                x86_64::instructions::interrupts::enable();
            }
            let result = manager.fault(VirtAddr(address), access);
            x86_64::instructions::interrupts::disable();
            mem::charge(start);
            drop(preemption);
            result.map(|_| ())
        }
        _ => Err(FaultError::Unmapped),
    };
    if let Err(error) = result {
        fatal::report(
            Fault::Page {
                address,
                access,
                error,
            },
            frame,
        );
    }
}

fn exception(frame: &TrapFrame) -> Fault {
    match frame.vector {
        VECTOR_NMI => Fault::NonMaskable,
        VECTOR_MACHINE_CHECK => Fault::MachineCheck(machine_check::reported()),
        vector => Fault::Exception {
            name: name(vector),
            code: frame.error,
        },
    }
}

/// What the exception of `vector` is called.
fn name(vector: u64) -> &'static str {
    match vector {
        0 => "division by zero",
        1 => "debug exception",
        2 => "non-maskable interrupt",
        3 => "breakpoint",
        4 => "overflow",
        5 => "bound range exceeded",
        6 => "invalid instruction",
        7 => "no floating-point unit",
        8 => "double fault",
        10 => "invalid task state segment",
        11 => "segment not present",
        12 => "stack segment fault",
        13 => "general protection fault",
        14 => "page fault",
        16 => "x87 floating-point exception",
        17 => "misaligned access",
        18 => "machine check",
        19 => "SIMD floating-point exception",
        20 => "virtualization exception",
        21 => "control protection exception",
        _ => "unknown exception",
    }
}

/// Marks this processor as one that executes instructions and takes interrupts.
///
/// The order matters: whoever empties an entry and then still sees this processor offline does not
/// interrupt it, so nothing may be in the TLB that was walked before the mark was visible. Loading
/// CR3 is serialising: the mark is visible before the flush ends.
pub(crate) fn go_online() {
    local::this().online.store(true, Ordering::SeqCst);
    x86_64::instructions::tlb::flush_all();
    x86_64::instructions::interrupts::enable();
}
