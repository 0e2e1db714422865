//! What callers of the memory manager say, and what they hear when it works.

#![forbid(unsafe_code)]

use crate::frame::FrameMemory;
use crate::ids::{FrameId, NodeId, PAGE_BYTES, PageSize, VirtRange};
use crate::numa;
use crate::thp::{HugeAdvice, ThpMode};

/// What accesses a page allows. x86-64 has no page that can be written or executed but not read:
/// such a request also grants reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Prot {
    /// Loads.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Instruction fetches.
    pub exec: bool,
}

impl Prot {
    /// No access at all.
    pub const NONE: Self = Self {
        read: false,
        write: false,
        exec: false,
    };
    /// Loads only.
    pub const READ: Self = Self {
        read: true,
        ..Self::NONE
    };
    /// Loads and stores.
    pub const READ_WRITE: Self = Self {
        write: true,
        ..Self::READ
    };

    /// The protection that the processor enforces for this one.
    pub const fn effective(self) -> Self {
        Self {
            read: self.read || self.write || self.exec,
            ..self
        }
    }

    /// Whether pages of this protection admit `access`.
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.effective().read,
            Access::Write => self.write,
            Access::Execute => self.exec,
        }
    }
}

/// What a program did when it faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

/// How the memory manager is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// When faults map huge pages.
    pub thp: ThpMode,
    /// Where pages are placed.
    pub numa: numa::Policy,
    /// The addresses that mappings get. Both ends are multiples of [`ARENA_ALIGN_BYTES`]; it is at
    /// least 1 GiB per processor and as much again.
    pub arena: VirtRange,
    /// The debug mode of the frame allocator, with access to the memory behind frames: see
    /// [`FrameAllocator::with_debug`](crate::frame::FrameAllocator::with_debug).
    pub debug_frames: Option<&'static dyn FrameMemory>,
    /// The page-table page of the highest level. The entries that cover the arena are empty and
    /// belong to the memory manager from now on; it touches no others.
    pub root: FrameId,
}

/// The alignment of the arena: what one entry of the highest page-table level covers.
pub const ARENA_ALIGN_BYTES: usize = 512 << 30;

/// The least RAM that the memory manager starts with.
pub const MIN_RAM_BYTES: usize = 1 << 20;

/// A request for a new anonymous mapping.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Length in bytes, not 0; rounded up to whole pages.
    pub bytes: usize,
    /// Alignment of the first byte: a power of two; less than a page counts as a page.
    pub align_bytes: usize,
    /// What accesses are allowed.
    pub prot: Prot,
    /// Whether huge pages may be used.
    pub huge: HugeAdvice,
    /// Bytes of guard directly below the mapping, rounded up to whole pages: nothing is ever mapped
    /// there, and a fault there is [`FaultError::Guard`]. The guard goes away when the lowest page
    /// of the mapping is unmapped.
    pub guard_bytes: usize,
}

impl MapRequest {
    /// Readable and writable memory of `bytes` bytes at any page, without a guard.
    pub const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            align_bytes: PAGE_BYTES,
            prot: Prot::READ_WRITE,
            huge: HugeAdvice::Default,
            guard_bytes: 0,
        }
    }
}

/// What a fault led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultOutcome {
    /// The size of the page that is now mapped.
    pub size: PageSize,
    /// The node of its frame.
    pub node: NodeId,
    /// The page was mapped and allowed the access already: another processor was faster, or this
    /// one's TLB was out of date.
    pub spurious: bool,
}

/// A page that is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The page's first frame.
    pub frame: FrameId,
    /// The page's size.
    pub size: PageSize,
    /// What it allows.
    pub prot: Prot,
}
