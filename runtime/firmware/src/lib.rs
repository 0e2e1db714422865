//! What the loader and the firmware say about the machine, turned into plain data.
//!
//! Everything here is safe code over bytes: the runtime hands in memory, the crate hands back a
//! description. Input that is malformed becomes an error whose `Display` is one sentence; it never
//! panics and never reads outside the bytes it was given.
//!
//! - [`fdt`]: the device tree that the loader (or uhyve) built;
//! - [`acpi`]: processors, NUMA affinity and distances, and the few registers we need;
//! - [`bootargs`]: the grammar of the boot arguments;
//! - [`machine`]: the three put together: processors, memory and nodes, numbered densely;
//! - [`bytes`]: integers inside byte slices;
//! - [`ranges`]: sets of physical address ranges.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod acpi;
pub mod bootargs;
pub mod bytes;
pub mod fdt;
pub mod machine;
pub mod ranges;

/// Read access to physical memory, as far as it is mapped.
pub trait PhysicalMemory {
    /// The `len` bytes at physical address `phys`, or `None` if they cannot be read.
    fn read(&self, phys: u64, len: usize) -> Option<&[u8]>;
}
