use alloc::vec;

use super::*;
use crate::stats::{Counter, LockClass, Snapshot};

fn counters(frames: &FrameAllocator) -> Snapshot {
    let mut snapshot = Snapshot::empty(16);
    frames.count_into(&mut snapshot);
    snapshot
}

#[test]
fn the_frame_freed_last_is_the_next_to_be_used() {
    let frames = allocator(&[ram(0, 64 * MIB, 0)], 1);
    let some: Vec<FrameId> = (0..200)
        .map(|_| frames.any(0, Order::BASE).unwrap())
        .collect();
    for &frame in &some {
        frames.put(cpu(0), frame, Order::BASE);
    }
    for &frame in some.iter().rev().take(32) {
        assert_eq!(frames.any(0, Order::BASE), Some(frame));
    }
}

#[test]
fn a_fresh_block_is_handed_out_in_ascending_order() {
    let frames = allocator(&[ram(0, 64 * MIB, 0)], 1);
    let some: Vec<u64> = (0..1024)
        .map(|_| frames.any(0, Order::BASE).unwrap().get())
        .collect();
    assert_eq!(some, (0..1024).collect::<Vec<u64>>());
}

#[test]
fn single_frames_use_broken_blocks_up_before_they_break_another() {
    let frames = allocator(&[ram(0, 64 * MIB, 0)], 1);
    let mut held: Vec<FrameId> = (0..16 * 512)
        .map(|_| frames.any(0, Order::BASE).unwrap())
        .collect();
    assert_eq!(frames.free_blocks(), 16);
    // Every third frame goes: 16 broken blocks with room.
    let mut index = 0;
    held.retain(|&frame| {
        index += 1;
        if index % 3 == 0 {
            frames.put(cpu(0), frame, Order::BASE);
        }
        index % 3 != 0
    });
    assert_eq!(frames.free_blocks(), 16);
    let room = 16 * 512 - held.len();
    for _ in 0..room {
        frames.any(0, Order::BASE).unwrap();
        assert_eq!(frames.free_blocks(), 16);
    }
    frames.any(0, Order::BASE).unwrap();
    assert_eq!(frames.free_blocks(), 15);
    frames.check();
}

#[test]
fn runs_fill_broken_blocks_before_they_break_another() {
    let frames = allocator(&[ram(0, 64 * MIB, 0)], 1);
    let runs: Vec<FrameId> = (0..8 * 32)
        .map(|_| frames.any(0, order(4)).unwrap())
        .collect();
    assert_eq!(frames.free_blocks(), 24);
    for &run in runs.iter().step_by(2) {
        frames.put(cpu(0), run, order(4));
    }
    for _ in 0..8 * 16 {
        frames.any(0, order(4)).unwrap();
    }
    assert_eq!(frames.free_blocks(), 24);
    frames.check();
}

#[test]
fn unmovable_frames_stay_in_blocks_of_their_own() {
    let frames = allocator(&[ram(0, 64 * MIB, 0)], 2);
    let mut blocks = [vec![], vec![]];
    for step in 0..4000 {
        let kind = if step % 5 == 0 {
            FrameKind::Unmovable
        } else {
            FrameKind::Movable
        };
        let frame = frames.take(cpu(step % 2), node(0), Order::BASE, kind, Reach::ThisNode);
        blocks[kind as usize].push(frame.unwrap().block());
    }
    assert!(blocks[0].iter().all(|block| !blocks[1].contains(block)));
}

#[test]
fn movable_frames_fill_unmovable_blocks_only_when_no_whole_one_is_left() {
    let frames = allocator(&[ram(0, 4 * MIB, 0)], 1);
    let alloc = |kind| frames.take(cpu(0), node(0), Order::BASE, kind, Reach::ThisNode);
    let tables: Vec<FrameId> = (0..512)
        .map(|_| alloc(FrameKind::Unmovable).unwrap())
        .collect();
    // More than fits in the cache, so that the block can be found.
    for &table in &tables[..256] {
        frames.free(cpu(0), table, Order::BASE, FrameKind::Unmovable);
    }
    let full = tables[0].block();
    for _ in 0..512 {
        assert_ne!(alloc(FrameKind::Movable).unwrap().block(), full);
    }
    assert_eq!(alloc(FrameKind::Movable).unwrap().block(), full);
    assert_eq!(frames.free_blocks(), 0);
    frames.check();
}

