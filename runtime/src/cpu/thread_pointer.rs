//! The FS base, which is the application's thread pointer.

use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::VirtAddr;
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::model_specific::FsBase;
use x86_64::registers::segmentation::{FS, Segment64};

use crate::cpu::features::Features;

static INSTRUCTIONS: AtomicBool = AtomicBool::new(false);

/// Lets the executing processor use `wrfsbase` if it has it: an MSR write costs ten times as much
/// at every switch of threads.
pub(crate) fn enable(features: &Features) {
    if features.fsgsbase {
        // SAFETY: CPUID says that the processor has the instructions; all code is at ring 0 anyway.
        unsafe { Cr4::update(|cr4| cr4.insert(Cr4Flags::FSGSBASE)) };
        INSTRUCTIONS.store(true, Ordering::Relaxed);
    }
}

/// Loads the thread pointer.
pub(crate) fn set(pointer: u64) {
    let pointer = VirtAddr::new(pointer);
    if INSTRUCTIONS.load(Ordering::Relaxed) {
        // SAFETY: the instructions are enabled, and the FS base is the application's: it points to
        // the thread-local storage that the kernel made for the thread.
        unsafe { FS::write_base(pointer) };
    } else {
        FsBase::write(pointer);
    }
}
