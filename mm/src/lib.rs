//! Dolmen's memory manager.
//!
//! This crate knows no device and no boot protocol. Everything it needs from hardware it reaches
//! through one trait, [`Machine`], so that the whole of it runs on the host against a simulated
//! machine. It uses `alloc` while it is being set up and never afterwards: the fault path
//! allocates frames and page-table pages, nothing else.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "sim"))]
extern crate std;

pub mod clear;
mod error;
pub mod frame;
pub mod ids;
pub mod machine;
mod manager;
pub mod numa;
mod prefetch;
mod request;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod space;
pub mod stats;
pub mod thp;
pub mod tlb;

pub use error::{FaultError, InitError, MapError};
pub use ids::{BlockId, CpuId, FrameId, NodeId, Order, PageSize, PhysAddr, VirtAddr, VirtRange};
pub use machine::Machine;
pub use manager::MemoryManager;
pub use request::{
    ARENA_ALIGN_BYTES, Access, Config, FaultOutcome, MIN_RAM_BYTES, MapRequest, Mapping, Prot,
};
pub use thp::{HugeAdvice, ThpMode};
