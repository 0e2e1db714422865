#![cfg_attr(feature = "shuttle", allow(dead_code, unused_imports))]

#[cfg(not(feature = "shuttle"))]
mod entry;
#[cfg(not(feature = "shuttle"))]
mod init;
#[cfg(feature = "shuttle")]
mod interleavings;
#[cfg(not(feature = "shuttle"))]
mod many;
#[cfg(not(feature = "shuttle"))]
mod misuse;
#[cfg(not(feature = "shuttle"))]
mod model;
#[cfg(not(feature = "shuttle"))]
mod placement;
#[cfg(not(feature = "shuttle"))]
mod threads;

use alloc::vec::Vec;

use super::entry::Class;
use super::{FrameAllocator, FrameKind, RamRange, Reach};
use crate::ids::{CpuId, FRAMES_PER_BLOCK, FrameId, NodeId, Order, PhysAddr};
use crate::numa::{Topology, split_cpus};
#[cfg(not(feature = "shuttle"))]
use crate::sim::fence_others as barrier;
#[cfg(feature = "shuttle")]
use barrier_of_a_scheduler as barrier;

const MIB: u64 = 1 << 20;

fn cpu(cpu: usize) -> CpuId {
    CpuId::new(cpu as u16)
}

fn node(node: usize) -> NodeId {
    NodeId::new(node as u8)
}

fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

fn ram(start: u64, bytes: u64, on: usize) -> RamRange {
    RamRange {
        start: PhysAddr(start),
        bytes,
        node: node(on),
    }
}

/// The scheduler's threads see every store at once.
#[cfg(feature = "shuttle")]
fn barrier_of_a_scheduler() {}

/// An allocator for `cpus` processors, spread over the nodes of `ram`.
fn allocator(ram: &[RamRange], cpus: usize) -> FrameAllocator {
    let nodes = ram.iter().map(|range| range.node.index()).max().unwrap() + 1;
    let topology = Topology::uniform(nodes, &split_cpus(cpus, nodes)).unwrap();
    FrameAllocator::new(ram, &topology, cpus).unwrap()
}

/// SplitMix64: small, and the same numbers on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

impl FrameAllocator {
    /// Allocates anywhere near the processor.
    fn any(&self, by: usize, order: Order) -> Option<FrameId> {
        let home = self.topology.node_of_cpu(cpu(by));
        self.take(cpu(by), home, order, FrameKind::Movable, Reach::AnyNode)
    }

    /// Allocates; a drain makes all threads execute a barrier.
    fn take(
        &self,
        by: CpuId,
        on: NodeId,
        order: Order,
        kind: FrameKind,
        reach: Reach,
    ) -> Option<FrameId> {
        self.alloc(by, on, order, kind, reach, &barrier)
    }

    /// Frees what was allocated as movable.
    fn put(&self, by: CpuId, frame: FrameId, order: Order) {
        self.free(by, frame, order, FrameKind::Movable);
    }

    fn free_frames(&self) -> u64 {
        let nodes = self.topology.nodes();
        nodes.map(|node| self.node_memory(node).free_frames).sum()
    }

    fn free_blocks(&self) -> u64 {
        let nodes = self.topology.nodes();
        nodes.map(|node| self.node_memory(node).free_blocks).sum()
    }

    /// Checks that maps, counts, owners and hints agree, while nobody uses the allocator.
    fn check(&self) {
        for (id, home) in self.topology.nodes().zip(&self.nodes) {
            for (index, block) in home.blocks().iter().enumerate() {
                let entry = block.entry();
                assert_eq!(block.free_bits(), entry.free(), "block {index}");
                let longest = (0..9).rev().find(|&order| block.has_run(entry, order));
                assert!(longest <= Some(entry.bound()), "block {index}: {entry:?}");
                if let Some(owner) = entry.owner() {
                    assert!(entry.free() > 0, "an empty block is reserved: {entry:?}");
                    let mut reserved = self.cpus[owner.index()].reservations(id).iter();
                    assert!(
                        reserved.any(|reservation| reservation.get() == Some(index)),
                        "block {index} is reserved, but nobody would find it"
                    );
                }
            }
            home.hints.check();
            for class in Class::all() {
                let hinted: Vec<usize> = home.hints.candidates(class, 0).collect();
                let blocks = home.blocks().iter().enumerate();
                let actual: Vec<usize> = blocks
                    .filter(|(_, block)| block.entry().class() == Some(class))
                    .map(|(index, _)| index)
                    .collect();
                assert_eq!(hinted, actual, "{class:?}");
            }
        }
        assert_eq!(
            self.allocated_frames() + self.free_frames(),
            self.total_frames()
        );
    }
}
