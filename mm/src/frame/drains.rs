//! Who may take frames out of a processor's caches.
//!
//! Memory is hardly ever low, so the owner's ordinary accesses should cost nothing that only helps
//! others to take what it keeps. It uses its caches with plain loads and stores, and all the price is
//! paid by who *drains* them: an asymmetric barrier, as in Dice, Huang and Yang, "Asymmetric Dekker
//! Synchronization" (2001), and in C++'s proposal P1202.
//!
//! * The owner says that it is *busy* in its own line, then looks whether a drain is under way. If
//!   none is, it is [alone](Taking::Alone); otherwise everybody takes frames by exchanges. Between
//!   the two only the compiler is kept from changing the order.
//! * Who drains says so first, then makes every processor execute a barrier (an interrupt), and waits
//!   for those that are busy: they may not have seen it. That wait is a few instructions long, since
//!   a processor is busy for no longer. Whoever becomes busy afterwards sees the drain.
//!
//! A drain that has got so far leaves the state *prepared*, in which further drains need neither
//! barrier nor wait: memory that is low once tends to stay so. After [`CALM`] refills without a
//! drain the owners are alone again. Each change of the word is an atomic operation on it, so who
//! reads zero also sees what was drained before.

use super::cpu::Cpu;
use super::sync::{AtomicU64, Ordering, wait};

/// How frames are taken out of a cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// By its owner, while nobody drains it.
    Alone,
    /// By anybody.
    Shared,
}

/// Refills without a drain after which owners are alone again.
const CALM: u64 = if cfg!(feature = "shuttle") { 2 } else { 256 };

const DRAIN: u64 = 1;
const DRAINS: u64 = (1 << 16) - 1;
const PREPARED: u64 = 1 << 16;
const REFILL: u64 = 1 << 32;

/// The drains under way. Its line is only read unless memory is low.
#[repr(align(128))]
pub(super) struct Drains(AtomicU64);

impl Drains {
    /// None.
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// How the owner of a cache, which is busy, takes frames.
    #[inline]
    pub(super) fn taking(&self) -> Taking {
        match self.0.load(Ordering::Acquire) {
            0 => Taking::Alone,
            _ => Taking::Shared,
        }
    }

    /// Begins a drain: returns when every owner takes part in the exchanges, or is about to.
    /// `fence_others` returns after every other processor that may be busy has executed a full
    /// barrier.
    pub(super) fn begin(&self, me: &Cpu, owners: &[Cpu], fence_others: &dyn Fn()) -> Drain<'_> {
        let before = self.0.fetch_add(DRAIN, Ordering::SeqCst);
        let drain = Drain(self);
        if before & PREPARED == 0 {
            me.count(super::cpu::Event::Fenced);
            fence_others();
            for owner in owners {
                while owner.is_busy() {
                    wait();
                }
            }
            self.0.fetch_or(PREPARED, Ordering::SeqCst);
        }
        drain
    }

    /// Notes a refill that needed no drain.
    pub(super) fn refilled(&self) {
        if self.0.load(Ordering::Relaxed) & (PREPARED | DRAINS) == PREPARED {
            let before = self.0.fetch_add(REFILL, Ordering::SeqCst);
            let calm = PREPARED + (CALM - 1) * REFILL;
            if before >= calm && before & DRAINS == 0 {
                let now = before + REFILL;
                // Whoever drains now goes on as prepared, and this fails.
                let _ = self
                    .0
                    .compare_exchange(now, 0, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
    }
}

/// A drain under way.
pub(super) struct Drain<'a>(&'a Drains);

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        // The count of refills starts again.
        self.0.0.fetch_and(PREPARED | DRAINS, Ordering::SeqCst);
        self.0.0.fetch_sub(DRAIN, Ordering::SeqCst);
    }
}
