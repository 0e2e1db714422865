//! Threads of one CPU that hold different states and are switched by force, then by their own calls.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;

use dolmen::PAGE_BYTES;

use crate::hold::{Hold, call_with_control, hold};
use crate::state::{State, Width};

/// Pages touched before and after the wait of each round. Together they are so much that the allocator gives memory
/// that nobody has touched.
const PAGES: usize = 32;
/// Calls that give the CPU up, in each round of a thread.
const CALLS: u64 = 4;

/// The threads of one CPU.
#[derive(Default)]
pub(crate) struct Group {
    members: AtomicUsize,
    barrier: OnceLock<Barrier>,
    /// The member that ran last.
    last: AtomicU64,
    /// See [`Hold::interrupted`].
    interrupted: AtomicU64,
}

impl Group {
    /// Counts the caller in.
    pub(crate) fn join(&self) {
        self.members.fetch_add(1, Ordering::Relaxed);
    }

    fn members(&self) -> usize {
        self.members.load(Ordering::Relaxed)
    }

    /// Waits for all members.
    fn meet(&self) {
        self.barrier
            .get_or_init(|| Barrier::new(self.members()))
            .wait();
    }
}

/// One thread of a [`Group`], whose members have all joined.
pub(crate) struct Member<'a> {
    pub(crate) group: &'a Group,
    /// Its number; no other thread has it.
    pub(crate) number: u64,
    pub(crate) width: Width,
}

impl Member<'_> {
    /// All rounds of both kinds. Gives the number of switches that this thread has noticed.
    pub(crate) fn work(&self, rounds: u64) -> Result<u64, String> {
        if self.group.members() < 2 {
            return Err("it is alone on its CPU: nothing would be switched".into());
        }
        let mut switches = 0;
        for round in 0..rounds {
            switches += self
                .interrupted(round)
                .map_err(|reason| format!("interrupted in round {round}: {reason}"))?;
        }
        let mut calls = 0;
        for round in 0..rounds {
            calls += self
                .giving_up(round)
                .map_err(|reason| format!("calling in round {round}: {reason}"))?;
        }
        if calls == 0 {
            return Err("no call gave the CPU to another thread".into());
        }
        Ok(switches + calls)
    }

    /// Holds registers until every member has been interrupted for another one, with page faults before and after.
    fn interrupted(&self, round: u64) -> Result<u64, String> {
        let pattern = State::pattern(self.number, round);
        let mut fresh = vec![0u8; 2 * PAGES * PAGE_BYTES];
        let mut request = Hold {
            pattern: &pattern,
            found: State::clean(),
            last: &self.group.last,
            me: self.name(),
            interrupted: &self.group.interrupted,
            enough: (round + 1) * self.group.members() as u64,
            fresh: fresh.as_mut_ptr(),
            pages: PAGES as u64,
            switches: 0,
        };
        self.group.meet();
        // SAFETY: `width` is what this processor and system offer, and `fresh` has the room.
        unsafe { hold(self.width, &mut request) };
        request.found.check(&pattern, self.width)?;
        Ok(request.switches)
    }

    /// Gives the CPU up by calls, which keep the control words and nothing else.
    fn giving_up(&self, round: u64) -> Result<u64, String> {
        let mut switches = 0;
        for call in 0..CALLS {
            let pattern = State::pattern(self.number, round * CALLS + call).masked();
            let mut found = State::clean();
            let function = if call % 2 == 0 { yield_now } else { meet };
            // SAFETY: neither function computes with floating-point numbers; the pattern masks all exceptions.
            unsafe { call_with_control(&pattern, &mut found, function, self.group) };
            found.check_control(&pattern)?;
            let last = self.group.last.swap(self.name(), Ordering::Relaxed);
            switches += u64::from(last != self.name());
        }
        Ok(switches)
    }

    /// What the thread is called in [`Group::last`], where 0 is nobody.
    fn name(&self) -> u64 {
        self.number + 1
    }
}

extern "C" fn yield_now(_: &Group) {
    thread::yield_now();
}

extern "C" fn meet(group: &Group) {
    group.meet();
}
