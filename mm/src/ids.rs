//! Typed identifiers: an index of one kind is never passed for another.

use core::fmt;

/// Bytes in a base page and in a frame.
pub const PAGE_BYTES: usize = 4096;
/// Bytes in a huge page and in a block of frames.
pub const HUGE_BYTES: usize = 2 << 20;
/// Bytes in a giant page.
pub const GIANT_BYTES: usize = 1 << 30;
/// Frames in a block.
pub const FRAMES_PER_BLOCK: usize = HUGE_BYTES / PAGE_BYTES;
/// The largest number of processors that the memory manager keeps state for.
pub const MAX_CPUS: usize = 256;
/// The largest number of NUMA nodes that the memory manager keeps state for.
pub const MAX_NODES: usize = 16;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name($repr);

        impl $name {
            /// The identifier with this number.
            pub const fn new(number: $repr) -> Self {
                Self(number)
            }

            /// The number itself.
            pub const fn get(self) -> $repr {
                self.0
            }

            /// The number as an array index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

id!(
    /// A page frame: the physical address divided by [`PAGE_BYTES`].
    FrameId(u64)
);
id!(
    /// A block of [`FRAMES_PER_BLOCK`] frames: the physical address divided by [`HUGE_BYTES`].
    BlockId(u64)
);
id!(
    /// A logical processor, numbered from 0 in the order in which they were found at boot.
    CpuId(u16)
);
id!(
    /// A NUMA node, numbered from 0 without gaps (not the firmware's proximity domain).
    NodeId(u8)
);

impl FrameId {
    /// The frame that contains `address`.
    pub const fn containing(address: PhysAddr) -> Self {
        Self(address.0 / PAGE_BYTES as u64)
    }

    /// The physical address of the frame's first byte.
    pub const fn address(self) -> PhysAddr {
        PhysAddr(self.0 * PAGE_BYTES as u64)
    }

    /// The block that contains the frame.
    pub const fn block(self) -> BlockId {
        BlockId(self.0 / FRAMES_PER_BLOCK as u64)
    }

    /// The frame's position in its block, `0..FRAMES_PER_BLOCK`.
    pub const fn offset_in_block(self) -> usize {
        (self.0 % FRAMES_PER_BLOCK as u64) as usize
    }

    /// The frame `frames` behind this one.
    pub const fn add(self, frames: usize) -> Self {
        Self(self.0 + frames as u64)
    }

    /// Whether the frame starts a naturally aligned run of `order`.
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0.is_multiple_of(order.frames() as u64)
    }
}

impl BlockId {
    /// The block's first frame.
    pub const fn first_frame(self) -> FrameId {
        FrameId(self.0 * FRAMES_PER_BLOCK as u64)
    }
}

/// A physical address in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PhysAddr(pub u64);

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phys {:#x}", self.0)
    }
}

/// A virtual address in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct VirtAddr(pub u64);

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virt {:#x}", self.0)
    }
}

impl VirtAddr {
    /// The address rounded down to a multiple of `align_bytes`, a power of two.
    pub const fn align_down(self, align_bytes: usize) -> Self {
        Self(self.0 & !(align_bytes as u64 - 1))
    }
}

/// A range of virtual addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VirtRange {
    /// The first address.
    pub start: VirtAddr,
    /// Length in bytes.
    pub bytes: usize,
}

impl VirtRange {
    /// The range of `bytes` bytes from `start`.
    pub const fn new(start: VirtAddr, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// The first address behind the range.
    pub const fn end(self) -> VirtAddr {
        VirtAddr(self.start.0 + self.bytes as u64)
    }

    /// Whether `address` lies in the range.
    pub const fn contains(self, address: VirtAddr) -> bool {
        self.start.0 <= address.0 && address.0 - self.start.0 < self.bytes as u64
    }
}

impl fmt::Debug for VirtRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.0, self.end().0)
    }
}

/// The binary logarithm of a number of contiguous, naturally aligned frames: 0 (4 KiB) to 18 (1 GiB).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(u8);

impl Order {
    /// One frame, 4 KiB.
    pub const BASE: Self = Self(0);
    /// One block, 2 MiB.
    pub const HUGE: Self = Self(9);
    /// 512 blocks, 1 GiB.
    pub const GIANT: Self = Self(18);

    /// The order with this number, or `None` above 18.
    pub const fn new(order: u8) -> Option<Self> {
        if order <= 18 { Some(Self(order)) } else { None }
    }

    /// The order itself.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Frames in a run of this order.
    pub const fn frames(self) -> usize {
        1 << self.0
    }

    /// Bytes in a run of this order.
    pub const fn bytes(self) -> usize {
        PAGE_BYTES << self.0
    }
}

/// A size for which the processor has a page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PageSize {
    /// 4 KiB.
    Base,
    /// 2 MiB.
    Huge,
    /// 1 GiB.
    Giant,
}

impl PageSize {
    /// The order of the frames behind a page of this size.
    pub const fn order(self) -> Order {
        match self {
            Self::Base => Order::BASE,
            Self::Huge => Order::HUGE,
            Self::Giant => Order::GIANT,
        }
    }

    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        self.order().bytes()
    }
}
