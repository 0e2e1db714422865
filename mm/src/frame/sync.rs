//! The atomics on which processors meet.
//!
//! With the feature `shuttle` they are those of a scheduler that switches threads before each
//! access, so that tests play interleavings that real threads hardly ever show. The other tests use
//! atomics that tell a simulated cache who touches which line.

#[cfg(feature = "shuttle")]
pub(super) use core::sync::atomic::AtomicU64 as Counter;
#[cfg(not(any(test, feature = "shuttle")))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU64 as Counter, Ordering};
#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(test, not(feature = "shuttle")))]
pub(super) use crate::sim::lines::{AtomicU32, AtomicU64, AtomicU64 as Counter};
#[cfg(all(test, not(feature = "shuttle")))]
pub(super) use core::sync::atomic::Ordering;
