//! A lock whose waiters sleep, for what may take long.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use super::futex;

const OPEN: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may wait for it.
const CONTENDED: u32 = 2;

/// A lock for threads. Whoever holds it may block, fault and be preempted. The boot, which is no
/// thread, may take it while it is open.
pub(crate) struct Mutex<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An open lock around `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(OPEN),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock and takes it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let taken = self
            .state
            .compare_exchange(OPEN, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            // Who has waited does not know whether others still do.
            while self.state.swap(CONTENDED, Ordering::Acquire) != OPEN {
                futex::wait(self.address(), CONTENDED, None);
            }
        }
        MutexGuard { lock: self }
    }

    fn address(&self) -> u64 {
        self.state.as_ptr().expose_provenance() as u64
    }
}

/// The right to use what a [`Mutex`] protects.
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so its owner holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.lock.state.swap(OPEN, Ordering::Release) == CONTENDED {
            futex::wake(self.lock.address(), 1);
        }
    }
}
