extern crate std;

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use super::super::{FrameMemory, POISON};
use super::*;

/// One word for each frame, from frame 0 on.
#[derive(Debug)]
struct Memory(Vec<AtomicU64>);

impl FrameMemory for Memory {
    fn fill(&self, first: FrameId, order: Order, word: u64) {
        let frames = &self.0[first.index()..][..order.frames()];
        frames
            .iter()
            .for_each(|at| at.store(word, Ordering::Relaxed));
    }

    fn first_other(&self, first: FrameId, order: Order, word: u64) -> Option<usize> {
        let mut frames = self.0[first.index()..][..order.frames()].iter();
        let other = frames.position(|at| at.load(Ordering::Relaxed) != word);
        other.map(|index| index * 4096)
    }
}

/// An allocator that poisons, and its memory.
fn poisoning() -> (FrameAllocator, &'static Memory) {
    let memory = Memory((0..2048).map(AtomicU64::new).collect());
    let memory: &'static Memory = Box::leak(Box::new(memory));
    let frames = allocator(&[ram(0, 8 * MIB, 0)], 2).with_debug(Some(memory));
    (frames, memory)
}

#[test]
fn freed_frames_are_poisoned_and_fresh_ones_are_not_looked_at() {
    let (frames, memory) = poisoning();
    for size in [0, 3, 9, 10].map(order) {
        let frame = frames.any(0, size).unwrap();
        let words = &memory.0[frame.index()..][..size.frames()];
        words
            .iter()
            .for_each(|word| word.store(1, Ordering::Relaxed));
        frames.put(cpu(0), frame, size);
        assert!(
            words
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == POISON)
        );
        // Nobody has touched it, so it may be used again.
        let again = frames.any(0, size).unwrap();
        frames.put(cpu(0), again, size);
    }
}

#[test]
fn a_write_to_a_freed_frame_is_noticed_when_it_is_used_again() {
    for (size, written) in [(0, 0), (4, 9), (9, 511), (11, 2000)] {
        let (frames, memory) = poisoning();
        let first = frames.any(0, order(size)).unwrap();
        frames.put(cpu(0), first, order(size));
        let frame = first.add(written);
        memory.0[frame.index()].store(7, Ordering::Relaxed);
        let again = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            while frames.any(0, order(size)).is_some() {}
        }));
        let message = again.unwrap_err().downcast::<alloc::string::String>();
        let expected = alloc::format!("{frame:?} was written to at byte 0 after it was freed");
        assert_eq!(*message.unwrap(), expected);
    }
}

#[test]
#[should_panic(expected = "freed twice")]
fn the_debug_mode_notices_in_any_build_that_a_cached_frame_is_freed_twice() {
    let frames = two().with_debug(None);
    let frame = frames.any(0, Order::BASE).unwrap();
    frames.put(cpu(0), frame, Order::BASE);
    frames.put(cpu(0), frame, Order::BASE);
}

fn two() -> FrameAllocator {
    allocator(&[ram(2 * MIB, 6 * MIB, 0), ram(64 * MIB, 6 * MIB, 1)], 2)
}

#[test]
#[should_panic(expected = "freed twice")]
#[cfg(debug_assertions)]
fn freeing_twice_is_noticed_while_the_frame_is_cached() {
    let frames = two();
    let frame = frames.any(0, Order::BASE).unwrap();
    frames.put(cpu(0), frame, Order::BASE);
    frames.put(cpu(0), frame, Order::BASE);
}

#[test]
#[should_panic(expected = "freed twice")]
#[cfg(debug_assertions)]
fn freeing_a_part_of_a_free_block_is_noticed() {
    let frames = two();
    let frame = frames.any(0, Order::HUGE).unwrap();
    frames.put(cpu(0), frame, Order::HUGE);
    frames.put(cpu(0), frame.add(77), Order::BASE);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_is_noticed_in_the_map() {
    let frames = two();
    let frame = frames.any(0, order(3)).unwrap();
    frames.put(cpu(0), frame, order(3));
    frames.put(cpu(0), frame, order(3));
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_a_block_twice_is_noticed_in_the_map() {
    let frames = two();
    let frame = frames.any(0, Order::HUGE).unwrap();
    // Its own processor would cache it.
    frames.put(cpu(1), frame, Order::HUGE);
    frames.put(cpu(1), frame, Order::HUGE);
}

#[test]
#[should_panic(expected = "freed twice")]
#[cfg(debug_assertions)]
fn freeing_a_run_with_a_cached_part_is_noticed() {
    let frames = two();
    let frame = frames.any(0, Order::HUGE).unwrap();
    frames.put(cpu(0), frame.add(5), Order::BASE);
    frames.put(cpu(0), frame, Order::HUGE);
}

#[test]
#[should_panic(expected = "was freed as Movable, but not all of it was allocated so")]
fn the_debug_mode_notices_a_frame_that_is_freed_as_another_kind() {
    let frames = two().with_debug(None);
    let kind = FrameKind::Unmovable;
    let frame = frames.take(cpu(0), node(0), Order::BASE, kind, Reach::ThisNode);
    frames.put(cpu(0), frame.unwrap(), Order::BASE);
}

#[test]
#[should_panic(expected = "not managed memory")]
fn freeing_a_foreign_frame_is_noticed() {
    two().put(cpu(0), FrameId::new(1), Order::BASE);
}

#[test]
#[should_panic(expected = "not managed memory")]
#[cfg(debug_assertions)]
fn freeing_a_frame_of_a_hole_is_noticed() {
    let frames = allocator(&[ram(0, MIB, 0), ram(MIB + 4096, MIB, 0)], 1);
    frames.put(cpu(0), FrameId::new(256), Order::BASE);
}

#[test]
#[should_panic(expected = "does not start a run")]
fn freeing_a_run_from_its_middle_is_noticed() {
    let frames = two();
    let frame = frames.any(0, order(4)).unwrap();
    frames.put(cpu(0), frame.add(1), order(4));
}
