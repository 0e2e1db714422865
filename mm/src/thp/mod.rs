//! Transparent huge pages: modes, advice, and the choice of a fault's page size.
//!
//! Policy only: nothing here allocates or maps. The mode belongs to the whole application, the
//! advice to a range; the address space asks [`ThpMode::size_for`] when the first fault arrives in
//! an empty 2 MiB slot whose pages all have the same state.

#![forbid(unsafe_code)]

use crate::ids::{HUGE_BYTES, PAGE_BYTES, PageSize};

/// When faults map huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ThpMode {
    /// Every fault maps 4 KiB.
    #[default]
    Never,
    /// A fault maps 2 MiB wherever the range allows it.
    Always,
}

/// What the application says about one range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum HugeAdvice {
    /// The mode decides.
    #[default]
    Default,
    /// No huge pages here, whatever the mode: stacks, sparse data.
    Never,
}

impl ThpMode {
    /// The page size to try first in an empty slot with this advice.
    pub const fn size_for(self, advice: HugeAdvice) -> PageSize {
        match (self, advice) {
            (Self::Always, HugeAdvice::Default) => PageSize::Huge,
            _ => PageSize::Base,
        }
    }

    /// The alignment, in bytes, for a new mapping of `bytes` bytes, so that it can have huge pages
    /// where it may. Smaller mappings are packed: aligned, each would cost a page-table page.
    pub const fn alignment_for(self, advice: HugeAdvice, bytes: usize) -> usize {
        match self.size_for(advice) {
            PageSize::Huge if bytes >= HUGE_BYTES => HUGE_BYTES,
            _ => PAGE_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_and_advice_choose_the_size() {
        let size = |mode: ThpMode, advice| mode.size_for(advice);
        assert_eq!(size(ThpMode::Always, HugeAdvice::Default), PageSize::Huge);
        assert_eq!(size(ThpMode::Always, HugeAdvice::Never), PageSize::Base);
        assert_eq!(size(ThpMode::Never, HugeAdvice::Default), PageSize::Base);
    }

    #[test]
    fn only_mappings_that_can_hold_a_huge_page_are_aligned_for_it() {
        let align = |bytes| ThpMode::Always.alignment_for(HugeAdvice::Default, bytes);
        assert_eq!(align(HUGE_BYTES - PAGE_BYTES), PAGE_BYTES);
        assert_eq!(align(HUGE_BYTES), HUGE_BYTES);
        assert_eq!(align(HUGE_BYTES + PAGE_BYTES), HUGE_BYTES);
        assert_eq!(
            ThpMode::Never.alignment_for(HugeAdvice::Default, 64 << 20),
            PAGE_BYTES
        );
        assert_eq!(
            ThpMode::Always.alignment_for(HugeAdvice::Never, 64 << 20),
            PAGE_BYTES
        );
    }
}
