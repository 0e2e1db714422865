//! The frame allocator.

#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::ids::{CpuId, FrameId, MAX_CPUS, NodeId, Order, PAGE_BYTES, PhysAddr};
use crate::numa::Topology;

/// A range of RAM that the allocator may hand out. It need not be aligned: frames that it holds
/// only a part of are not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RamRange {
    /// The first byte.
    pub start: PhysAddr,
    /// Length in bytes.
    pub bytes: u64,
    /// The node it belongs to.
    pub node: NodeId,
}

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// Its contents could be moved to another frame: application memory.
    Movable,
    /// It stays where it is until it is freed: page tables, the runtime's own data.
    Unmovable,
}

/// Where a frame may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The named node only.
    ThisNode,
    /// The named node, or else the nearest one that has such a frame.
    AnyNode,
}

/// The memory of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeMemory {
    /// Frames that the allocator manages.
    pub total_frames: u64,
    /// Frames that are not allocated.
    pub free_frames: u64,
    /// Blocks of 2 MiB that are free as a whole.
    pub free_blocks: u64,
}

/// Why no allocator could be made of the RAM described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InitError {
    /// Not one whole frame of RAM.
    NoMemory,
    /// No processor, more than [`MAX_CPUS`], or another number than the topology knows.
    CpuCount(usize),
    /// A range is on a node that the topology does not know.
    UnknownNode(NodeId),
    /// Two ranges overlap, or one runs over the end of the address space.
    Overlap(PhysAddr),
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoMemory => write!(f, "there is no usable memory"),
            Self::CpuCount(n) => write!(
                f,
                "{n} processors: between 1 and {MAX_CPUS} are supported, all in the topology"
            ),
            Self::UnknownNode(node) => {
                write!(
                    f,
                    "memory on NUMA node {}, which does not exist",
                    node.get()
                )
            }
            Self::Overlap(at) => write!(f, "memory ranges overlap or wrap at {:#x}", at.0),
        }
    }
}

impl core::error::Error for InitError {}

/// Allocates page frames by node.
pub struct FrameAllocator {
    frames: Box<[(FrameId, NodeId, AtomicBool)]>,
    fallback: Topology,
    allocated: AtomicUsize,
}

impl FrameAllocator {
    /// An allocator of the frames in `ram` for processors 0 to `cpus - 1`.
    pub fn new(ram: &[RamRange], topology: &Topology, cpus: usize) -> Result<Self, InitError> {
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(InitError::CpuCount(cpus));
        }
        let mut frames = Vec::new();
        for range in ram {
            let page = PAGE_BYTES as u64;
            let first = range.start.0.div_ceil(page);
            let end = (range.start.0 + range.bytes) / page;
            for frame in first..end {
                frames.push((FrameId::new(frame), range.node, AtomicBool::new(false)));
            }
        }
        frames.sort_by_key(|frame| frame.0);
        if frames.is_empty() {
            return Err(InitError::NoMemory);
        }
        Ok(Self {
            frames: frames.into(),
            fallback: topology.clone(),
            allocated: AtomicUsize::new(0),
        })
    }

    /// Takes `2^order` contiguous, naturally aligned frames from `node`, or from the nearest node
    /// that has them if `reach` allows it. `cpu` is the processor that executes the caller.
    pub fn alloc(
        &self,
        cpu: CpuId,
        node: NodeId,
        order: Order,
        kind: FrameKind,
        reach: Reach,
    ) -> Option<FrameId> {
        let _ = (cpu, kind);
        let nodes: Vec<NodeId> = match reach {
            Reach::ThisNode => alloc::vec![node],
            Reach::AnyNode => self.fallback.fallback_order(node).collect(),
        };
        let n = order.frames();
        for node in nodes {
            for index in 0..self.frames.len().saturating_sub(n - 1) {
                let run = &self.frames[index..index + n];
                if run[0].0.is_aligned(order)
                    && run[n - 1].0.get() - run[0].0.get() == n as u64 - 1
                    && run
                        .iter()
                        .all(|f| f.1 == node && !f.2.load(Ordering::Relaxed))
                {
                    run.iter().for_each(|f| f.2.store(true, Ordering::Relaxed));
                    self.allocated.fetch_add(n, Ordering::Relaxed);
                    return Some(run[0].0);
                }
            }
        }
        None
    }

    /// Gives back a run of frames. `cpu` is the processor that executes the caller; the frames may
    /// come from any node and any processor. The order must be the one they were allocated with.
    pub fn free(&self, cpu: CpuId, frame: FrameId, order: Order) {
        let _ = cpu;
        let index = self.frames.binary_search_by_key(&frame, |f| f.0);
        for f in &self.frames[index.expect("foreign frame")..][..order.frames()] {
            f.2.store(false, Ordering::Relaxed);
        }
        self.allocated.fetch_sub(order.frames(), Ordering::Relaxed);
    }

    /// The node of a frame that the allocator manages.
    pub fn node_of(&self, frame: FrameId) -> Option<NodeId> {
        let index = self.frames.binary_search_by_key(&frame, |f| f.0).ok()?;
        Some(self.frames[index].1)
    }

    /// The memory of one node, as far as it can be known while others allocate.
    pub fn node_memory(&self, node: NodeId) -> NodeMemory {
        let of_node = || self.frames.iter().filter(move |f| f.1 == node);
        NodeMemory {
            total_frames: of_node().count() as u64,
            free_frames: of_node().filter(|f| !f.2.load(Ordering::Relaxed)).count() as u64,
            free_blocks: 0,
        }
    }

    /// Frames that are allocated, on all nodes.
    pub fn allocated_frames(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed) as u64
    }
}
