use alloc::collections::BTreeSet;
use alloc::vec;

use super::*;

/// Every frame that exists, and who has it.
struct Model {
    ranges: Vec<RamRange>,
    free: BTreeSet<u64>,
    held: Vec<(FrameId, Order, FrameKind)>,
}

impl Model {
    fn new(ranges: &[RamRange]) -> Self {
        let frames =
            |range: &RamRange| range.start.0.div_ceil(4096)..(range.start.0 + range.bytes) / 4096;
        Self {
            ranges: ranges.to_vec(),
            free: ranges.iter().flat_map(frames).collect(),
            held: Vec::new(),
        }
    }

    fn node_of(&self, frame: u64) -> NodeId {
        let address = frame * 4096;
        let holds =
            |range: &&RamRange| range.start.0 <= address && address < range.start.0 + range.bytes;
        self.ranges.iter().find(holds).unwrap().node
    }

    fn has_run(&self, order: Order, on: Option<NodeId>) -> bool {
        let frames = order.frames() as u64;
        let mut from = 0;
        while let Some(&next) = self.free.range(from..).next() {
            let first = next.next_multiple_of(frames);
            let run = self.free.range(first..first + frames);
            if run.count() as u64 == frames && on.is_none_or(|on| self.node_of(first) == on) {
                return true;
            }
            from = if first == next { first + frames } else { first };
        }
        false
    }

    fn take(&mut self, frame: FrameId, order: Order, kind: FrameKind) {
        assert!(frame.is_aligned(order), "{frame:?} {order:?}");
        let home = self.node_of(frame.get());
        for frame in frame.get()..frame.get() + order.frames() as u64 {
            assert!(self.free.remove(&frame), "frame {frame:#x} is not free");
            assert_eq!(self.node_of(frame), home);
        }
        self.held.push((frame, order, kind));
    }

    fn give_back(&mut self, frame: FrameId, order: Order) {
        let frames = frame.get()..frame.get() + order.frames() as u64;
        self.free.extend(frames);
    }
}

/// A random program of `steps` calls on 4 processors, compared with the model at every step.
fn run(ranges: &[RamRange], steps: usize, max_order: u8, seed: u64) {
    let frames = allocator(ranges, 4);
    let nodes = frames.topology.node_count();
    let mut model = Model::new(ranges);
    let mut random = Random(seed);
    let total = model.free.len();
    for step in 0..steps {
        let by = cpu(random.below(4));
        // Waves: mostly allocations until memory is gone, then mostly frees.
        let growing = (step / (steps / 6).max(1)).is_multiple_of(2);
        if random.below(10) < if growing { 7 } else { 3 } || model.held.is_empty() {
            let order = order(match random.below(4) {
                0 | 1 => 0,
                _ => random.below(usize::from(max_order) + 1) as u8,
            });
            let kind = if random.below(8) == 0 {
                FrameKind::Unmovable
            } else {
                FrameKind::Movable
            };
            let on = node(random.below(nodes));
            let (reach, only) = if random.below(2) == 0 {
                (Reach::ThisNode, Some(on))
            } else {
                (Reach::AnyNode, None)
            };
            match frames.take(by, on, order, kind, reach) {
                Some(frame) => {
                    let home = model.node_of(frame.get());
                    assert_eq!(frames.node_of(frame), Some(home));
                    assert!(home == on || reach == Reach::AnyNode);
                    assert!(
                        home == on || !model.has_run(order, Some(on)),
                        "went too far"
                    );
                    model.take(frame, order, kind);
                }
                None => assert!(!model.has_run(order, only), "{order:?} on {only:?} {step}"),
            }
        } else {
            let at = random.below(model.held.len());
            let (frame, order, kind) = model.held.swap_remove(at);
            if order > Order::BASE && random.below(4) == 0 {
                // Given back in two halves, the second one later.
                let half = Order::new(order.get() - 1).unwrap();
                model.held.push((frame.add(half.frames()), half, kind));
                frames.free(by, frame, half, kind);
                model.give_back(frame, half);
            } else {
                frames.free(by, frame, order, kind);
                model.give_back(frame, order);
            }
        }
        if step % 512 == 0 {
            frames.check();
            assert_eq!(frames.free_frames(), model.free.len() as u64);
        }
    }
    for (frame, order, kind) in model.held {
        frames.free(cpu(random.below(4)), frame, order, kind);
    }
    assert_eq!(frames.allocated_frames(), 0);
    assert_eq!(frames.free_frames(), total as u64);
    frames.check();
}

#[test]
fn random_programs_agree_with_a_plain_set_on_one_node() {
    for seed in 0..8 {
        run(&[ram(0, 8 * MIB, 0)], 6000, 9, seed);
    }
}