#[test]
fn what_was_unmovable_is_cached_apart() {
    let frames = allocator(&[ram(0, 64 * MIB, 0)], 1);
    let alloc = |kind| frames.take(cpu(0), node(0), Order::BASE, kind, Reach::ThisNode);
    let table = alloc(FrameKind::Unmovable).unwrap();
    let data = alloc(FrameKind::Movable).unwrap();
    frames.free(cpu(0), table, Order::BASE, FrameKind::Unmovable);
    frames.put(cpu(0), data, Order::BASE);
    assert_eq!(alloc(FrameKind::Unmovable), Some(table));
    assert_eq!(alloc(FrameKind::Movable), Some(data));
}

#[test]
fn nodes_fall_back_in_the_order_of_their_distance() {
    let ranges = [0, 1, 2, 3].map(|on| ram((1 + on as u64) << 30, 2 * MIB, on));
    #[rustfmt::skip]
    let distances = [
        10, 31, 21, 41,
        31, 10, 41, 21,
        21, 41, 10, 31,
        41, 21, 31, 10,
    ];
    let topology = Topology::new(4, &distances, &split_cpus(4, 4)).unwrap();
    for size in [Order::BASE, order(3), Order::HUGE] {
        let frames = FrameAllocator::new(&ranges, &topology, 4).unwrap();
        let mut homes = vec![];
        while let Some(frame) = frames.any(1, size) {
            let home = frames.node_of(frame).unwrap();
            if homes.last() != Some(&home) {
                homes.push(home);
            }
        }
        assert_eq!(homes, [1, 3, 0, 2].map(node));
        assert_eq!(frames.allocated_frames(), 4 * 512);
        let per_node = 512 / size.frames() as u64;
        let counted = counters(&frames);
        assert_eq!(counted.get(Counter::NumaHit), per_node);
        assert_eq!(counted.get(Counter::NumaMiss), 3 * per_node);
        assert_eq!(counted.get(Counter::AllocFail), 1);
        frames.check();
    }
}

#[test]
fn a_request_for_one_node_fails_rather_than_go_elsewhere() {
    let frames = allocator(&[ram(0, 2 * MIB, 0), ram(64 * MIB, 64 * MIB, 1)], 2);
    let here = |order| frames.take(cpu(0), node(0), order, FrameKind::Movable, Reach::ThisNode);
    for _ in 0..512 {
        assert!(here(Order::BASE).is_some());
    }
    assert_eq!(here(Order::BASE), None);
    assert_eq!(here(Order::HUGE), None);
    assert!(frames.any(0, Order::HUGE).is_some());
}

#[test]
fn a_node_without_memory_is_served_by_its_neighbour() {
    let topology = Topology::uniform(2, &split_cpus(2, 2)).unwrap();
    let frames = FrameAllocator::new(&[ram(0, 4 * MIB, 0)], &topology, 2).unwrap();
    let frame = frames.any(1, Order::BASE).unwrap();
    assert_eq!(frames.node_of(frame), Some(node(0)));
    frames.put(cpu(1), frame, Order::BASE);
    assert_eq!(frames.node_memory(node(1)).total_frames, 0);
    assert_eq!(frames.free_blocks(), 2);
}

#[test]
fn the_last_frame_is_found_in_another_processors_cache() {
    let frames = allocator(&[ram(0, 2 * MIB, 0)], 2);
    let all: Vec<FrameId> = core::iter::from_fn(|| frames.any(0, Order::BASE)).collect();
    assert_eq!(all.len(), 512);
    frames.put(cpu(0), all[300], Order::BASE);
    assert_eq!(frames.node_memory(node(0)).cached_frames, 1);
    let unmovable = FrameKind::Unmovable;
    let found = frames.take(cpu(1), node(0), Order::BASE, unmovable, Reach::ThisNode);
    assert_eq!(found, Some(all[300]));
    assert_eq!(counters(&frames).get(Counter::CacheDrain), 1);
    // The owner notices that its cache is empty.
    assert_eq!(frames.any(0, Order::BASE), None);
    frames.check();
}

