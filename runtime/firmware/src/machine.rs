//! The machine as the kernel sees it: processors, usable memory and nodes, numbered without gaps.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZero;

use crate::acpi::Acpi;
use crate::fdt::BootTree;
use crate::ranges::{Range, RangeSet};

/// Below this address nothing is handed out: firmware data and the start-up code of processors.
pub const LOW_MEMORY_END: u64 = 1 << 20;
const LOCAL_DISTANCE: u8 = 10;
const REMOTE_DISTANCE: u8 = 20;
const HUGE_BYTES: u64 = 2 << 20;

/// The most that the kernel keeps state for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processors.
    pub cpus: usize,
    /// NUMA nodes.
    pub nodes: usize,
}

/// A processor that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The (x2)APIC identifier.
    pub apic_id: u32,
    /// The node that it belongs to.
    pub node: u32,
}

/// A range of usable memory: whole pages that nobody has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The first address.
    pub start: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The node that it belongs to.
    pub node: u32,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processors, the one that booted first, the others by APIC identifier.
    pub cpus: Vec<Cpu>,
    /// The usable memory in ascending order; ranges of one node that touch are one.
    pub memory: Vec<MemoryRange>,
    /// The number of nodes, at least 1. A node may lack memory or processors, but not both.
    pub nodes: usize,
    /// The distance from node `a` to node `b` at `a * nodes + b`.
    pub distances: Vec<u8>,
    /// Sentences about what is left unused or had to be assumed.
    pub notes: Vec<String>,
}

/// Why no machine can be described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineError {
    /// There is no memory to use.
    NoMemory,
    /// More fake nodes were asked for than the kernel can have.
    TooManyFakeNodes {
        /// The nodes asked for.
        asked: u32,
        /// The most there can be.
        most: usize,
    },
    /// There is too little memory for the fake nodes.
    FakeNodeWithoutMemory {
        /// The nodes asked for.
        asked: u32,
        /// The usable memory in bytes.
        bytes: u64,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("the machine has no memory that can be used"),
            Self::TooManyFakeNodes { asked, most } => {
                write!(f, "numa-fake={asked} asks for more than {most} nodes")
            }
            Self::FakeNodeWithoutMemory { asked, bytes } => write!(
                f,
                "{} MiB of usable memory are too few for numa-fake={asked}",
                bytes >> 20
            ),
        }
    }
}

impl core::error::Error for MachineError {}

impl Machine {
    /// Puts together what the device tree and, where there are any, ACPI's tables say.
    ///
    /// Processors come from the MADT, else from the tree, else there is only the one that booted.
    /// Nodes come from the SRAT, else from the tree's `numa-node-id`, else there is only one.
    pub fn describe(
        tree: &BootTree,
        acpi: Option<&Acpi>,
        boot_apic_id: u32,
        limits: Limits,
    ) -> Result<Self, MachineError> {
        let mut notes = Vec::new();
        let cpus = cpus(tree, acpi, boot_apic_id, limits.cpus, &mut notes);
        let memory = memory(tree, acpi);
        if memory.is_empty() {
            return Err(MachineError::NoMemory);
        }

        let domains: BTreeSet<u32> = cpus
            .iter()
            .filter_map(|&(_, domain)| domain)
            .chain(memory.iter().filter_map(|&(_, domain)| domain))
            .collect();
        let domains: Vec<u32> = domains.into_iter().collect();
        let nodes = domains.len().clamp(1, limits.nodes.max(1));
        if domains.len() > nodes {
            notes.push(format!(
                "the machine has {} NUMA nodes, {nodes} are told apart",
                domains.len()
            ));
        }
        let node = |domain: Option<u32>| {
            let index = domain.and_then(|d| domains.binary_search(&d).ok());
            index.map_or(0, |i| i.min(nodes - 1) as u32)
        };

        Ok(Self {
            cpus: cpus
                .iter()
                .map(|&(apic_id, domain)| Cpu {
                    apic_id,
                    node: node(domain),
                })
                .collect(),
            memory: join(memory.iter().map(|&(range, domain)| (range, node(domain)))),
            nodes,
            distances: distances(&domains, nodes, acpi),
            notes,
        })
    }

    /// Divides memory and processors evenly into `count` nodes, whatever the firmware says. The
    /// borders are multiples of 2 MiB.
    pub fn fake_nodes(&mut self, count: NonZero<u32>, limits: Limits) -> Result<(), MachineError> {
        let asked = count.get();
        if asked as usize > limits.nodes {
            return Err(MachineError::TooManyFakeNodes {
                asked,
                most: limits.nodes,
            });
        }
        let bytes = self.memory_bytes();
        let share =
            |node: u32| (u128::from(bytes) * u128::from(node + 1) / u128::from(asked)) as u64;

        let mut pieces = Vec::new();
        let (mut node, mut taken) = (0, 0);
        for range in &self.memory {
            let end = range.start + range.bytes;
            let mut position = range.start;
            while position < end {
                let mut cut = end;
                if node + 1 < asked {
                    let goal = position + (share(node) - taken);
                    cut = end.min(goal & !(HUGE_BYTES - 1));
                    if cut <= position {
                        node += 1;
                        continue;
                    }
                }
                pieces.push((Range::new(position, cut), node));
                taken += cut - position;
                if cut < end {
                    node += 1;
                }
                position = cut;
            }
        }
        if (0..asked).any(|n| pieces.iter().all(|&(_, node)| node != n)) {
            return Err(MachineError::FakeNodeWithoutMemory { asked, bytes });
        }

        self.memory = join(pieces.into_iter());
        self.nodes = asked as usize;
        self.distances = distances(&[], self.nodes, None);
        let cpus = self.cpus.len();
        for (index, cpu) in self.cpus.iter_mut().enumerate() {
            cpu.node = (index * self.nodes / cpus) as u32;
        }
        Ok(())
    }

