//! The device tree that the loader or the hypervisor hands over.
//!
//! The blob is checked and walked by `dtoolkit` (no_std, MIT or Apache-2.0, kept by Google's
//! firmware group). The more widespread `fdt` is under the MPL and its maintained version is an
//! alpha that panics on malformed cells.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

use crate::ranges::Range;

/// The device tree's content, as far as it concerns us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootTree {
    /// The root's `compatible` strings: `hermit,multiboot`, `hermit,uhyve`.
    pub compatible: Vec<String>,
    /// The memory, in the order of the tree.
    pub memory: Vec<TreeMemory>,
    /// What may not be used: the memory reservation block.
    pub reservations: Vec<Range>,
    /// `/chosen/bootargs`, empty if there are none.
    pub bootargs: String,
    /// `/chosen/linux,initrd-start` and `-end`: the image's unpacked tar archive.
    pub initrd: Option<Range>,
    /// `/hermit,rsdp`: where ACPI's root pointer is.
    pub rsdp: Option<u64>,
    /// `/hermit,tsc`: the frequency of the time-stamp counter.
    pub tsc_khz: Option<u32>,
    /// `/cpus`, in the order of the tree; empty if the tree does not name any.
    pub cpus: Vec<TreeCpu>,
}

/// A range of memory that the tree names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeMemory {
    /// The addresses.
    pub range: Range,
    /// `numa-node-id`, if the node has it.
    pub node: Option<u32>,
}

/// A processor that the tree names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeCpu {
    /// `reg`, or else the unit address, or else the position: the APIC identifier.
    pub apic_id: u32,
    /// `numa-node-id`, if the node has it.
    pub node: Option<u32>,
}

/// Why a device tree cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FdtError {
    /// There is no device tree at the address.
    NotATree,
    /// The blob is malformed; the text says where.
    Malformed(String),
    /// A property does not have the form that it must have.
    Property {
        /// The node.
        node: String,
        /// The property.
        property: &'static str,
    },
}

impl fmt::Display for FdtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATree => f.write_str("there is no device tree where the loader says it is"),
            Self::Malformed(why) => write!(f, "the device tree is malformed: {why}"),
            Self::Property { node, property } => {
                write!(
                    f,
                    "the device tree's property '{property}' of '{node}' is malformed"
                )
            }
        }
    }
}

impl core::error::Error for FdtError {}

/// The first bytes of a blob that [`total_size`] needs.
pub const HEADER_BYTES: usize = 8;

/// The size that a blob claims for itself in its first [`HEADER_BYTES`] bytes.
pub fn total_size(header: &[u8]) -> Result<usize, FdtError> {
    match header.first_chunk::<HEADER_BYTES>() {
        Some(&[0xd0, 0x0d, 0xfe, 0xed, a, b, c, d]) => {
            Ok(u32::from_be_bytes([a, b, c, d]) as usize)
        }
        _ => Err(FdtError::NotATree),
    }
}

impl BootTree {
    /// Reads a blob. Bytes after the size that it claims are ignored.
    pub fn parse(blob: &[u8]) -> Result<Self, FdtError> {
        let size = total_size(blob)?;
        let blob = blob
            .get(..size)
            .ok_or_else(|| FdtError::Malformed("it is shorter than its header says".to_string()))?;
        let fdt = Fdt::new(blob).map_err(|e| FdtError::Malformed(e.to_string()))?;
        let root = fdt.root();

        let mut tree = Self {
            compatible: root
                .compatible()
                .map(|all| all.map(ToString::to_string).collect())
                .unwrap_or_default(),
            reservations: fdt
                .memory_reservations()
                .map(|r| Range::with_len(r.address(), r.size()))
                .collect(),
            ..Self::default()
        };

        for node in root.children() {
            match node.name_without_address() {
                "memory" => tree.add_memory(node)?,
                "chosen" => tree.add_chosen(node)?,
                "cpus" => tree.add_cpus(node)?,
                "hermit,rsdp" => {
                    tree.rsdp = registers(node)?.first().map(|r| r.start);
                }
                "hermit,tsc" => {
                    tree.tsc_khz = integer(node, "khz")?.and_then(|khz| u32::try_from(khz).ok());
                }
                _ => {}
            }
        }
        Ok(tree)
    }

    fn add_memory(&mut self, node: FdtNode<'_>) -> Result<(), FdtError> {
        let numa = numa_node(node)?;
        for range in registers(node)? {
            if !range.is_empty() {
                self.memory.push(TreeMemory { range, node: numa });
            }
        }
        Ok(())
    }

    fn add_chosen(&mut self, node: FdtNode<'_>) -> Result<(), FdtError> {
        if let Some(args) = node.property("bootargs") {
            self.bootargs = args
                .value_as::<&str>()
                .map_err(|_| malformed(node, "bootargs"))?
                .to_string();
        }
        let start = integer(node, "linux,initrd-start")?;
        let end = integer(node, "linux,initrd-end")?;
        self.initrd = match (start, end) {
            (Some(start), Some(end)) if start <= end => Some(Range::new(start, end)),
            (None, None) => None,
            _ => return Err(malformed(node, "linux,initrd-end")),
        };
        Ok(())
    }

    fn add_cpus(&mut self, cpus: FdtNode<'_>) -> Result<(), FdtError> {
        for node in cpus.children() {
            if node.name_without_address() != "cpu" {
                continue;
            }
            let unit = node
                .name()
                .split_once('@')
                .and_then(|(_, unit)| u32::from_str_radix(unit, 16).ok());
            let apic_id = match integer(node, "reg")? {
                Some(reg) => u32::try_from(reg).map_err(|_| malformed(node, "reg"))?,
                None => unit.unwrap_or(self.cpus.len() as u32),
            };
            self.cpus.push(TreeCpu {
                apic_id,
                node: numa_node(node)?,
            });
        }
        Ok(())
    }
}

fn malformed(node: FdtNode<'_>, property: &'static str) -> FdtError {
    FdtError::Property {
        node: node.name().to_string(),
        property,
    }
}

/// A property of one or two cells.
fn integer(node: FdtNode<'_>, name: &'static str) -> Result<Option<u64>, FdtError> {
    let Some(property) = node.property(name) else {
        return Ok(None);
    };
    match *property.value() {
        [a, b, c, d] => Ok(Some(u64::from(u32::from_be_bytes([a, b, c, d])))),
        [a, b, c, d, e, f, g, h] => Ok(Some(u64::from_be_bytes([a, b, c, d, e, f, g, h]))),
        _ => Err(malformed(node, name)),
    }
}

fn numa_node(node: FdtNode<'_>) -> Result<Option<u32>, FdtError> {
    integer(node, "numa-node-id")?
        .map(|id| u32::try_from(id).map_err(|_| malformed(node, "numa-node-id")))
        .transpose()
}

fn registers(node: FdtNode<'_>) -> Result<Vec<Range>, FdtError> {
    let error = || malformed(node, "reg");
    let mut ranges = Vec::new();
    if let Some(registers) = node.reg().map_err(|_| error())? {
        for register in registers {
            let start = register.address::<u64>().map_err(|_| error())?;
            let bytes = register.size::<u64>().map_err(|_| error())?;
            start.checked_add(bytes).ok_or_else(error)?;
            ranges.push(Range::with_len(start, bytes));
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests;
