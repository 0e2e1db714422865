//! Futexes: threads that wait on the address of a word, in hashed buckets.

use core::sync::atomic::{AtomicU32, Ordering};

use super::queue::WaitQueue;
use super::thread::{State, Thread};
use crate::cpu::InterruptsOff;
use crate::sync::SpinLock;

/// Buckets. Each has its own lock on its own pair of cache lines.
const BUCKETS: usize = 256;

#[repr(align(128))]
struct Bucket(SpinLock<WaitQueue>);

static TABLE: [Bucket; BUCKETS] = [const { Bucket(SpinLock::new(WaitQueue::new())) }; BUCKETS];

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Somebody woke the thread.
    Woken,
    /// The word did not have the expected value.
    Changed,
    /// The deadline came first.
    TimedOut,
}

/// Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4) of the word's number.
fn bucket(address: u64) -> &'static SpinLock<WaitQueue> {
    let hash = (address >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(hash >> 56) as usize % BUCKETS].0
}

/// Waits until somebody wakes the word at `address`, if it reads `expected`, but no longer than
/// until the clock reaches `deadline` (in ticks). `address` is the valid address of a word.
pub(crate) fn wait(address: u64, expected: u32, deadline: Option<u64>) -> Outcome {
    let me = super::current();
    // Between the look at the word and the switch nobody may take the processor away.
    let _interrupts = InterruptsOff::new();
    {
        let mut queue = bucket(address).lock();
        let word = core::ptr::with_exposed_provenance::<AtomicU32>(address as usize);
        // SAFETY: the ABI obliges the caller to pass the address of a live, aligned word; `wait`
        // inside the kernel passes one in a thread that it holds a reference to.
        let value = unsafe { (*word).load(Ordering::SeqCst) };
        if value != expected {
            return Outcome::Changed;
        }
        me.waits_on.store(address, Ordering::Relaxed);
        me.woken.store(false, Ordering::Relaxed);
        me.set_state(State::Blocked);
        queue.push(me.clone());
    }
    match deadline {
        Some(deadline) => super::block_until(deadline),
        None => super::block(),
    }
    // Whoever takes the thread out of the queue does so under the lock of the bucket.
    let mut queue = bucket(address).lock();
    if me.woken.load(Ordering::Relaxed) {
        return Outcome::Woken;
    }
    queue.take_first(|thread| core::ptr::eq(thread, &*me));
    Outcome::TimedOut
}

/// Wakes at most `count` threads that wait on the word at `address`, those that have waited
/// longest; returns how many it woke.
pub(crate) fn wake(address: u64, count: i32) -> i32 {
    let mut queue = bucket(address).lock();
    let mut woken = 0;
    while woken < count {
        let waits_here = |thread: &Thread| thread.waits_on.load(Ordering::Relaxed) == address;
        let Some(thread) = queue.take_first(waits_here) else {
            break;
        };
        thread.woken.store(true, Ordering::Relaxed);
        // Under the lock of the bucket: a thread that has timed out meanwhile is already runnable
        // and must not be woken out of whatever it waits for next.
        super::wake(&thread);
        woken += 1;
    }
    woken
}
