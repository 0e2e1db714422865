//! The atomics on which processors meet.
//!
//! With the feature `shuttle` they are those of a scheduler that switches threads before each
//! access, so that tests play interleavings that real threads hardly ever show.

#[cfg(not(feature = "shuttle"))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