#[test]
fn the_last_frames_are_found_in_another_processors_block() {
    let frames = allocator(&[ram(0, 2 * MIB, 0)], 2);
    frames.any(0, Order::BASE).unwrap();
    // Processor 0 has reserved the only block.
    assert!(frames.any(1, Order::BASE).is_some());
    assert_eq!(counters(&frames).get(Counter::BlockSteal), 1);
    frames.check();
    // And goes on without it.
    let rest = core::iter::from_fn(|| frames.any(0, Order::BASE)).count();
    assert_eq!(rest, 510);
    frames.check();
}

#[test]
fn a_processor_on_its_own_meets_nobody() {
    // Page faults on 8 processors of 2 nodes, each for itself: 4 MiB in, 4 MiB out.
    let frames = allocator(&[ram(0, 512 * MIB, 0), ram(1 << 30, 512 * MIB, 1)], 8);
    for round in 0..6 {
        let mut held: Vec<Vec<FrameId>> = vec![vec![]; 8];
        for _ in 0..1024 {
            for (by, held) in held.iter_mut().enumerate() {
                held.push(frames.any(by, Order::BASE).unwrap());
            }
        }
        if round == 0 {
            let owner_of_line = |frame: FrameId| frame.block().get();
            for (a, mine) in held.iter().enumerate() {
                for other in &held[a + 1..] {
                    let mut pairs = mine.iter().zip(other);
                    assert!(pairs.all(|(&x, &y)| owner_of_line(x) != owner_of_line(y)));
                }
            }
        }
        for (by, held) in held.iter().enumerate() {
            for &frame in held {
                frames.put(cpu(by), frame, Order::BASE);
            }
        }
    }
    let counted = counters(&frames);
    for counter in [
        Counter::RemoteFree,
        Counter::BlockSteal,
        Counter::CacheDrain,
        Counter::NumaMiss,
        Counter::LockWait(LockClass::FrameEntry),
        Counter::LockWait(LockClass::FrameMap),
        Counter::LockWait(LockClass::FrameHint),
    ] {
        assert_eq!(counted.get(counter), 0, "{}", counter.name());
    }
    assert_eq!(counted.get(Counter::PgAlloc), 6 * 8 * 1024);
    assert_eq!(counted.get(Counter::PgFree), 6 * 8 * 1024);
    frames.check();
}

#[test]
fn frees_from_elsewhere_are_counted() {
    let frames = allocator(&[ram(0, 64 * MIB, 0), ram(1 << 30, 64 * MIB, 1)], 2);
    let frame = frames.any(0, Order::BASE).unwrap();
    frames.put(cpu(1), frame, Order::BASE);
    assert_eq!(counters(&frames).get(Counter::RemoteFree), 1);
    assert_eq!(frames.node_memory(node(1)).cached_frames, 0);
    assert_eq!(FRAMES_PER_BLOCK as u64 * 64, frames.free_frames());
    frames.check();
}

#[test]
fn a_long_mixed_life_leaves_free_memory_in_whole_blocks() {
    let frames = allocator(&[ram(0, 256 * MIB, 0)], 2);
    let mut random = Random(5);
    let mut held: Vec<(FrameId, Order)> = vec![];
    let three_quarters = frames.total_frames() * 3 / 4;
    for _ in 0..60_000 {
        let by = random.below(2);
        let size = order(random.below(10) as u8);
        while frames.allocated_frames() + size.frames() as u64 > three_quarters {
            let (frame, size) = held.swap_remove(random.below(held.len()));
            frames.put(cpu(by), frame, size);
        }
        held.extend(frames.any(by, size).map(|frame| (frame, size)));
    }
    let memory = frames.node_memory(node(0));
    let in_whole_blocks = memory.free_blocks * FRAMES_PER_BLOCK as u64;
    assert!(in_whole_blocks * 10 >= memory.free_frames * 8, "{memory:?}");
    frames.check();
}
