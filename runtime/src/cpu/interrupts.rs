//! The interrupt descriptor table and what each vector does.

use core::sync::atomic::Ordering;

use dolmen_mm::ids::VirtAddr;
use dolmen_mm::{Access, FaultError};
use x86_64::registers::control::Cr2;
use x86_64::structures::idt::{Entry, InterruptDescriptorTable};

use crate::cpu::vectors::{TrapFrame, stub_address};
use crate::cpu::{apic, clock, gdt, local};
use crate::fatal::{self, Fault};
use crate::sync::Once;
use crate::{mem, sched};

const VECTOR_NMI: u64 = 2;
const VECTOR_PAGE_FAULT: u64 = 14;
const FIRST_INTERRUPT: u64 = 32;
const INTERRUPT_FLAG: u64 = 1 << 9;

static TABLE: Once<InterruptDescriptorTable> = Once::new();

/// Points `entry` to the stub of `vector`, which starts on interrupt stack `stack`.
fn set<F>(entry: &mut Entry<F>, vector: u8, stack: u16) {
    // SAFETY: the stub saves and restores every register, and the stacks are those of
    // `gdt::Descriptors`.
    unsafe {
        entry
            .set_handler_addr(x86_64::VirtAddr::new(stub_address(vector)))
            .set_stack_index(stack);
    }
}

/// Builds the table. Every vector has a stub and an interrupt stack.
pub(crate) fn build() {
    let mut idt = InterruptDescriptorTable::new();
    let other = gdt::IST_EXCEPTION;
    set(&mut idt.divide_error, 0, other);
    set(&mut idt.debug, 1, other);
    set(&mut idt.non_maskable_interrupt, 2, gdt::IST_NMI);
    set(&mut idt.breakpoint, 3, other);
    set(&mut idt.overflow, 4, other);
    set(&mut idt.bound_range_exceeded, 5, other);
    set(&mut idt.invalid_opcode, 6, other);
    set(&mut idt.device_not_available, 7, other);
    set(&mut idt.double_fault, 8, gdt::IST_DOUBLE_FAULT);
    set(&mut idt.invalid_tss, 10, other);
    set(&mut idt.segment_not_present, 11, other);
    set(&mut idt.stack_segment_fault, 12, other);
    set(&mut idt.general_protection_fault, 13, other);
    set(&mut idt.page_fault, 14, gdt::IST_PAGE_FAULT);
    set(&mut idt.x87_floating_point, 16, other);
    set(&mut idt.alignment_check, 17, other);
    set(&mut idt.machine_check, 18, gdt::IST_DOUBLE_FAULT);
    set(&mut idt.simd_floating_point, 19, other);
    set(&mut idt.virtualization, 20, other);
    set(&mut idt.cp_protection_exception, 21, other);
    set(&mut idt.hv_injection_exception, 28, other);
    set(&mut idt.vmm_communication_exception, 29, other);
    set(&mut idt.security_exception, 30, other);
    for vector in FIRST_INTERRUPT as u8..=u8::MAX {
        set(&mut idt[vector], vector, gdt::IST_INTERRUPT);
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
        VECTOR_NMI => {}
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
    Fault::Exception {
        name: match frame.vector {
            0 => "division by zero",
            1 => "debug exception",
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
            16 => "x87 floating-point exception",
            17 => "misaligned access",
            18 => "machine check",
            19 => "SIMD floating-point exception",
            20 => "virtualization exception",
            21 => "control protection exception",
            _ => "unknown exception",
        },
        code: frame.error,
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
