//! What the processor can do, read once from CPUID.

use raw_cpuid::CpuId;

/// The features that the runtime chooses by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// 1 GiB pages.
    pub(crate) giant_pages: bool,
    /// `wrfsbase` and friends.
    pub(crate) fsgsbase: bool,
    /// XSAVE and XCR0.
    pub(crate) xsave: bool,
    /// The local APIC's MSR interface.
    pub(crate) x2apic: bool,
    /// One-shot timer compared with the time stamp counter.
    pub(crate) tsc_deadline: bool,
    /// RDRAND.
    pub(crate) rdrand: bool,
    /// RDSEED.
    pub(crate) rdseed: bool,
    /// Supervisor-mode execution prevention and friends are of no use in one address space, but
    /// the no-execute bit is.
    pub(crate) no_execute: bool,
    /// Global pages.
    pub(crate) global_pages: bool,
    /// Machine-check exceptions and the registers that tell about them.
    pub(crate) machine_check: bool,
    /// The first bank of those is controlled by firmware: Intel's family 6 before Nehalem.
    pub(crate) firmware_owns_bank_0: bool,
}

impl Features {
    /// Reads them from this processor.
    pub(crate) fn detect() -> Self {
        let cpuid = CpuId::new();
        let mut found = Self::default();
        if let Some(leaf) = cpuid.get_feature_info() {
            found.xsave = leaf.has_xsave();
            found.x2apic = leaf.has_x2apic();
            found.tsc_deadline = leaf.has_tsc_deadline();
            found.rdrand = leaf.has_rdrand();
            found.global_pages = leaf.has_pge();
            found.machine_check = leaf.has_mce() && leaf.has_mca();
            let intel = cpuid
                .get_vendor_info()
                .is_some_and(|vendor| vendor.as_str() == "GenuineIntel");
            found.firmware_owns_bank_0 = intel
                && leaf.family_id() == 6
                && (leaf.extended_model_id() << 4 | leaf.model_id()) < 0x1a;
        }
        if let Some(leaf) = cpuid.get_extended_feature_info() {
            found.fsgsbase = leaf.has_fsgsbase();
            found.rdseed = leaf.has_rdseed();
        }
        if let Some(leaf) = cpuid.get_extended_processor_and_feature_identifiers() {
            found.giant_pages = leaf.has_1gib_pages();
            found.no_execute = leaf.has_execute_disable();
        }
        found
    }
}
