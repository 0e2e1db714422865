//! NUMA topology and placement policies.
//!
//! [`Topology`] says which node a processor belongs to and how far nodes are from each other, in
//! the unit of the firmware's SLIT (10 is local). It is built once at boot, checked, and read-only
//! afterwards: every processor reads it and nobody writes near it. [`Policy`] chooses the node of a
//! page, always from the *faulting* address and processor, never from a rounded address: the page
//! around the fault may be 2 MiB large, but it was one byte of it that was wanted.

#![forbid(unsafe_code)]

mod topology;

pub use topology::{LOCAL_DISTANCE, REMOTE_DISTANCE, Topology, TopologyError, split_cpus};

use crate::ids::{CpuId, NodeId, VirtAddr};

/// Where the pages of a mapping are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// First touch: the node of the processor that takes the fault.
    #[default]
    Local,
}

impl Policy {
    /// The node that a page should come from when `cpu` faults at `fault`.
    pub fn node_for(&self, topology: &Topology, cpu: CpuId, fault: VirtAddr) -> NodeId {
        match self {
            Self::Local => {
                // First touch looks at the processor alone; policies that interleave look at the
                // address.
                let _ = fault;
                topology.node_of_cpu(cpu)
            }
        }
    }
}

#[cfg(test)]
mod tests;
