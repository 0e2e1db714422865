use super::*;

fn two() -> FrameAllocator {
    allocator(&[ram(2 * MIB, 6 * MIB, 0), ram(64 * MIB, 6 * MIB, 1)], 2)
}

#[test]
#[should_panic(expected = "freed twice")]
#[cfg(debug_assertions)]
fn freeing_twice_is_noticed_while_the_frame_is_cached() {
    let frames = two();
    let frame = frames.any(0, Order::BASE).unwrap();
    frames.free(cpu(0), frame, Order::BASE);
    frames.free(cpu(0), frame, Order::BASE);
}

#[test]
#[should_panic(expected = "freed twice")]
#[cfg(debug_assertions)]
fn freeing_a_part_of_a_free_block_is_noticed() {
    let frames = two();
    let frame = frames.any(0, Order::HUGE).unwrap();
    frames.free(cpu(0), frame, Order::HUGE);
    frames.free(cpu(0), frame.add(77), Order::BASE);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_is_noticed_in_the_map() {
    let frames = two();
    let frame = frames.any(0, order(3)).unwrap();
    frames.free(cpu(0), frame, order(3));
    frames.free(cpu(0), frame, order(3));
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_a_block_twice_is_noticed() {
    let frames = two();
    let frame = frames.any(0, Order::HUGE).unwrap();
    frames.free(cpu(0), frame, Order::HUGE);
    frames.free(cpu(1), frame, Order::HUGE);
}

#[test]
#[should_panic(expected = "freed twice")]
#[cfg(debug_assertions)]
fn freeing_a_run_with_a_cached_part_is_noticed() {
    let frames = two();
    let frame = frames.any(0, Order::HUGE).unwrap();
    frames.free(cpu(0), frame.add(5), Order::BASE);
    frames.free(cpu(0), frame, Order::HUGE);
}

#[test]
#[should_panic(expected = "not managed memory")]
fn freeing_a_foreign_frame_is_noticed() {
    two().free(cpu(0), FrameId::new(1), Order::BASE);
}

#[test]
#[should_panic(expected = "not managed memory")]
#[cfg(debug_assertions)]
fn freeing_a_frame_of_a_hole_is_noticed() {
    let frames = allocator(&[ram(0, MIB, 0), ram(MIB + 4096, MIB, 0)], 1);
    frames.free(cpu(0), FrameId::new(256), Order::BASE);
}

#[test]
#[should_panic(expected = "does not start a run")]
fn freeing_a_run_from_its_middle_is_noticed() {
    let frames = two();
    let frame = frames.any(0, order(4)).unwrap();
    frames.free(cpu(0), frame.add(1), order(4));
}
