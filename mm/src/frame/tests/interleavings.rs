//! Interleavings that real threads hardly ever show, played by a scheduler:
//! `cargo test -p dolmen-mm --release --features shuttle interleavings`.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use std::sync::Mutex;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

use super::*;

const SINGLE: Order = Order::BASE;

/// An allocator, and the frames that somebody holds, of which kind.
#[derive(Clone)]
struct Shared {
    frames: Arc<FrameAllocator>,
    held: Arc<Mutex<BTreeMap<FrameId, FrameKind>>>,
}

impl Shared {
    fn new(ranges: &[RamRange], cpus: usize) -> Self {
        Self {
            frames: Arc::new(allocator(ranges, cpus)),
            held: Arc::default(),
        }
    }

    fn alloc(&self, by: usize, order: Order, kind: FrameKind) -> Option<FrameId> {
        let home = self.frames.topology.node_of_cpu(cpu(by));
        let reach = Reach::AnyNode;
        let first = self.frames.take(cpu(by), home, order, kind, reach)?;
        let mut held = self.held.lock().unwrap();
        for frame in 0..order.frames() {
            assert!(
                held.insert(first.add(frame), kind).is_none(),
                "{first:?} was handed out twice"
            );
        }
        Some(first)
    }

    fn free(&self, by: usize, first: FrameId, order: Order) {
        let kinds: Vec<_> = {
            let mut held = self.held.lock().unwrap();
            let frames = (0..order.frames()).map(|frame| first.add(frame));
            frames.map(|frame| held.remove(&frame).unwrap()).collect()
        };
        self.frames.free(cpu(by), first, order, kinds[0]);
    }

    fn finish(&self, expected: usize) {
        assert_eq!(self.held.lock().unwrap().len(), expected);
        assert_eq!(self.frames.allocated_frames(), expected as u64);
        self.frames.check();
    }
}

/// What threads do, one per processor.
struct Play {
    ranges: &'static [RamRange],
    cpus: usize,
    /// Called before the threads start.
    prepare: fn(&Shared),
    /// Called by each; returns the number of frames that are held in the end because of it.
    program: fn(&Shared, usize) -> usize,
}

impl Play {
    fn once(&self) {
        let shared = Shared::new(self.ranges, self.cpus);
        (self.prepare)(&shared);
        let start = |by| {
            let (shared, program) = (shared.clone(), self.program);
            thread::spawn(move || program(&shared, by))
        };
        let threads: Vec<_> = (0..self.cpus).map(start).collect();
        let held = threads.into_iter().map(|thread| thread.join().unwrap());
        let held = held.sum();
        shared.finish(held);
    }

    /// Schedules that switch at random: every thread gets on at about the same speed.
    fn fairly(self, schedules: usize) -> Self {
        let play = Arc::new(self);
        let each = play.clone();
        let scheduler = RandomScheduler::new_from_seed(1, schedules);
        Runner::new(scheduler, Config::new()).run(move || each.once());
        Arc::into_inner(play).expect("the runner has dropped the test")
    }

    /// Schedules that switch a few times only, so that threads stand still for long.
    fn unfairly(self, schedules: usize) {
        let scheduler = PctScheduler::new_from_seed(2, 4, schedules);
        Runner::new(scheduler, Config::new()).run(move || self.once());
    }
}

const ONE_BLOCK: &[RamRange] = &[RamRange {
    start: PhysAddr(0),
    bytes: 2 * MIB,
    node: NodeId::new(0),
}];

const FOUR_BLOCKS: &[RamRange] = &[RamRange {
    start: PhysAddr(8 * MIB),
    bytes: 8 * MIB,
    node: NodeId::new(0),
}];

fn nothing(_: &Shared) {}

#[test]
fn singles_and_runs_of_words_share_a_block() {
    Play {
        ranges: ONE_BLOCK,
        cpus: 3,
        prepare: nothing,
        program: |shared, by| {
            let sizes = [[8, 0], [7, 6], [0, 8]][by].map(order);
            let mut held = vec![];
            for size in sizes {
                held.extend(
                    shared
                        .alloc(by, size, FrameKind::Movable)
                        .map(|f| (f, size)),
                );
            }
            for (frame, size) in held {
                shared.free(by, frame, size);
            }
            0
        },
    }
    .fairly(4000)
    .unfairly(4000);
}

#[test]
fn whole_blocks_runs_of_them_and_singles_compete() {
    Play {
        ranges: FOUR_BLOCKS,
        cpus: 3,
        prepare: nothing,
        program: |shared, by| {
            let sizes = [[11, 9], [10, 9], [0, 3]][by].map(order);
            for size in sizes {
                if let Some(frame) = shared.alloc(by, size, FrameKind::Movable) {
                    shared.free(by, frame, size);
                }
            }
            0
        },
    }
    .fairly(4000)
    .unfairly(4000);
}

#[test]
fn a_block_changes_its_class_from_two_sides() {
    // Two processors take and free the halves of the only block, so that it becomes full, broken
    // and whole in turns.
    Play {
        ranges: ONE_BLOCK,
        cpus: 2,
        prepare: nothing,
        program: |shared, by| {
            for _ in 0..3 {
                if let Some(frame) = shared.alloc(by, order(8), FrameKind::Movable) {
                    shared.free(by, frame, order(8));
                }
            }
            0
        },
    }
    .fairly(6000)
    .unfairly(6000);
}