#[test]
fn random_programs_agree_with_a_plain_set_on_ragged_memory() {
    let ranges = [
        ram(0x1000, 0x9e000, 0),
        ram(0x10_0000, 5 * MIB + 0x3000, 0),
        ram(16 * MIB + 0x800, 3 * MIB, 0),
        ram(32 * MIB, 6 * MIB, 1),
        ram(38 * MIB + 0x7000, 4 * MIB - 0x7000, 1),
        ram(1 << 40, 5 * MIB, 2),
    ];
    for seed in 0..8 {
        run(&ranges, 6000, 10, 100 + seed);
    }
}

#[test]
fn random_programs_agree_with_a_plain_set_on_large_orders() {
    let ranges = [ram(12 * MIB, 120 * MIB, 0), ram(1 << 30, 64 * MIB, 1)];
    for seed in 0..3 {
        run(&ranges, 1500, 14, 200 + seed);
    }
}

/// Takes all memory in pieces of one order, gives it back in another sequence, and takes it again.
fn exhaust(ranges: &[RamRange], order: Order, cpus: usize, expected: usize) {
    let frames = allocator(ranges, cpus);
    let mut random = Random(u64::from(order.get()));
    for _ in 0..2 {
        let mut model = Model::new(ranges);
        while let Some(frame) = frames.any(random.below(cpus), order) {
            model.take(frame, order, FrameKind::Movable);
        }
        assert_eq!(model.held.len(), expected);
        assert!(!model.has_run(order, None));
        frames.check();
        while !model.held.is_empty() {
            let at = random.below(model.held.len());
            let (frame, order, kind) = model.held.swap_remove(at);
            frames.free(cpu(random.below(cpus)), frame, order, kind);
        }
        assert_eq!(frames.allocated_frames(), 0);
        assert_eq!(frames.free_frames(), frames.total_frames());
        frames.check();
    }
}

#[test]
fn memory_is_used_to_the_last_frame_and_comes_back_in_every_order() {
    let ranges = [ram(4 * MIB, 12 * MIB, 0), ram(32 * MIB, 8 * MIB, 1)];
    let total = 20 * 256;
    for o in 0..=9 {
        exhaust(&ranges, order(o), 3, total >> o);
    }
    exhaust(&ranges, order(10), 3, 5);
    exhaust(&ranges, order(11), 3, 2);
    exhaust(&ranges, order(12), 3, 0);
}

#[test]
fn giant_runs_come_and_go() {
    let frames = allocator(&[ram(512 * MIB, 3 << 30, 0)], 2);
    let first = frames.any(0, Order::GIANT).unwrap();
    let second = frames.any(1, Order::GIANT).unwrap();
    let both = BTreeSet::from([first.address().0, second.address().0]);
    assert_eq!(both, BTreeSet::from([1 << 30, 2 << 30]));
    assert_eq!(frames.any(0, Order::GIANT), None);
    // What lies beside them still serves.
    assert_eq!(
        frames.any(0, order(17)).map(|f| f.address().0),
        Some(512 << 20)
    );
    frames.check();
    frames.put(cpu(0), second, Order::GIANT);
    // One frame spoils the run; given back, the run is there again.
    let spoiler = frames.any(1, Order::BASE).unwrap();
    assert_eq!(spoiler.address().0, 2 << 30);
    assert_eq!(frames.any(0, Order::GIANT), None);
    frames.put(cpu(1), spoiler, Order::BASE);
    assert_eq!(frames.any(0, Order::GIANT), Some(second));
    frames.check();
}

#[test]
fn a_whole_block_is_there_again_when_all_its_frames_are_free() {
    let frames = allocator(&[ram(0, 8 * MIB, 0)], 4);
    let mut singles = vec![];
    while let Some(frame) = frames.any(singles.len() % 4, Order::BASE) {
        singles.push(frame);
    }
    assert_eq!(singles.len(), 2048);
    assert_eq!(frames.any(0, Order::HUGE), None);
    for (index, &frame) in singles.iter().enumerate() {
        frames.put(cpu(index / 7 % 4), frame, Order::BASE);
    }
    // Some frames sit in the four caches and blocks are reserved: all of it is found.
    let huge: Vec<FrameId> = core::iter::from_fn(|| frames.any(1, Order::HUGE)).collect();
    assert_eq!(huge.len(), 4);
    frames.check();
    // And pieces of a huge page may go one by one, to whomever.
    for frame in 0..512 {
        frames.put(cpu(frame % 4), huge[2].add(frame), Order::BASE);
    }
    assert_eq!(frames.any(3, Order::HUGE), Some(huge[2]));
    frames.check();
}
