//! The local APIC: interprocessor interrupts and the one-shot timer, in xAPIC or x2APIC mode.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use x86_64::registers::model_specific::Msr;

use crate::cpu::features::Features;
use crate::cpu::{InterruptsOff, clock, local};
use crate::mem::direct;

/// Vector of the timer.
pub(crate) const VECTOR_TIMER: u8 = 0xe0;
/// Vector of the request to run the scheduler.
pub(crate) const VECTOR_RESCHEDULE: u8 = 0xe1;
/// Vector of a TLB shootdown.
pub(crate) const VECTOR_SHOOTDOWN: u8 = 0xe2;
/// Vector of the request to stop at the end of the run.
pub(crate) const VECTOR_STOP: u8 = 0xe3;
/// Vector of the APIC's spurious interrupts.
pub(crate) const VECTOR_SPURIOUS: u8 = 0xff;

const MSR_APIC_BASE: u32 = 0x1b;
const MSR_X2APIC_FIRST: u32 = 0x800;
const MSR_TSC_DEADLINE: u32 = 0x6e0;

const BASE_X2APIC: u64 = 1 << 10;
const BASE_ENABLE: u64 = 1 << 11;

/// Register numbers: the MMIO offset divided by 16.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Register {
    Id = 0x02,
    TaskPriority = 0x08,
    EndOfInterrupt = 0x0b,
    Spurious = 0x0f,
    CommandLow = 0x30,
    CommandHigh = 0x31,
    Timer = 0x32,
    LocalInterrupt1 = 0x36,
    TimerInitial = 0x38,
    TimerCurrent = 0x39,
    TimerDivide = 0x3e,
}

const SPURIOUS_ENABLE: u32 = 1 << 8;
const TIMER_MASKED: u32 = 1 << 16;
const TIMER_TSC_DEADLINE: u32 = 2 << 17;
const DIVIDE_BY_16: u32 = 0b0011;
const DELIVER_NMI: u32 = 0b100 << 8;
const DELIVERY_PENDING: u32 = 1 << 12;
const COMMAND_INIT: u32 = 0b101 << 8 | 1 << 14;
const COMMAND_STARTUP: u32 = 0b110 << 8 | 1 << 14;
const COMMAND_FIXED: u32 = 1 << 14;

static X2APIC: AtomicBool = AtomicBool::new(false);
static TSC_DEADLINE: AtomicBool = AtomicBool::new(false);
/// Direct-map address of the MMIO registers, in xAPIC mode.
static REGISTERS: AtomicU64 = AtomicU64::new(0);
/// Timer ticks per 2^16 ticks of the time stamp counter.
static TIMER_RATE: AtomicU32 = AtomicU32::new(0);

/// Enables the executing processor's local APIC.
pub(crate) fn enable(features: &Features) {
    let mut base = Msr::new(MSR_APIC_BASE);
    // SAFETY: every x86-64 processor has this MSR; the bits set only enable the APIC. In xAPIC
    // mode its registers are then mapped uncached before they are used.
    unsafe {
        let value = base.read() | BASE_ENABLE;
        if features.x2apic {
            base.write(value);
            base.write(value | BASE_X2APIC);
            X2APIC.store(true, Ordering::Relaxed);
        } else {
            base.write(value);
            let address = value & 0xf_ffff_ffff_f000;
            REGISTERS.store(direct::map_device(address, 4096), Ordering::Relaxed);
        }
    }
    TSC_DEADLINE.store(features.tsc_deadline, Ordering::Relaxed);
    write(Register::TaskPriority, 0);
    write(
        Register::Spurious,
        SPURIOUS_ENABLE | u32::from(VECTOR_SPURIOUS),
    );
    write(Register::TimerDivide, DIVIDE_BY_16);
    let mode = if features.tsc_deadline {
        TIMER_TSC_DEADLINE
    } else {
        0
    };
    write(Register::Timer, mode | u32::from(VECTOR_TIMER));
}

/// Lets the executing processor take the machine's non-maskable interrupts, which PCs wire to the
/// second local interrupt of every processor. One that takes them is enough.
pub(crate) fn accept_nmi() {
    write(Register::LocalInterrupt1, DELIVER_NMI);
}

fn read(register: Register) -> u32 {
    // SAFETY: the APIC is enabled in the mode that `X2APIC` says; reading its registers has no
    // side effect.
    unsafe {
        if X2APIC.load(Ordering::Relaxed) {
            Msr::new(MSR_X2APIC_FIRST + register as u32).read() as u32
        } else {
            mmio(register).read_volatile()
        }
    }
}