    /// The usable memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.iter().map(|range| range.bytes).sum()
    }

    /// The distance from node `from` to node `to`.
    pub fn distance(&self, from: u32, to: u32) -> Option<u8> {
        let (from, to) = (from as usize, to as usize);
        if from >= self.nodes || to >= self.nodes {
            return None;
        }
        self.distances.get(from * self.nodes + to).copied()
    }
}

/// The processors with their proximity domains.
fn cpus(
    tree: &BootTree,
    acpi: Option<&Acpi>,
    boot_apic_id: u32,
    limit: usize,
    notes: &mut Vec<String>,
) -> Vec<(u32, Option<u32>)> {
    let mut cpus: Vec<(u32, Option<u32>)> = match acpi {
        Some(acpi) => acpi
            .cpus
            .iter()
            .filter(|cpu| cpu.enabled)
            .map(|cpu| {
                let affinity = acpi.cpu_affinity.iter().find(|a| a.apic_id == cpu.apic_id);
                (cpu.apic_id, affinity.map(|a| a.domain))
            })
            .collect(),
        None => tree
            .cpus
            .iter()
            .map(|cpu| (cpu.apic_id, cpu.node))
            .collect(),
    };
    if !cpus.iter().any(|&(id, _)| id == boot_apic_id) {
        if !cpus.is_empty() {
            notes.push(format!(
                "the firmware does not list the processor that booted (APIC {boot_apic_id})"
            ));
        }
        cpus.push((boot_apic_id, None));
    }
    cpus.sort_by_key(|&(id, _)| (id != boot_apic_id, id));
    cpus.dedup_by_key(|&mut (id, _)| id);
    let limit = limit.max(1);
    if cpus.len() > limit {
        notes.push(format!(
            "the machine has {} processors, {limit} are used",
            cpus.len()
        ));
        cpus.truncate(limit);
    }
    cpus
}

/// The usable memory with its proximity domains, in ascending order.
fn memory(tree: &BootTree, acpi: Option<&Acpi>) -> Vec<(Range, Option<u32>)> {
    let mut usable: RangeSet = tree.memory.iter().map(|m| m.range).collect();
    usable.remove(Range::new(0, LOW_MEMORY_END));
    for reservation in &tree.reservations {
        usable.remove(reservation.page_outer());
    }
    if let Some(initrd) = tree.initrd {
        usable.remove(initrd.page_outer());
    }
    let mut usable = usable.page_inner();

    let affinity: Vec<(Range, u32)> = match acpi {
        Some(acpi) if !acpi.memory_affinity.is_empty() => acpi
            .memory_affinity
            .iter()
            .map(|m| (Range::with_len(m.start, m.bytes), m.domain))
            .collect(),
        _ => tree
            .memory
            .iter()
            .filter_map(|m| Some((m.range, m.node?)))
            .collect(),
    };
    let mut pieces = Vec::new();
    for (range, domain) in affinity {
        let range = range.page_inner();
        for piece in usable.iter().map(|r| r.intersection(range)) {
            if !piece.is_empty() {
                pieces.push((piece, Some(domain)));
            }
        }
        usable.remove(range);
    }
    pieces.extend(usable.iter().map(|range| (range, None)));
    pieces.sort_by_key(|&(range, _)| range);
    pieces
}

/// Ascending pieces, those of one node that touch made one.
fn join(pieces: impl Iterator<Item = (Range, u32)>) -> Vec<MemoryRange> {
    let mut joined: Vec<MemoryRange> = Vec::new();
    for (range, node) in pieces {
        match joined.last_mut() {
            Some(last) if last.node == node && last.start + last.bytes == range.start => {
                last.bytes += range.bytes();
            }
            _ => joined.push(MemoryRange {
                start: range.start,
                bytes: range.bytes(),
                node,
            }),
        }
    }
    joined
}

/// The distances between nodes: the SLIT's where it has them.
fn distances(domains: &[u32], nodes: usize, acpi: Option<&Acpi>) -> Vec<u8> {
    let table = acpi.and_then(|acpi| acpi.distances.as_ref());
    let mut distances = vec![REMOTE_DISTANCE; nodes * nodes];
    for from in 0..nodes {
        for to in 0..nodes {
            let told = match (table, domains.get(from), domains.get(to)) {
                (Some(table), Some(&a), Some(&b)) => table.get(a, b),
                _ => None,
            };
            distances[from * nodes + to] = match told {
                _ if from == to => LOCAL_DISTANCE,
                Some(distance) => distance,
                None => REMOTE_DISTANCE,
            };
        }
    }
    distances
}

#[cfg(test)]
mod tests;
