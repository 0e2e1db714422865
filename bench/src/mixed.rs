//! The mixed load: one task that works with single frames beside one that works with huge pages,
//! while 90 % of memory is used; as page_fault1 and its huge-page twin do side by side in the
//! mail threads about Linux's zone lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::peers::{HUGE, HUGE_FRAMES, Peer};
use crate::random::Random;

/// The share of memory that others use, in percent.
const USED: u64 = 90;

/// Operations per second of both tasks, alone and side by side.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Mixed {
    /// Single frames, alone.
    pub base_alone: f64,
    /// Single frames, beside huge pages.
    pub base_beside: f64,
    /// Huge pages, alone.
    pub huge_alone: f64,
    /// Huge pages, beside single frames.
    pub huge_beside: f64,
    /// The share of the huge pages asked for that were not to be had, beside single frames.
    pub huge_refused: f64,
}

/// Measures `peer`, which manages `frames` frames for two processors; each part lasts `time`.
pub fn mixed(peer: &dyn Peer, frames: u64, time: Duration) -> Mixed {
    let used = occupy(peer, frames);
    let each = frames * (100 - USED) / 100 / 4;
    let base = Task {
        peer,
        cpu: 0,
        order: 0,
        runs: each,
    };
    let huge = Task {
        peer,
        cpu: 1,
        order: HUGE,
        runs: each / HUGE_FRAMES,
    };
    let alone = |task: &Task<'_>| together(&[task], time)[0];
    let (base_alone, huge_alone) = (alone(&base), alone(&huge));
    let beside = together(&[&base, &huge], time);
    for frame in used {
        peer.free(0, frame.0, frame.1);
    }
    Mixed {
        base_alone: base_alone.per_second,
        base_beside: beside[0].per_second,
        huge_alone: huge_alone.per_second,
        huge_beside: beside[1].per_second,
        huge_refused: beside[1].refused,
    }
}

/// Uses 90 % of memory: all of it is allocated, half as huge pages and half as single frames, then
/// whole blocks' worth of both is given back.
fn occupy(peer: &dyn Peer, frames: u64) -> Vec<(u64, u8)> {
    let blocks = frames / HUGE_FRAMES;
    let mut huge: Vec<u64> = (0..blocks / 2).map_while(|_| peer.alloc(0, HUGE)).collect();
    let mut single: Vec<u64> = std::iter::from_fn(|| peer.alloc(0, 0)).collect();
    let mut random = Random::new(3);
    random.shuffle(&mut huge);
    let back = blocks * (100 - USED) / 100;
    for frame in huge.drain(..back as usize / 2) {
        peer.free(0, frame, HUGE);
    }
    // Neighbours together, as a process that ends gives them back.
    single.sort_unstable();
    let back = (back - back / 2) * HUGE_FRAMES;
    let first = random.below(single.len() - back as usize);
    for frame in single.drain(first..first + back as usize) {
        peer.free(0, frame, 0);
    }
    let single = single.into_iter().map(|frame| (frame, 0));
    huge.into_iter()
        .map(|frame| (frame, HUGE))
        .chain(single)
        .collect()
}

/// Allocates `runs` runs, frees them, and begins again.
struct Task<'a> {
    peer: &'a dyn Peer,
    cpu: usize,
    order: u8,
    runs: u64,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: f64,
    refused: f64,
}

impl Task<'_> {
    fn work(&self, stop: &AtomicBool) -> Rate {
        let mut frames = Vec::with_capacity(self.runs as usize);
        let (mut done, mut asked) = (0u64, 0u64);
        let start = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            asked += self.runs;
            let got = (0..self.runs).map_while(|_| self.peer.alloc(self.cpu, self.order));
            frames.extend(got);
            done += frames.len() as u64;
            for frame in frames.drain(..) {
                self.peer.free(self.cpu, frame, self.order);
            }
        }
        Rate {
            per_second: done as f64 / start.elapsed().as_secs_f64(),
            refused: 1.0 - done as f64 / asked.max(1) as f64,
        }
    }
}

fn together(tasks: &[&Task<'_>], time: Duration) -> Vec<Rate> {
    let stop = AtomicBool::new(false);
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .iter()
            .map(|task| {
                let (stop, core) = (&stop, cores.get(task.cpu).copied());
                scope.spawn(move || {
                    core.map(core_affinity::set_for_current);
                    task.work(stop)
                })
            })
            .collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let rates = threads.into_iter().map(|thread| thread.join());
        rates.map(|rate| rate.expect("a task ends")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::all;

    #[test]
    fn both_tasks_work_and_all_memory_comes_back() {
        let frames = 256 * 512;
        for peer in all(frames, 2) {
            let mixed = mixed(&*peer, frames, Duration::from_millis(20));
            assert!(mixed.base_beside > 0.0, "{}", peer.name());
            assert_eq!(peer.free_memory().frames, frames, "{}", peer.name());
        }
    }

    #[test]
    fn dolmens_huge_pages_do_not_starve() {
        let frames = 256 * 512;
        let peer = crate::peers::Dolmen::new(frames, 2);
        let mixed = mixed(&peer, frames, Duration::from_millis(50));
        assert_eq!(mixed.huge_refused, 0.0);
    }
}
