//! The loops: bulk, repeat and random, as in LLFree's evaluation (Wrenger et al., "LLFree: Scalable
//! and Optionally-Persistent Page-Frame Allocation", USENIX ATC 2023, section 5).

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use spin::Yield;
use spin::barrier::Barrier;

use crate::peers::Peer;
use crate::pin;
use crate::random::Random;

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// Allocate, then free in reverse order.
    Bulk,
    /// With half of memory allocated, allocate one and free it, again and again.
    Repeat,
    /// Allocate, then free in random order what all threads have allocated.
    Random,
}

impl Loop {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bulk, Self::Repeat, Self::Random];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Repeat => "repeat",
            Self::Random => "random",
        }
    }
}

/// Nanoseconds for one operation of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// An allocation; for [`Loop::Repeat`] the pair.
    pub get: f64,
    /// A free; nothing for [`Loop::Repeat`].
    pub put: Option<f64>,
}

/// How much of memory [`Loop::Bulk`] and [`Loop::Random`] allocate, and how warm it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// All but a sixteenth, which is left so that no thread has to search what others keep in their
    /// caches. A first round does not count, so what is measured is an allocator in use.
    All,
    /// Half, and the first round counts: as LLFree's own bench does it.
    Half,
}

/// One measurement's size.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Frames of the pretended memory.
    pub frames: u64,
    /// Threads that work at the same time.
    pub threads: usize,
    /// log2 of the frames of one allocation.
    pub order: u8,
    /// The part of memory that is used.
    pub fill: Fill,
    /// How often each thread does its part of the loop: it is short for large orders.
    pub rounds: usize,
}

impl Size {
    /// Allocations of each thread in one round.
    fn share(&self) -> usize {
        let all = (self.frames >> self.order) as usize;
        let used = match self.fill {
            Fill::All => all - all / 16,
            Fill::Half => all / 2,
        };
        used / self.threads
    }

    /// Allocations that each thread keeps during [`Loop::Repeat`].
    fn kept(&self) -> usize {
        (self.frames >> self.order) as usize / 2 / self.threads
    }
}

/// Runs `what` once on `peer`, whose memory is all free before and after. The time is that of the
/// slowest thread. An error if the peer had no frame although some were free; its memory is free
/// again even so.
pub fn run(peer: &dyn Peer, what: Loop, size: Size) -> Result<Times> {
    let meeting = Meeting {
        barrier: Barrier::new(size.threads),
        frames: Mutex::new(Vec::new()),
    };
    let times: Option<Vec<Times>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size.threads)
            .map(|thread| {
                let worker = Worker {
                    peer,
                    thread,
                    size,
                    meeting: &meeting,
                };
                scope.spawn(move || {
                    pin(thread);
                    match what {
                        Loop::Bulk => worker.bulk(),
                        Loop::Repeat => worker.repeat(),
                        Loop::Random => worker.random(),
                    }
                })
            })
            .collect();
        let times = threads.into_iter().map(|thread| thread.join());
        times.map(|times| times.expect("a loop ends")).collect()
    });
    let times = times.with_context(|| {
        format!(
            "{} had no run of order {} left in the loop {}, although frames were free",
            peer.name(),
            size.order,
            what.name()
        )
    })?;
    Ok(Times {
        get: times.iter().map(|times| times.get).fold(0.0, f64::max),
        put: times.iter().filter_map(|t| t.put).reduce(f64::max),
    })
}

/// Where the threads meet. A thread that is refused an allocation still comes, so nobody waits in
/// vain. Nobody sleeps either: by the time a sleeper is awake, the others are through with a short
/// loop, and nothing has happened at the same time.
struct Meeting {
    barrier: Barrier<Yield>,
    frames: Mutex<Vec<u64>>,
}

struct Worker<'a> {
    peer: &'a dyn Peer,
    thread: usize,
    size: Size,
    meeting: &'a Meeting,
}

