//! The device tree for the application, in the form that Hermit's loader gives it.

use alloc::format;
use alloc::vec::Vec;

use dolmen_firmware::ranges::{Range, RangeSet};
use vm_fdt::{Error, FdtReserveEntry, FdtWriter};

/// What the tree says.
#[derive(Clone, Debug)]
pub struct Tree<'a> {
    /// The usable memory.
    pub memory: &'a RangeSet,
    /// What of it must be kept.
    pub kept: &'a RangeSet,
    /// The boot arguments.
    pub boot_args: &'a str,
    /// The image's unpacked archive.
    pub archive: Option<Range>,
    /// ACPI's root pointer.
    pub rsdp: Option<u64>,
}

impl Tree<'_> {
    /// The blob.
    pub fn write(&self) -> Result<Vec<u8>, Error> {
        let kept: Vec<FdtReserveEntry> = self
            .kept
            .iter()
            .map(|range| FdtReserveEntry::new(range.start, range.bytes()))
            .collect::<Result<_, _>>()?;
        let mut fdt = FdtWriter::new_with_mem_reserv(&kept)?;
        let root = fdt.begin_node("")?;
        fdt.property_string("compatible", "hermit,multiboot")?;
        fdt.property_u32("#address-cells", 2)?;
        fdt.property_u32("#size-cells", 2)?;

        if let Some(rsdp) = self.rsdp {
            let node = fdt.begin_node(&format!("hermit,rsdp@{rsdp:x}"))?;
            fdt.property_array_u64("reg", &[rsdp, 1])?;
            fdt.end_node(node)?;
        }
        for range in self.memory.iter() {
            let node = fdt.begin_node(&format!("memory@{:x}", range.start))?;
            fdt.property_string("device_type", "memory")?;
            fdt.property_array_u64("reg", &[range.start, range.bytes()])?;
            fdt.end_node(node)?;
        }
        let chosen = fdt.begin_node("chosen")?;
        fdt.property_string("bootargs", self.boot_args)?;
        if let Some(archive) = self.archive {
            fdt.property_u64("linux,initrd-start", archive.start)?;
            fdt.property_u64("linux,initrd-end", archive.end)?;
        }
        fdt.end_node(chosen)?;

        fdt.end_node(root)?;
        fdt.finish()
    }
}

#[cfg(test)]
mod tests;
