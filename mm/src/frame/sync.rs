//! The atomics on which processors meet.
//!
//! With the feature `shuttle` they are those of a scheduler that switches threads before each
//! access, so that tests play interleavings that real threads hardly ever show. The other tests use
//! atomics that tell a simulated cache who touches which line.

#[cfg(not(feature = "shuttle"))]
pub(super) use core::hint::spin_loop as wait;
#[cfg(feature = "shuttle")]
pub(super) use core::sync::atomic::AtomicU64 as Counter;
#[cfg(not(any(test, feature = "shuttle")))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU64 as Counter, Ordering};
#[cfg(feature = "shuttle")]
pub(super) use shuttle::hint::spin_loop as wait;
#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(test, not(feature = "shuttle")))]
pub(super) use crate::sim::lines::{AtomicU32, AtomicU64, AtomicU64 as Counter};
#[cfg(all(test, not(feature = "shuttle")))]
pub(super) use core::sync::atomic::Ordering;

/// Keeps the compiler from moving a load up before a store. The processor is kept from it by whoever
/// makes it execute a barrier.
#[inline]
pub(super) fn order_for_fences() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}
