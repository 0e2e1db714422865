extern crate std;

use alloc::vec;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread;

use super::*;

/// Marks who holds a frame; a frame handed out twice is noticed at once.
struct Holders {
    first: u64,
    held: Vec<AtomicBool>,
}

impl Holders {
    fn new(ranges: &[RamRange]) -> Self {
        let first = ranges.iter().map(|r| r.start.0 / 4096).min().unwrap();
        let end = ranges.iter().map(|r| (r.start.0 + r.bytes) / 4096).max();
        let held = (first..end.unwrap()).map(|_| AtomicBool::new(false));
        Self {
            first,
            held: held.collect(),
        }
    }

    fn mark(&self, frame: FrameId, order: Order, held: bool) {
        let first = (frame.get() - self.first) as usize;
        for holder in &self.held[first..first + order.frames()] {
            let before = holder.swap(held, Ordering::AcqRel);
            assert_ne!(before, held, "{frame:?} {order:?} was handed out twice");
        }
    }
}

/// Threads that allocate and free at random, pass runs on to each other, and now and then take all
/// they can get, so that reservations and caches are taken away all the time.
fn stress(ranges: &[RamRange], threads: usize, steps: usize, max_order: u8) {
    let frames = allocator(ranges, threads);
    let holders = Holders::new(ranges);
    let passed: Mutex<Vec<(FrameId, Order, FrameKind)>> = Mutex::new(vec![]);
    thread::scope(|scope| {
        for by in 0..threads {
            let (frames, holders, passed) = (&frames, &holders, &passed);
            scope.spawn(move || {
                let mut random = Random(by as u64 + 1);
                let mut held: Vec<(FrameId, Order, FrameKind)> = vec![];
                let nodes = frames.topology.node_count();
                for step in 0..steps {
                    let hungry = step % 4096 < 1500;
                    if random.below(10) < if hungry { 8 } else { 4 } {
                        let order = match random.below(8) {
                            0..5 => Order::BASE,
                            _ => order(random.below(usize::from(max_order) + 1) as u8),
                        };
                        let kind = if random.below(4) == 0 {
                            FrameKind::Unmovable
                        } else {
                            FrameKind::Movable
                        };
                        let on = node(random.below(nodes));
                        if let Some(frame) = frames.take(cpu(by), on, order, kind, Reach::AnyNode) {
                            holders.mark(frame, order, true);
                            held.push((frame, order, kind));
                        }
                    } else if !held.is_empty() {
                        let at = random.below(held.len());
                        let (frame, order, kind) = held.swap_remove(at);
                        if random.below(3) == 0 {
                            let mut passed = passed.lock().unwrap();
                            passed.push((frame, order, kind));
                            if passed.len() > 8 {
                                let at = random.below(passed.len());
                                held.push(passed.swap_remove(at));
                            }
                        } else {
                            holders.mark(frame, order, false);
                            frames.free(cpu(by), frame, order, kind);
                        }
                    }
                }
                for (frame, order, kind) in held {
                    holders.mark(frame, order, false);
                    frames.free(cpu(by), frame, order, kind);
                }
            });
        }
    });
    for (frame, order, kind) in passed.into_inner().unwrap() {
        holders.mark(frame, order, false);
        frames.free(cpu(0), frame, order, kind);
    }
    assert_eq!(frames.allocated_frames(), 0);
    assert_eq!(frames.free_frames(), frames.total_frames());
    frames.check();
    // Everything is in whole blocks again, where blocks are whole.
    let whole = frames.nodes.iter().flat_map(|node| node.blocks());
    let possible = whole.filter(|block| block.free_bits() > 0).count();
    let huge = core::iter::from_fn(|| frames.any(0, Order::HUGE)).count();
    assert_eq!(huge, possible);
}

#[test]
fn threads_share_one_small_node() {
    stress(&[ram(0, 8 * MIB, 0)], 4, 60_000, 9);
}

#[test]
fn threads_share_two_nodes_and_large_runs() {
    let ranges = [ram(0, 16 * MIB, 0), ram(32 * MIB, 16 * MIB, 1)];
    stress(&ranges, 6, 40_000, 11);
}

#[test]
fn threads_fight_for_the_frames_of_one_block() {
    stress(&[ram(0, 2 * MIB, 0)], 8, 40_000, 8);
}

#[test]
fn one_thread_allocates_and_the_other_frees() {
    let frames = allocator(&[ram(0, 4 * MIB, 0)], 2);
    let queue: Mutex<Vec<FrameId>> = Mutex::new(vec![]);
    const COUNT: usize = 100_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut made = 0;
            while made < COUNT {
                match frames.any(0, Order::BASE) {
                    Some(frame) => {
                        queue.lock().unwrap().push(frame);
                        made += 1;
                    }
                    None => thread::yield_now(),
                }
            }
        });
        scope.spawn(|| {
            let mut freed = 0;
            while freed < COUNT {
                let batch = core::mem::take(&mut *queue.lock().unwrap());
                if batch.is_empty() {
                    thread::yield_now();
                }
                for frame in batch {
                    frames.put(cpu(1), frame, Order::BASE);
                    freed += 1;
                }
            }
        });
    });
    assert_eq!(frames.allocated_frames(), 0);
    frames.check();
}