fn write(register: Register, value: u32) {
    // SAFETY: the callers write values that the register defines, in the mode that `X2APIC` says.
    unsafe {
        if X2APIC.load(Ordering::Relaxed) {
            Msr::new(MSR_X2APIC_FIRST + register as u32).write(u64::from(value));
        } else {
            mmio(register).write_volatile(value);
        }
    }
}

fn mmio(register: Register) -> *mut u32 {
    let address = REGISTERS.load(Ordering::Relaxed) + 16 * register as u64;
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// The executing processor's APIC identifier.
pub(crate) fn id() -> u32 {
    let id = read(Register::Id);
    if X2APIC.load(Ordering::Relaxed) {
        id
    } else {
        id >> 24
    }
}

/// Tells the APIC that the interrupt being handled is done.
pub(crate) fn end_of_interrupt() {
    write(Register::EndOfInterrupt, 0);
}

fn command(apic_id: u32, low: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        let value = u64::from(apic_id) << 32 | u64::from(low);
        // MSR writes to the x2APIC do not order earlier stores; the target must see them.
        core::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: the interrupt command register in x2APIC mode.
        unsafe { Msr::new(MSR_X2APIC_FIRST + Register::CommandLow as u32).write(value) };
        return;
    }
    // Two registers make one command: an interrupt handler that sends one must not come between.
    let _interrupts = InterruptsOff::new();
    while read(Register::CommandLow) & DELIVERY_PENDING != 0 {
        core::hint::spin_loop();
    }
    write(Register::CommandHigh, apic_id << 24);
    write(Register::CommandLow, low);
}

/// Interrupts the processor with this APIC identifier.
pub(crate) fn send(apic_id: u32, vector: u8) {
    command(apic_id, COMMAND_FIXED | u32::from(vector));
}

/// INIT: resets the processor and makes it wait for [`send_startup`].
pub(crate) fn send_init(apic_id: u32) {
    command(apic_id, COMMAND_INIT);
}

/// SIPI: starts the processor in real mode at the start of physical `page`, below 256.
pub(crate) fn send_startup(apic_id: u32, page: u8) {
    command(apic_id, COMMAND_STARTUP | u32::from(page));
}

/// Measures the timer against the time stamp counter, which must be calibrated.
pub(crate) fn calibrate_timer() {
    if TSC_DEADLINE.load(Ordering::Relaxed) {
        return;
    }
    write(Register::Timer, TIMER_MASKED | u32::from(VECTOR_TIMER));
    let wait = clock::ticks_from_nanos(5_000_000);
    let mut rate = 0;
    for _ in 0..3 {
        write(Register::TimerInitial, u32::MAX);
        let start = clock::ticks();
        while clock::ticks() - start < wait {
            core::hint::spin_loop();
        }
        let counted = u64::from(u32::MAX - read(Register::TimerCurrent));
        let elapsed = clock::ticks() - start;
        rate = rate.max((counted << 16) / elapsed);
    }
    write(Register::TimerInitial, 0);
    write(Register::Timer, u32::from(VECTOR_TIMER));
    TIMER_RATE.store(
        u32::try_from(rate.max(1)).unwrap_or(u32::MAX),
        Ordering::Relaxed,
    );
}

/// Lets the timer of the executing processor fire once, when the time stamp counter has reached
/// `deadline` or soon after. It may fire early: whoever waits looks at the clock.
pub(crate) fn arm_timer(deadline: u64) {
    if TSC_DEADLINE.load(Ordering::Relaxed) {
        // SAFETY: the processor has the MSR; zero would disarm, so the deadline is at least 1.
        unsafe { Msr::new(MSR_TSC_DEADLINE).write(deadline.max(1)) };
        return;
    }
    let left = deadline.saturating_sub(clock::ticks());
    let rate = u64::from(TIMER_RATE.load(Ordering::Relaxed));
    let count = (u128::from(left) * u128::from(rate)) >> 16;
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    write(Register::TimerInitial, count);
}

/// Stops the timer of the executing processor.
pub(crate) fn disarm_timer() {
    if TSC_DEADLINE.load(Ordering::Relaxed) {
        // SAFETY: the processor has the MSR; zero disarms.
        unsafe { Msr::new(MSR_TSC_DEADLINE).write(0) };
    } else {
        write(Register::TimerInitial, 0);
    }
}

/// Asks `cpu` to run its scheduler.
pub(crate) fn kick(cpu: dolmen_mm::CpuId) {
    if let Some(target) = local::of(cpu) {
        send(target.apic_id, VECTOR_RESCHEDULE);
    }
}
