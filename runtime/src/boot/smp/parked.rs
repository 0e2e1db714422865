//! The start of processors that are in the kernel already: uhyve starts all at the entry at once,
//! with one and the same stack pointer. All but the first wait there, on the hypervisor's page
//! tables and without a stack, until [`RELEASE`] names them.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Start;
use crate::cpu::local::Local;

/// What a waiting processor starts with. Its address in the image is the same before and behind
/// the change of page tables.
#[repr(C)]
pub(crate) struct Release {
    cr0: AtomicU64,
    cr3: AtomicU64,
    cr4: AtomicU64,
    efer: AtomicU64,
    stack: AtomicU64,
    local: AtomicU64,
    entry: AtomicU64,
    /// The number with which the processor came that may go on; 0, the first one's, for none.
    cpu: AtomicU32,
}

impl Release {
    pub(crate) const CR0: usize = offset_of!(Self, cr0);
    pub(crate) const CR3: usize = offset_of!(Self, cr3);
    pub(crate) const CR4: usize = offset_of!(Self, cr4);
    pub(crate) const EFER: usize = offset_of!(Self, efer);
    pub(crate) const STACK: usize = offset_of!(Self, stack);
    pub(crate) const LOCAL: usize = offset_of!(Self, local);
    pub(crate) const ENTRY: usize = offset_of!(Self, entry);
    pub(crate) const CPU: usize = offset_of!(Self, cpu);
}

/// What the entry looks at.
pub(crate) static RELEASE: Release = Release {
    cr0: AtomicU64::new(0),
    cr3: AtomicU64::new(0),
    cr4: AtomicU64::new(0),
    efer: AtomicU64::new(0),
    stack: AtomicU64::new(0),
    local: AtomicU64::new(0),
    entry: AtomicU64::new(0),
    cpu: AtomicU32::new(0),
};

/// Lets `local`'s processor go on, on `stack`. The one before it must be online: it has read
/// everything. uhyve numbers processors by their APIC identifiers.
pub(super) fn release(start: &Start, local: &'static Local, stack: u64) {
    let address = core::ptr::from_ref(local).expose_provenance() as u64;
    for (field, value) in [
        (&RELEASE.cr0, start.cr0),
        (&RELEASE.cr3, start.cr3),
        (&RELEASE.cr4, start.cr4),
        (&RELEASE.efer, start.efer),
        (&RELEASE.stack, stack),
        (&RELEASE.local, address),
        (&RELEASE.entry, start.entry),
    ] {
        field.store(value, Ordering::Relaxed);
    }
    RELEASE.cpu.store(local.apic_id, Ordering::Release);
}