impl Worker<'_> {
    fn timed(&self, work: impl FnOnce()) -> Duration {
        self.meeting.barrier.wait();
        let start = Instant::now();
        work();
        start.elapsed()
    }

    fn get(&self, frames: &mut Vec<u64>, count: usize) {
        frames.extend((0..count).map_while(|_| self.peer.alloc(self.thread, self.size.order)));
    }

    fn put(&self, frames: impl IntoIterator<Item = u64>) {
        for frame in frames {
            self.peer.free(self.thread, frame, self.size.order);
        }
    }

    fn bulk(&self) -> Option<Times> {
        self.fill_and_free(|frames| self.put(frames.drain(..).rev()), |_| {})
    }

    fn random(&self) -> Option<Times> {
        self.fill_and_free(
            |frames| self.put(frames.drain(..)),
            |frames| self.exchange(frames),
        )
    }

    fn fill_and_free(
        &self,
        put: impl Fn(&mut Vec<u64>),
        between: impl Fn(&mut Vec<u64>),
    ) -> Option<Times> {
        let share = self.size.share();
        let mut frames = Vec::with_capacity(share);
        let (mut gets, mut puts) = (Duration::ZERO, Duration::ZERO);
        let mut complete = true;
        let warm_up = usize::from(self.size.fill == Fill::All);
        for round in 0..warm_up + self.size.rounds {
            let get = self.timed(|| self.get(&mut frames, share));
            complete &= frames.len() == share;
            between(&mut frames);
            let put = self.timed(|| put(&mut frames));
            if round >= warm_up {
                gets += get;
                puts += put;
            }
        }
        let operations = share * self.size.rounds;
        complete.then(|| Times {
            get: nanoseconds(gets, operations),
            put: Some(nanoseconds(puts, operations)),
        })
    }

    /// Shuffles what all threads have, and gives each as much as it brought, as far as that is the
    /// same for all.
    fn exchange(&self, frames: &mut Vec<u64>) {
        let lock = || {
            let all = self.meeting.frames.lock();
            all.unwrap_or_else(PoisonError::into_inner)
        };
        let brought = frames.len();
        lock().append(frames);
        if self.meeting.barrier.wait().is_leader() {
            let mut all = lock();
            // In which order the threads came must not matter.
            all.sort_unstable();
            Random::new(42).shuffle(&mut all);
        }
        self.meeting.barrier.wait();
        let mut all = lock();
        let rest = all.len() - brought;
        frames.extend(all.drain(rest..));
    }

    fn repeat(&self) -> Option<Times> {
        let kept = self.size.kept();
        let mut frames = Vec::with_capacity(kept);
        self.get(&mut frames, kept);
        let pairs = self.size.share() * self.size.rounds;
        let mut done = 0;
        let time = self.timed(|| {
            while done < pairs
                && let Some(frame) = self.peer.alloc(self.thread, self.size.order)
            {
                let frame = black_box(frame);
                self.peer.free(self.thread, frame, self.size.order);
                done += 1;
            }
        });
        let complete = done == pairs && frames.len() == kept;
        self.meeting.barrier.wait();
        self.put(frames);
        complete.then(|| Times {
            get: nanoseconds(time, pairs),
            put: None,
        })
    }
}

fn nanoseconds(time: Duration, operations: usize) -> f64 {
    time.as_secs_f64() * 1e9 / operations as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{FreeMemory, all};

    #[test]
    fn loops_leave_all_memory_free() {
        let frames = 16 * 512;
        for peer in all(frames, 2) {
            for what in Loop::ALL {
                for (order, fill) in [(0, Fill::All), (9, Fill::All), (0, Fill::Half)] {
                    let size = Size {
                        frames,
                        threads: 2,
                        order,
                        fill,
                        rounds: 2,
                    };
                    let times = run(&*peer, what, size).unwrap();
                    assert!(times.get > 0.0, "{}", peer.name());
                    assert_eq!(times.put.is_none(), what == Loop::Repeat);
                    let left = peer.free_memory().frames;
                    assert_eq!(left, frames, "{} {}", peer.name(), what.name());
                }
            }
        }
    }

    /// Has fewer frames than it should.
    struct Short(Mutex<Vec<u64>>);

    impl Peer for Short {
        fn name(&self) -> &'static str {
            "short"
        }
        fn alloc(&self, _cpu: usize, _order: u8) -> Option<u64> {
            self.0.lock().unwrap().pop()
        }
        fn free(&self, _cpu: usize, frame: u64, _order: u8) {
            self.0.lock().unwrap().push(frame);
        }
        fn free_memory(&self) -> FreeMemory {
            FreeMemory {
                frames: self.0.lock().unwrap().len() as u64,
                in_whole_blocks: 0,
            }
        }
    }

    #[test]
    fn an_allocator_that_runs_out_is_an_error_and_no_hang() {
        let short = Short(Mutex::new((0..100).collect()));
        for what in Loop::ALL {
            let size = Size {
                frames: 1024,
                threads: 2,
                order: 0,
                fill: Fill::All,
                rounds: 1,
            };
            let error = run(&short, what, size).unwrap_err().to_string();
            assert!(error.contains("short had no run of order 0"), "{error}");
            assert_eq!(short.free_memory().frames, 100);
        }
    }
}
