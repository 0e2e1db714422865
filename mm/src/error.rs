//! Why calls of the memory manager fail.

#![forbid(unsafe_code)]

use core::fmt;

use crate::frame;
use crate::ids::{VirtAddr, VirtRange};
use crate::request::MIN_RAM_BYTES;
use crate::space::OutOfMemory;

/// Why there is no memory manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InitError {
    /// The frame allocator refused the RAM.
    Frames(frame::InitError),
    /// Less RAM than [`MIN_RAM_BYTES`].
    TooLittleMemory {
        /// What there is.
        bytes: u64,
    },
    /// The arena is not aligned, not canonical, or too small for the processors.
    Arena(VirtRange),
    /// An entry of the root that covers the arena is not empty.
    RootInUse(VirtAddr),
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Frames(error) => error.fmt(f),
            Self::TooLittleMemory { bytes } => write!(
                f,
                "{} KiB of usable memory are too little: at least {} KiB are needed",
                bytes >> 10,
                MIN_RAM_BYTES >> 10
            ),
            Self::Arena(arena) => write!(
                f,
                "{arena:?} does not serve as the range for mappings: wrongly aligned or too small"
            ),
            Self::RootInUse(at) => write!(
                f,
                "the page table already maps {:#x}, inside the range for mappings",
                at.0
            ),
        }
    }
}

impl core::error::Error for InitError {}

impl From<frame::InitError> for InitError {
    fn from(error: frame::InitError) -> Self {
        Self::Frames(error)
    }
}

/// Why a mapping call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// No frame for a page or a page-table page, or no addresses.
    OutOfMemory,
    /// A range that is empty, unaligned or outside the arena; an alignment that is no power of two.
    InvalidArgument,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::InvalidArgument => "invalid argument",
        })
    }
}

impl core::error::Error for MapError {}

impl From<OutOfMemory> for MapError {
    fn from(OutOfMemory: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Why a fault cannot be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// Nothing is mapped at the address.
    Unmapped,
    /// The mapping does not allow the access.
    Protection,
    /// The address lies in the guard below a mapping.
    Guard,
    /// No frame for the page or a page-table page.
    OutOfMemory,
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unmapped => "nothing is mapped at this address",
            Self::Protection => "the mapping does not allow this access",
            Self::Guard => "the address lies in a guard page",
            Self::OutOfMemory => "out of memory",
        })
    }
}

impl core::error::Error for FaultError {}
