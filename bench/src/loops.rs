//! The loops: bulk, repeat and random, as in LLFree's evaluation (Wrenger et al., "LLFree: Scalable
//! and Optionally-Persistent Page-Frame Allocation", USENIX ATC 2023, section 5).

use std::sync::Barrier;
use std::time::Instant;

use serde::Serialize;

use crate::peers::Peer;
use crate::random::Random;

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// Allocate all frames, then free them in the same order.
    Bulk,
    /// Allocate one and free it, again and again.
    Repeat,
    /// Allocate all frames, then free them in random order; the allocations that are measured
    /// follow such a free.
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// An allocation; for [`Loop::Repeat`] the pair.
    pub get: f64,
    /// A free; for [`Loop::Repeat`] 0.
    pub put: f64,
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
}

impl Size {
    /// Allocations of each thread. A little is left over, so that no thread has to search what
    /// others keep in their caches.
    fn share(self) -> usize {
        let all = (self.frames >> self.order) as usize;
        (all - all / 16) / self.threads
    }
}

/// Operations of a thread below which a loop is too short to be timed: it is done several times.
const LEAST_OPERATIONS: usize = 1 << 16;

/// Runs `what` once on `peer`, whose memory is all free before and after. The time is that of the
/// slowest thread.
pub fn run(peer: &dyn Peer, what: Loop, size: Size) -> Times {
    let share = size.share();
    let barrier = Barrier::new(size.threads);
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let slowest = |times: Vec<Times>| Times {
        get: times.iter().map(|times| times.get).fold(0.0, f64::max),
        put: times.iter().map(|times| times.put).fold(0.0, f64::max),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size.threads)
            .map(|thread| {
                let (barrier, core) = (&barrier, cores.get(thread).copied());
                scope.spawn(move || {
                    // Where threads cannot be pinned, the scheduler spreads them.
                    core.map(core_affinity::set_for_current);
                    one_thread(peer, what, thread, share, size.order, barrier)
                })
            })
            .collect();
        let times = threads.into_iter().map(|thread| thread.join());
        slowest(times.map(|times| times.expect("a loop ends")).collect())
    })
}

fn one_thread(
    peer: &dyn Peer,
    what: Loop,
    thread: usize,
    share: usize,
    order: u8,
    barrier: &Barrier,
) -> Times {
    let mut frames = vec![0; share];
    let mut random = Random::new(thread as u64);
    let rounds = LEAST_OPERATIONS.div_ceil(share);
    let timed = |work: &mut dyn FnMut()| {
        barrier.wait();
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e9 / (rounds * share) as f64
    };
    let get = |frame: &mut u64| {
        *frame = peer
            .alloc(thread, order)
            .unwrap_or_else(|| panic!("{} has no frame left", peer.name()));
    };
    let put = |frames: &[u64]| {
        timed(&mut || {
            frames
                .iter()
                .for_each(|&frame| peer.free(thread, frame, order))
        })
    };
    let mut times = Times { get: 0.0, put: 0.0 };
    for _ in 0..rounds {
        match what {
            Loop::Repeat => {
                times.get += timed(&mut || {
                    for frame in &mut frames {
                        get(frame);
                        peer.free(thread, *frame, order);
                    }
                });
            }
            Loop::Bulk => {
                times.get += timed(&mut || frames.iter_mut().for_each(get));
                times.put += put(&frames);
            }
            Loop::Random => {
                frames.iter_mut().for_each(get);
                random.shuffle(&mut frames);
                times.put += put(&frames);
                times.get += timed(&mut || frames.iter_mut().for_each(get));
                // Not measured, and nobody is to begin the next round meanwhile.
                barrier.wait();
                for &frame in &frames {
                    peer.free(thread, frame, order);
                }
            }
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::all;

    #[test]
    fn loops_leave_all_memory_free() {
        let frames = 32 * 512;
        for peer in all(frames, 2) {
            for what in Loop::ALL {
                for order in [0, 9] {
                    let size = Size {
                        frames,
                        threads: 2,
                        order,
                    };
                    let times = run(&*peer, what, size);
                    assert!(times.get > 0.0, "{}", peer.name());
                    let left = peer.free_memory().frames;
                    assert_eq!(left, frames, "{} {}", peer.name(), what.name());
                }
            }
        }
    }
}
