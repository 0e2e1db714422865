//! Dolmen's frame allocator, as the kernel uses it.

use dolmen_mm::frame::{FrameAllocator, FrameKind, RamRange, Reach};
use dolmen_mm::ids::{CpuId, FrameId, NodeId, Order, PhysAddr};
use dolmen_mm::numa::Topology;
use dolmen_mm::sim::fence_others;

use super::{FreeMemory, HUGE_FRAMES, Peer};

/// One node.
const NODE: NodeId = NodeId::new(0);

/// [`FrameAllocator`] on one node.
pub struct Dolmen(FrameAllocator);

impl Dolmen {
    /// For frames 0 to `frames` − 1.
    ///
    /// # Panics
    ///
    /// If that is no memory or those are no processors.
    pub fn new(frames: u64, cpus: usize) -> Self {
        let topology = Topology::uniform(1, &vec![NODE; cpus]).expect("one node is a topology");
        let ram = RamRange {
            start: PhysAddr(0),
            bytes: frames * 4096,
            node: NODE,
        };
        Self(FrameAllocator::new(&[ram], &topology, cpus).expect("some memory, some processors"))
    }
}

fn order(order: u8) -> Order {
    Order::new(order).expect("orders of the loops are allocatable")
}

impl Peer for Dolmen {
    fn name(&self) -> &'static str {
        "dolmen"
    }

    fn alloc(&self, cpu: usize, run: u8) -> Option<u64> {
        let cpu = CpuId::new(cpu as u16);
        let kind = FrameKind::Movable;
        let frame = self
            .0
            .alloc(cpu, NODE, order(run), kind, Reach::AnyNode, &fence_others);
        frame.map(FrameId::get)
    }

    fn free(&self, cpu: usize, frame: u64, run: u8) {
        let kind = FrameKind::Movable;
        self.0.free(
            CpuId::new(cpu as u16),
            FrameId::new(frame),
            order(run),
            kind,
        );
    }

    fn free_memory(&self) -> FreeMemory {
        let memory = self.0.node_memory(NODE);
        FreeMemory {
            frames: memory.free_frames,
            in_whole_blocks: memory.free_blocks * HUGE_FRAMES,
        }
    }
}
