//! What callers say and hear.

use core::fmt;

use crate::ids::{MAX_CPUS, NodeId, PhysAddr};

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
    /// Frames that are not allocated, those in processors' caches included.
    pub free_frames: u64,
    /// Free frames in processors' caches.
    pub cached_frames: u64,
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
    /// Two ranges overlap.
    Overlap(PhysAddr),
    /// A range ends beyond the physical address space.
    BeyondAddressSpace(PhysAddr),
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
            Self::Overlap(at) => write!(f, "two ranges of memory overlap at {:#x}", at.0),
            Self::BeyondAddressSpace(start) => write!(
                f,
                "the range of memory at {:#x} ends beyond the address space",
                start.0
            ),
        }
    }
}

impl core::error::Error for InitError {}
