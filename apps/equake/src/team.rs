//! A team of threads that lives as long as the job, as OpenMP's does.
//!
//! The calling thread is member 0; the others wait between parallel regions. A region hands each member its own part
//! of the data by value, so that code above needs no shared mutable state. Waiting members spin briefly and then
//! sleep: on a machine with fewer real cores than CPUs, spinning would take the time of those that work.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Looks at the region counter this many times before sleeping.
const SPINS: usize = 200;

type Job = dyn Fn(usize) + Sync;

/// What the members share.
struct Shared {
    /// Counts regions, so that waiting members can look without the lock.
    region: AtomicUsize,
    /// Members that have not finished the current region.
    running: AtomicUsize,
    state: Mutex<State>,
    start: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct State {
    region: usize,
    job: Option<&'static Job>,
    stop: bool,
    panic: Option<Box<dyn Any + Send>>,
}

/// A fixed number of threads that run parallel regions together.
pub struct Team {
    threads: usize,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Team {
    /// A team of `threads` members (at least 1); with `pinned`, member t stays on the t-th CPU that the program may use.
    ///
    /// Fails when a thread cannot be created.
    pub fn new(threads: usize, pinned: bool) -> std::io::Result<Self> {
        let cpus = if pinned { dolmen::cpus() } else { Vec::new() };
        let cpu_of = |member: usize| (!cpus.is_empty()).then(|| cpus[member % cpus.len()]);
        let shared = Arc::new(Shared {
            region: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            state: Mutex::default(),
            start: Condvar::new(),
            done: Condvar::new(),
        });
        let mut team = Self {
            threads: threads.max(1),
            shared,
            workers: Vec::new(),
        };
        pin(cpu_of(0));
        for member in 1..team.threads {
            let shared = Arc::clone(&team.shared);
            let cpu = cpu_of(member);
            team.workers.push(
                std::thread::Builder::new()
                    .name(format!("equake-{member}"))
                    .spawn(move || {
                        pin(cpu);
                        serve(&shared, member);
                    })?,
            );
        }
        Ok(team)
    }

    /// The number of members.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `job(member)` on every member and returns when all have finished. A member's panic is the caller's.
    pub fn run(&mut self, job: impl Fn(usize) + Sync) {
        let shared = &*self.shared;
        let erased: &(dyn Fn(usize) + Sync) = &job;
        // SAFETY: only the lifetime changes. The reference is removed, and no member uses it any more, before this
        // function returns or unwinds: it waits for `running` to reach zero first.
        #[allow(unsafe_code)]
        let erased =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static Job>(erased) };
        if self.threads > 1 {
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.job = Some(erased);
            state.region += 1;
            shared.running.store(self.threads - 1, Ordering::Relaxed);
            shared.region.store(state.region, Ordering::Release);
            shared.start.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(|| erased(0)));
        spin_until(|| shared.running.load(Ordering::Acquire) == 0);
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        while shared.running.load(Ordering::Acquire) > 0 {
            state = shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.job = None;
        let theirs = state.panic.take();
        drop(state);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    /// Runs `job(member, part)`, part t going to member t. There must be no more parts than members.
    pub fn run_parts<P: Send>(&mut self, parts: Vec<P>, job: impl Fn(usize, P) + Sync) {
        assert!(parts.len() <= self.threads, "a part without a member");
        let slots: Vec<Mutex<Option<P>>> = parts.into_iter().map(|p| Mutex::new(Some(p))).collect();
        self.run(|member| {
            let part = slots.get(member).and_then(|slot| match slot.lock() {
                Ok(mut slot) => slot.take(),
                Err(_) => None,
            });
            if let Some(part) = part {
                job(member, part);
            }
        });
    }

    /// Runs `job(member)` and collects the results in the order of the members.
    pub fn map<R: Send>(&mut self, job: impl Fn(usize) -> R + Sync) -> Vec<R> {
        let mut results: Vec<Option<R>> = (0..self.threads).map(|_| None).collect();
        self.run_parts(results.iter_mut().collect(), |member, slot| {
            *slot = Some(job(member));
        });
        results.into_iter().flatten().collect()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.stop = true;
        state.region += 1;
        self.shared.region.store(state.region, Ordering::Release);
        drop(state);
        self.shared.start.notify_all();
        for worker in self.workers.drain(..) {
            // A member's panic was already handed to the caller of the region.
            let _ = worker.join();
        }
    }
}

/// Pinning is a matter of speed: where it is refused, the run goes on without.
fn pin(cpu: Option<u32>) {
    if let Some(cpu) = cpu {
        let _ = dolmen::pin_current_thread(cpu);
    }
}

fn spin_until(ready: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if ready() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// The life of a member other than 0.
fn serve(shared: &Shared, member: usize) {
    let mut seen = 0;
    loop {
        spin_until(|| shared.region.load(Ordering::Acquire) != seen);
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.region == seen {
            state = shared
                .start
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        seen = state.region;
        let (job, stop) = (state.job, state.stop);
        drop(state);
        if stop {
            return;
        }
        let result = match job {
            Some(job) => catch_unwind(AssertUnwindSafe(|| job(member))),
            None => Ok(()),
        };
        if let Err(panic) = result {
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.panic.get_or_insert(panic);
        }
        if shared.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The lock makes sure that member 0 either sees the zero or is already waiting.
            drop(shared.state.lock());
            shared.done.notify_one();
        }
    }
}

/// The static schedule: the range of `len` items that member `member` of `threads` gets.
///
/// Sizes differ by at most one, the first members get the larger ranges.
pub fn chunk(len: usize, threads: usize, member: usize) -> Range<usize> {
    let (size, extra) = (len / threads, len % threads);
    let start = member * size + member.min(extra);
    start..start + size + usize::from(member < extra)
}

/// Cuts a slice into the members' ranges of [`chunk`].
pub fn split_mut<T>(mut rest: &mut [T], threads: usize) -> Vec<&mut [T]> {
    let len = rest.len();
    (0..threads)
        .map(|member| {
            let (part, tail) =
                std::mem::take(&mut rest).split_at_mut(chunk(len, threads, member).len());
            rest = tail;
            part
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once_in_order() {
        for len in [0, 1, 5, 64, 1000] {
            for threads in [1, 2, 3, 7, 64] {
                let mut next = 0;
                for member in 0..threads {
                    let range = chunk(len, threads, member);
                    assert_eq!(range.start, next);
                    assert!(range.len() == len / threads || range.len() == len / threads + 1);
                    next = range.end;
                }
                assert_eq!(next, len);
            }
        }
    }

    #[test]
    fn every_member_runs_every_region() {
        for threads in [1, 2, 5] {
            let mut team = Team::new(threads, true).unwrap();
            let mut data = vec![0usize; 1003];
            for round in 1..300 {
                team.run_parts(split_mut(&mut data, threads), |member, part| {
                    part.iter_mut().for_each(|x| *x += member + round);
                });
            }
            let rounds: usize = (1..300).sum();
            for member in 0..threads {
                for x in &data[chunk(1003, threads, member)] {
                    assert_eq!(*x, 299 * member + rounds);
                }
            }
            assert_eq!(team.map(|member| member), (0..threads).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_in_a_region_reaches_the_caller_and_the_team_lives_on() {
        let mut team = Team::new(3, false).unwrap();
        for culprit in 0..3 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.run(|member| assert_ne!(member, culprit, "told to"));
            }));
            assert!(caught.is_err());
            assert_eq!(team.map(|member| member), [0, 1, 2]);
        }
    }
}
