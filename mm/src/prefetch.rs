//! Fetching lines before they are written.

/// Asks for the line at `target` in a state in which it can be written. So the lines of a batch come
/// over at the same time, and atomic operations, each of which waits for its line, find them there.
#[inline]
pub(crate) fn prefetch_for_write<T>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint about an address that the reference proves to be there. Processors that do not
    // know the instruction take it for a no-op.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) core::ptr::from_ref(target),
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}