#[test]
fn two_blocks_empty_and_fill_their_group() {
    Play {
        ranges: FOUR_BLOCKS,
        cpus: 3,
        prepare: nothing,
        program: |shared, by| {
            let mut held = vec![];
            for _ in 0..2 {
                held.extend(shared.alloc(by, Order::HUGE, FrameKind::Movable));
            }
            for frame in held {
                shared.free(by, frame, Order::HUGE);
            }
            0
        },
    }
    .fairly(6000)
    .unfairly(6000);
}

#[test]
fn caches_are_drained_while_their_owner_uses_them() {
    fn fill_caches(shared: &Shared) {
        for _ in 0..4 {
            let frame = shared.alloc(0, SINGLE, FrameKind::Movable).unwrap();
            shared.free(0, frame, SINGLE);
        }
    }
    Play {
        ranges: ONE_BLOCK,
        cpus: 2,
        prepare: fill_caches,
        program: |shared, by| {
            let mut held = vec![];
            if by == 0 {
                for _ in 0..3 {
                    held.extend(shared.alloc(by, SINGLE, FrameKind::Movable));
                }
                for &frame in &held {
                    shared.free(by, frame, SINGLE);
                }
                0
            } else {
                // Needs all that the other one keeps.
                match shared.alloc(by, Order::HUGE, FrameKind::Unmovable) {
                    Some(_) => 512,
                    None => 0,
                }
            }
        },
    }
    .fairly(3000)
    .unfairly(3000);
}

#[test]
fn frees_meet_allocations_in_the_same_block() {
    fn take_most(shared: &Shared) {
        // 8 frames of each word stay free.
        for _ in 0..8 {
            let run = shared.alloc(0, order(6), FrameKind::Movable).unwrap();
            shared.free(0, run.add(8), order(3));
        }
    }
    Play {
        ranges: ONE_BLOCK,
        cpus: 3,
        prepare: take_most,
        program: |shared, by| {
            match by {
                0 => {
                    shared.free(0, FrameId::new(16), order(4));
                    shared.free(0, FrameId::new(0), order(3));
                }
                _ => {
                    if let Some(run) = shared.alloc(by, order(3), FrameKind::Movable) {
                        shared.free(by, run, order(3));
                    }
                    if let Some(frame) = shared.alloc(by, SINGLE, FrameKind::Unmovable) {
                        shared.free(by, frame, SINGLE);
                    }
                }
            }
            [512 - 64 - 24, 0, 0][by]
        },
    }
    .fairly(3000)
    .unfairly(3000);
}

#[test]
fn the_last_frames_do_not_get_lost_on_their_way() {
    fn leave_four(shared: &Shared) {
        for size in [8, 7, 6, 5, 4, 3, 2] {
            shared.alloc(1, order(size), FrameKind::Movable).unwrap();
        }
    }
    // Four frames for two processors that hold at most two each. A frame on its way is
    // found as long as the other one gets on (there is no end of waiting for one that does not).
    Play {
        ranges: ONE_BLOCK,
        cpus: 2,
        prepare: leave_four,
        program: |shared, by| {
            for _ in 0..2 {
                let one = shared.alloc(by, SINGLE, FrameKind::Movable).unwrap();
                let two = shared.alloc(by, SINGLE, FrameKind::Movable).unwrap();
                shared.free(by, one, SINGLE);
                shared.free(by, two, SINGLE);
            }
            [508, 0][by]
        },
    }
    .fairly(3000);
}

#[test]
fn parts_of_a_whole_block_come_back_while_others_want_it_whole() {
    // The block is in its second phase, later in its first one again.
    fn take_it_whole(shared: &Shared) {
        let all = shared.alloc(0, Order::HUGE, FrameKind::Unmovable);
        assert_eq!(all, Some(FrameId::new(0)));
    }
    Play {
        ranges: ONE_BLOCK,
        cpus: 3,
        prepare: take_it_whole,
        program: |shared, by| {
            let parts: &[(u64, u8)] = [&[(0, 8)][..], &[(256, 7), (384, 7)], &[]][by];
            for &(first, size) in parts {
                shared.free(by, FrameId::new(first), order(size));
            }
            for size in [9, 3] {
                if let Some(frame) = shared.alloc(by, order(size), FrameKind::Movable) {
                    shared.free(by, frame, order(size));
                }
            }
            0
        },
    }
    .fairly(4000)
    .unfairly(4000);
}

#[test]
fn cached_blocks_are_drained_while_their_owner_uses_them() {
    fn fill_cache(shared: &Shared) {
        let blocks = [(); 3].map(|()| shared.alloc(0, Order::HUGE, FrameKind::Movable).unwrap());
        blocks.map(|block| shared.free(0, block, Order::HUGE));
    }
    Play {
        ranges: FOUR_BLOCKS,
        cpus: 2,
        prepare: fill_cache,
        program: |shared, by| {
            if by == 1 {
                // Four blocks in a row, of which the other one keeps some.
                let run = shared.alloc(1, order(11), FrameKind::Movable);
                return run.map_or(0, |_| 2048);
            }
            let held = [(); 2].map(|()| shared.alloc(0, Order::HUGE, FrameKind::Movable));
            for block in held.into_iter().flatten() {
                shared.free(0, block, Order::HUGE);
            }
            0
        },
    }
    .fairly(4000)
    .unfairly(4000);
}
