//! Lists of threads that are linked through the threads themselves, so that waking and blocking
//! never allocate.

use alloc::sync::Arc;

use super::thread::Thread;

/// A first-in, first-out list, linked through link number `LINK` of the threads in it. A thread is
/// in at most one list of each number.
pub(crate) struct Queue<const LINK: usize> {
    head: Option<Arc<Thread>>,
    tail: Option<Arc<Thread>>,
}

/// Threads that can run, or have ended.
pub(crate) type RunQueue = Queue<0>;

/// Threads that wait. One whose time is up is in a run queue as well, until it has taken itself out
/// of here.
pub(crate) type WaitQueue = Queue<1>;

/// Links of a thread.
pub(super) const LINKS: usize = 2;

impl<const LINK: usize> Queue<LINK> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            head: None,
            tail: None,
        }
    }

    /// Whether nobody waits in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Adds a thread at the end.
    pub(crate) fn push(&mut self, thread: Arc<Thread>) {
        match self.tail.replace(thread.clone()) {
            // SAFETY: a link belongs to the list that the thread is in, which is borrowed
            // exclusively.
            Some(tail) => unsafe { *tail.next[LINK].get() = Some(thread) },
            None => self.head = Some(thread),
        }
    }

    /// Takes the first thread.
    pub(crate) fn pop(&mut self) -> Option<Arc<Thread>> {
        self.take_first(|_| true)
    }

    /// Takes the first thread that `matches`.
    pub(crate) fn take_first(&mut self, matches: impl Fn(&Thread) -> bool) -> Option<Arc<Thread>> {
        let mut previous: Option<Arc<Thread>> = None;
        let mut current = self.head.clone();
        while let Some(thread) = current {
            // SAFETY: as in `push`.
            let next = unsafe { (*thread.next[LINK].get()).clone() };
            if matches(&thread) {
                if next.is_none() {
                    self.tail = previous.clone();
                }
                match previous {
                    // SAFETY: as in `push`.
                    Some(previous) => unsafe { *previous.next[LINK].get() = next },
                    None => self.head = next,
                }
                // SAFETY: as in `push`; the thread leaves the list with an empty link.
                unsafe { *thread.next[LINK].get() = None };
                return Some(thread);
            }
            previous = Some(thread);
            current = next;
        }
        None
    }
}

/// Threads by deadline, the earliest first.
pub(crate) struct Timers {
    head: Option<Arc<Thread>>,
}

impl Timers {
    /// No timers.
    pub(crate) const fn new() -> Self {
        Self { head: None }
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.head.as_ref().map(|thread| deadline(thread))
    }

    /// Adds a thread under its deadline.
    pub(crate) fn insert(&mut self, thread: Arc<Thread>) {
        let mut previous: Option<Arc<Thread>> = None;
        let mut current = self.head.clone();
        while let Some(there) = current {
            if deadline(&there) > deadline(&thread) {
                current = Some(there);
                break;
            }
            // SAFETY: a timer link belongs to the list of the thread's processor, which is
            // borrowed exclusively.
            current = unsafe { (*there.next_timer.get()).clone() };
            previous = Some(there);
        }
        // SAFETY: as above.
        unsafe { *thread.next_timer.get() = current };
        match previous {
            // SAFETY: as above.
            Some(previous) => unsafe { *previous.next_timer.get() = Some(thread) },
            None => self.head = Some(thread),
        }
    }

    /// Takes the first thread whose deadline is not behind `now`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Arc<Thread>> {
        let thread = self.head.take_if(|thread| deadline(thread) <= now)?;
        // SAFETY: as in `insert`.
        self.head = unsafe { (*thread.next_timer.get()).take() };
        Some(thread)
    }

    /// Takes `thread` out if it is in.
    pub(crate) fn remove(&mut self, thread: &Thread) {
        let mut previous: Option<Arc<Thread>> = None;
        let mut current = self.head.clone();
        while let Some(there) = current {
            if core::ptr::eq(&*there, thread) {
                // SAFETY: as in `insert`.
                let next = unsafe { (*there.next_timer.get()).take() };
                match previous {
                    // SAFETY: as in `insert`.
                    Some(previous) => unsafe { *previous.next_timer.get() = next },
                    None => self.head = next,
                }
                return;
            }
            // SAFETY: as in `insert`.
            current = unsafe { (*there.next_timer.get()).clone() };
            previous = Some(there);
        }
    }
}

fn deadline(thread: &Thread) -> u64 {
    thread.deadline.load(core::sync::atomic::Ordering::Relaxed)
}
