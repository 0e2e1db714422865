//! The kernel's lock.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::InterruptsOff;

/// A spin lock that turns interrupts off while it is held, for short critical sections that
/// interrupt handlers may share.
///
/// Whoever spins serves TLB shootdowns meanwhile: the processor that holds the lock may itself
/// wait, in a page fault, for nothing that this one holds up, but a third one may wait for this
/// one's acknowledgement.
pub(crate) struct SpinLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one processor at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An open lock around `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock and takes it.
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        let interrupts = InterruptsOff::new();
        while self
            .locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.locked.load(Ordering::Relaxed) {
                crate::mem::poll_shootdowns();
                core::hint::spin_loop();
            }
        }
        SpinGuard {
            lock: self,
            _interrupts: interrupts,
        }
    }

    /// Takes the lock if it is open within some thousand tries: for reports of a dying kernel,
    /// which must not hang on a lock that the dying processor holds itself.
    pub(crate) fn lock_for_report(&self) -> Option<SpinGuard<'_, T>> {
        let interrupts = InterruptsOff::new();
        for _ in 0..1_000_000 {
            if self
                .locked
                .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return Some(SpinGuard {
                    lock: self,
                    _interrupts: interrupts,
                });
            }
            core::hint::spin_loop();
        }
        None
    }
}

/// The right to use what a [`SpinLock`] protects.
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    // Dropped behind `Drop::drop`, so interrupts come back when the lock is open again.
    _interrupts: InterruptsOff,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this processor holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.locked.store(false, Ordering::Release);
    }
}

/// A value that is set once, during set-up, and read from then on.
pub(crate) struct Once<T> {
    ready: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, by `set`, before `ready` is released; afterwards it is only
// shared.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Not yet set.
    pub(crate) const fn new() -> Self {
        Self {
            ready: AtomicBool::new(false),
            value: UnsafeCell::new(None),
        }
    }

    /// Sets the value. Only the boot processor does, while it is alone.
    pub(crate) fn set(&self, value: T) -> &T {
        assert!(
            !self.ready.load(Ordering::Relaxed),
            "a value of the set-up is set twice"
        );
        // SAFETY: no reader uses the value before `ready`, and the only writer is the boot
        // processor, which comes here once.
        unsafe { *self.value.get() = Some(value) };
        self.ready.store(true, Ordering::Release);
        self.get().expect("just set")
    }

    /// The value, if it is set.
    pub(crate) fn get(&self) -> Option<&T> {
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `ready` was released behind the only write.
        unsafe { (*self.value.get()).as_ref() }
    }
}
