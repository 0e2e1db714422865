//! Per-CPU data, reached through the GS base.
//!
//! The application owns FS (its thread-local storage); GS is the kernel's for ever, so the data of
//! a processor is one memory operand away in every context, interrupts included.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use alloc::boxed::Box;

use dolmen_mm::ids::{CpuId, MAX_CPUS, NodeId};

use crate::cpu::gdt::Descriptors;
use crate::sched::Scheduler;

/// Bytes in the stack on which a processor executes the memory manager.
pub(crate) const KERNEL_STACK_BYTES: usize = 64 << 10;

/// What belongs to one processor. Aligned to a pair of cache lines, so that no two processors
/// share one.
#[repr(C, align(128))]
pub(crate) struct Local {
    /// Its own address, for `mov reg, gs:[0]`.
    this: *const Local,
    /// Depth of nested [`PreemptionOff`] guards; changed by this processor alone.
    preemption_off: UnsafeCell<u32>,
    /// Set when the scheduler should run at the next chance.
    reschedule: AtomicBool,
    /// Whether the memory manager runs on this processor's kernel stack now.
    pub(crate) on_kernel_stack: AtomicBool,
    /// The processor's number.
    pub(crate) cpu: CpuId,
    /// The processor's node.
    pub(crate) node: NodeId,
    /// The processor's APIC identifier.
    pub(crate) apic_id: u32,
    /// High end of the stack for the memory manager.
    pub(crate) kernel_stack_top: u64,
    /// GDT, TSS and interrupt stacks.
    pub(crate) descriptors: Descriptors,
    /// Run queue and timers.
    pub(crate) scheduler: Scheduler,
    /// Clock ticks spent in page faults and memory manager calls.
    pub(crate) memory_ticks: AtomicU64,
    /// Clock ticks spent halted since the application started.
    pub(crate) idle_ticks: AtomicU64,
    /// When the processor halted, if it is halted now; else 0.
    pub(crate) idle_since: AtomicU64,
    /// Set when this processor executes instructions and takes interrupts.
    pub(crate) online: AtomicBool,
    /// Set when this processor has stopped for the end of the run.
    pub(crate) stopped: AtomicBool,
}

// SAFETY: the fields that are not atomic are either constant once the processor runs
// (`this`, `cpu`, `node`, `apic_id`, `kernel_stack_top`, `descriptors`) or are touched by the
// processor itself alone (`preemption_off`).
unsafe impl Sync for Local {}

/// All processors' data, by [`CpuId`].
static LOCALS: [AtomicPtr<Local>; MAX_CPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];

/// How many processors there are, online or not yet.
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Local {
    /// Makes the data of processor `cpu` and publishes it under its number.
    pub(crate) fn publish(cpu: CpuId, node: NodeId, apic_id: u32) -> &'static Self {
        let local = Box::leak(Box::new(Self {
            this: core::ptr::null(),
            preemption_off: UnsafeCell::new(0),
            reschedule: AtomicBool::new(false),
            on_kernel_stack: AtomicBool::new(false),
            cpu,
            node,
            apic_id,
            kernel_stack_top: stack(KERNEL_STACK_BYTES),
            descriptors: Descriptors::new(),
            scheduler: Scheduler::new(),
            memory_ticks: AtomicU64::new(0),
            idle_ticks: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            online: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }));
        local.this = local;
        LOCALS[cpu.index()].store(local, Ordering::Release);
        COUNT.fetch_max(u32::from(cpu.get()) + 1, Ordering::AcqRel);
        local
    }

    /// Makes this the data of the executing processor.
    pub(crate) fn install(&'static self) {
        x86_64::registers::model_specific::GsBase::write(x86_64::VirtAddr::from_ptr(self));
    }
}

/// A new stack in kernel memory: its high end, aligned to 16 bytes.
pub(crate) fn stack(bytes: usize) -> u64 {
    let words: Box<[u128]> = core::iter::repeat_n(0, bytes / 16).collect();
    Box::leak(words).as_ptr_range().end.addr() as u64
}

/// The executing processor's data.
pub(crate) fn this() -> &'static Local {
    let local: *const Local;
    // SAFETY: the GS base points to this processor's `Local` from before interrupts or threads
    // exist, and its first word is its own address.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) local, options(pure, readonly, nostack, preserves_flags));
        &*local
    }
}

/// Whether [`this`] may be called on the executing processor: false in the first steps of its boot.
pub(crate) fn is_installed() -> bool {
    let base = x86_64::registers::model_specific::GsBase::read();
    all().any(|local| x86_64::VirtAddr::from_ptr(local) == base)
}

/// The data of processor `cpu`, if there is such a processor.
pub(crate) fn of(cpu: CpuId) -> Option<&'static Local> {
    let local = LOCALS.get(cpu.index())?.load(Ordering::Acquire);
    // SAFETY: a pointer in the table comes from `publish`, which leaks it.
    unsafe { local.as_ref() }
}

/// All processors' data.
pub(crate) fn all() -> impl Iterator<Item = &'static Local> {
    (0..count()).filter_map(|cpu| of(CpuId::new(cpu as u16)))
}

/// How many processors there are.
pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Acquire) as usize
}

/// While it lives the thread stays on its processor and no other thread runs there.
pub(crate) struct PreemptionOff(());

impl PreemptionOff {
    /// Turns preemption off on this processor.
    pub(crate) fn new() -> Self {
        // SAFETY: one instruction on this processor's own counter.
        unsafe {
            asm!(
                "inc dword ptr gs:[{offset}]",
                offset = const offset_of!(Local, preemption_off),
                options(nostack),
            );
        }
        Self(())
    }
}

impl Drop for PreemptionOff {
    fn drop(&mut self) {
        // SAFETY: as in `new`, which this balances.
        unsafe {
            asm!(
                "dec dword ptr gs:[{offset}]",
                offset = const offset_of!(Local, preemption_off),
                options(nostack),
            );
        }
        if may_preempt() && this().reschedule.load(Ordering::Relaxed) && interrupts_on() {
            crate::sched::yield_now();
        }
    }
}

fn interrupts_on() -> bool {
    x86_64::instructions::interrupts::are_enabled()
}

/// Whether no [`PreemptionOff`] guard lives on this processor.
pub(crate) fn may_preempt() -> bool {
    // SAFETY: the counter is this processor's own; an interrupt between load and use restores it.
    unsafe { *this().preemption_off.get() == 0 }
}

/// Asks for a run of this processor's scheduler at the next chance.
pub(crate) fn request_reschedule() {
    this().reschedule.store(true, Ordering::Relaxed);
}

/// Takes the request back; returns whether there was one.
pub(crate) fn take_reschedule() -> bool {
    let local = this();
    let requested = local.reschedule.load(Ordering::Relaxed);
    if requested {
        local.reschedule.store(false, Ordering::Relaxed);
    }
    requested
}
