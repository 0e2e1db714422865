//! Vector state: sized by CPUID, saved whole when a thread is preempted.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::arch::asm;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use raw_cpuid::CpuId;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};

use crate::cpu::features::Features;

/// x87 control word of a new thread: all exceptions masked, round to nearest, 64-bit mantissa.
const INITIAL_X87_CONTROL: u16 = 0x037f;
/// MXCSR of a new thread: all exceptions masked, round to nearest.
const INITIAL_MXCSR: u32 = 0x1f80;

/// Bytes of the area that FXSAVE writes.
const FXSAVE_BYTES: usize = 512;

/// Bytes of a save area on this machine.
static AREA_BYTES: AtomicUsize = AtomicUsize::new(FXSAVE_BYTES);
static USE_XSAVE: AtomicBool = AtomicBool::new(false);

/// Enables every vector extension of this processor that XCR0 can enable.
pub(crate) fn enable(features: &Features) {
    // SAFETY: these bits turn the FPU and SSE on, which the application's ABI presumes; the
    // kernel itself uses neither.
    unsafe {
        Cr0::update(|cr0| {
            cr0.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
            cr0.insert(Cr0Flags::MONITOR_COPROCESSOR | Cr0Flags::NUMERIC_ERROR);
        });
        Cr4::update(|cr4| {
            cr4.insert(Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE);
            cr4.set(Cr4Flags::OSXSAVE, features.xsave);
        });
    }
    if features.xsave {
        let supported = core::arch::x86_64::__cpuid_count(0xd, 0);
        let mask = u64::from(supported.edx) << 32 | u64::from(supported.eax);
        // SAFETY: the mask holds exactly the states that CPUID leaf 0xD says XCR0 may enable.
        unsafe {
            asm!("xsetbv", in("ecx") 0, in("eax") mask as u32, in("edx") (mask >> 32) as u32,
                options(nomem, nostack, preserves_flags));
        }
        if let Some(leaf) = CpuId::new().get_extended_state_info() {
            AREA_BYTES.store(
                leaf.xsave_area_size_enabled_features() as usize,
                Ordering::Relaxed,
            );
        }
        USE_XSAVE.store(true, Ordering::Relaxed);
    }
    // SAFETY: puts the x87 unit into its power-up state.
    unsafe { asm!("fninit", options(nomem, nostack, preserves_flags)) };
}

/// Memory for the vector state of one preempted thread.
pub(crate) struct SaveArea {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the area is plain memory, written only by the processor that preempts its owner.
unsafe impl Send for SaveArea {}
// SAFETY: as above; `save` and `load` run on the owner's processor with interrupts off.
unsafe impl Sync for SaveArea {}

impl SaveArea {
    /// A zeroed area, or `None` when the kernel's heap is out of memory.
    pub(crate) fn new() -> Option<Self> {
        let bytes = AREA_BYTES.load(Ordering::Relaxed);
        let layout = Layout::from_size_align(bytes, 64).ok()?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { memory, layout })
    }

    /// Makes it the state of a processor after power-up: [`SaveArea::load`] then gives a thread
    /// empty registers, with all floating-point exceptions masked.
    pub(crate) fn reset(&self) {
        let area = self.memory.as_ptr();
        // SAFETY: the legacy region is the first 512 bytes of every area; the x87 control word is
        // its first word, MXCSR lies at offset 24. The rest of the area is zero, which XRSTOR
        // reads as "initial state".
        unsafe {
            area.cast::<u16>().write(INITIAL_X87_CONTROL);
            area.add(24).cast::<u32>().write(INITIAL_MXCSR);
        }
    }

    /// Saves the processor's vector state.
    pub(crate) fn save(&self) {
        let area = self.memory.as_ptr();
        // SAFETY: the area has the size that CPUID gave for the enabled states, and alignment 64.
        unsafe {
            if USE_XSAVE.load(Ordering::Relaxed) {
                asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX,
                    options(nostack, preserves_flags));
            } else {
                asm!("fxsave64 [{}]", in(reg) area, options(nostack, preserves_flags));
            }
        }
    }

    /// Loads what [`SaveArea::save`] saved.
    pub(crate) fn load(&self) {
        let area = self.memory.as_ptr();
        // SAFETY: `save` filled the area: a thread is continued this way only after it was
        // preempted.
        unsafe {
            if USE_XSAVE.load(Ordering::Relaxed) {
                asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX,
                    options(nostack, preserves_flags));
            } else {
                asm!("fxrstor64 [{}]", in(reg) area, options(nostack, preserves_flags));
            }
        }
    }
}

impl Drop for SaveArea {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}
