//! Simulated coherence: which processor has which pair of cache lines.
//!
//! One thread plays all processors. While [`watch`] runs, the atomics of this module tell who
//! touches which 128 bytes, as a protocol like MESI sees it: a *transfer* is a read of what another
//! processor has written since one had it, or a write to what another one has. Between any two
//! accesses of a processor others may be let run, so that it stands still in the middle of an
//! operation: that shows what the hardware would, compare-exchanges that fail included.

use core::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{self, Ordering};

use super::Random;

/// A pair of lines.
#[derive(Default)]
struct Line {
    /// The processors that have it, by bit.
    holders: u128,
    /// Somebody has written to it.
    written: bool,
}

struct Watch {
    lines: HashMap<usize, Line>,
    transfers: u64,
    random: Random,
    /// Once in so many accesses the processor stands still.
    pause_one_in: u64,
    others: Option<Rc<dyn Fn()>>,
}

std::thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static CPU: Cell<usize> = const { Cell::new(0) };
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Runs `work` and watches this thread. `others` is called once in `pause_one_in` accesses, if that
/// is not 0.
pub(crate) fn watch<R>(pause_one_in: u64, others: Rc<dyn Fn()>, work: impl FnOnce() -> R) -> R {
    let watch = Watch {
        lines: HashMap::new(),
        transfers: 0,
        random: Random::new(1),
        pause_one_in,
        others: Some(others),
    };
    WATCH.set(Some(watch));
    ON.set(true);
    let result = work();
    ON.set(false);
    WATCH.set(None);
    result
}

/// Does something as another processor, below 128.
pub(crate) fn as_cpu<R>(cpu: usize, work: impl FnOnce() -> R) -> R {
    let before = CPU.replace(cpu);
    let result = work();
    CPU.set(before);
    result
}

/// Transfers since the watch began.
pub(crate) fn transfers() -> u64 {
    WATCH.with_borrow(|watch| watch.as_ref().map_or(0, |watch| watch.transfers))
}

fn touch(address: usize, write: bool) {
    if !ON.get() {
        return;
    }
    let others = WATCH.with_borrow_mut(|watch| {
        let watch = watch.as_mut()?;
        let me = 1 << CPU.get();
        let line = watch.lines.entry(address / 128).or_default();
        let transfer = if write {
            line.holders & !me != 0
        } else {
            line.written && line.holders & me == 0
        };
        if write {
            *line = Line {
                holders: me,
                written: true,
            };
        } else {
            line.holders |= me;
        }
        watch.transfers += u64::from(transfer);
        let pause = watch.pause_one_in;
        let others = watch.others.clone();
        others.filter(|_| pause > 0 && watch.random.one_in(pause))
    });
    if let Some(others) = others {
        others();
    }
}

/// Defines an atomic that tells who touches it.
macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[repr(transparent)]
        pub(crate) struct $name(atomic::$name);

        // What is not used by every integer is not worth two macros.
        #[allow(dead_code)]
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(crate) fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            fn touch(&self, write: bool) -> &atomic::$name {
                touch((&raw const *self).addr(), write);
                &self.0
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.touch(false).load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.touch(true).store(value, order);
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.touch(true).swap(value, order)
            }

            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.touch(true).fetch_or(value, order)
            }

            pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.touch(true).fetch_and(value, order)
            }

            pub(crate) fn fetch_xor(&self, value: $value, order: Ordering) -> $value {
                self.touch(true).fetch_xor(value, order)
            }

            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.touch(true).fetch_add(value, order)
            }

            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.touch(true).fetch_sub(value, order)
            }

            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.touch(true)
                    .compare_exchange(old, new, success, failure)
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
