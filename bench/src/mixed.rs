//! The mixed load: one task that works with single frames beside one that works with huge pages,
//! while 90 % of memory is used; as page_fault1 and its huge-page twin do side by side in the
//! mail threads about Linux's zone lock.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::peers::{HUGE, HUGE_FRAMES, Peer};
use crate::pin;
use crate::random::Random;

/// The share of memory that others use, in percent.
const USED: u64 = 90;

/// How a task fared.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Allocations per second.
    pub per_second: f64,
    /// The share of what it asked for that was not to be had.
    pub refused: f64,
}

/// How both tasks fared.
#[derive(Debug, Clone, Copy)]
pub struct Mixed {
    /// Single frames, alone.
    pub base_alone: Rate,
    /// Single frames, beside huge pages.
    pub base_beside: Rate,
    /// Huge pages, alone.
    pub huge_alone: Rate,
    /// Huge pages, beside single frames.
    pub huge_beside: Rate,
}

/// Measures `peer`, which manages `frames` frames for two processors; `allocations` by each task,
/// alone and beside the other.
pub fn mixed(peer: &dyn Peer, frames: u64, allocations: u64) -> Mixed {
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
        runs: (each / HUGE_FRAMES).max(1),
    };
    let alone = |task: &Task<'_>| together(&[task], allocations)[0];
    let (base_alone, huge_alone) = (alone(&base), alone(&huge));
    let beside = together(&[&base, &huge], allocations);
    for (frame, order) in used {
        peer.free(0, frame, order);
    }
    Mixed {
        base_alone,
        base_beside: beside[0],
        huge_alone,
        huge_beside: beside[1],
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

impl Task<'_> {
    /// One round; how many allocations succeeded.
    fn round(&self, frames: &mut Vec<u64>) -> u64 {
        frames.extend((0..self.runs).map_while(|_| self.peer.alloc(self.cpu, self.order)));
        let done = frames.len() as u64;
        for frame in frames.drain(..) {
            self.peer.free(self.cpu, frame, self.order);
        }
        done
    }

    /// Asks for `allocations`, and goes on until all tasks have asked for theirs, so that nobody is
    /// measured beside a task that is done.
    fn work(&self, allocations: u64, start: &Barrier, working: &AtomicUsize) -> Rate {
        let mut frames = Vec::with_capacity(self.runs as usize);
        self.round(&mut frames);
        start.wait();
        let (mut done, mut asked) = (0, 0);
        let clock = Instant::now();
        while asked < allocations {
            asked += self.runs;
            done += self.round(&mut frames);
        }
        let seconds = clock.elapsed().as_secs_f64();
        working.fetch_sub(1, Ordering::Relaxed);
        while working.load(Ordering::Relaxed) > 0 {
            self.round(&mut frames);
        }
        Rate {
            per_second: done as f64 / seconds,
            refused: 1.0 - done as f64 / asked as f64,
        }
    }
}

fn together(tasks: &[&Task<'_>], allocations: u64) -> Vec<Rate> {
    let start = Barrier::new(tasks.len());
    let working = AtomicUsize::new(tasks.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .iter()
            .map(|task| {
                let (start, working) = (&start, &working);
                scope.spawn(move || {
                    pin(task.cpu);
                    task.work(allocations, start, working)
                })
            })
            .collect();
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
            let mixed = mixed(&*peer, frames, 10_000);
            let name = peer.name();
            assert!(mixed.base_beside.per_second > 0.0, "{name}");
            assert!(mixed.huge_alone.refused < 1.0, "{name}");
            assert_eq!(peer.free_memory().frames, frames, "{name}");
        }
    }

    #[test]
    fn dolmens_huge_pages_do_not_starve() {
        let frames = 256 * 512;
        let peer = crate::peers::Dolmen::new(frames, 2);
        let mixed = mixed(&peer, frames, 50_000);
        assert_eq!(mixed.huge_beside.refused, 0.0);
        assert_eq!(mixed.base_beside.refused, 0.0);
    }
}
