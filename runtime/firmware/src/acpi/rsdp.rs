//! From the root pointer to the addresses of the tables.

use alloc::vec::Vec;

use super::{AcpiError, Signature, tables};
use crate::PhysicalMemory;
use crate::ranges::Range;

/// The first version's part of the root pointer, and the whole of the later ones.
const V1_BYTES: usize = 20;
const V2_BYTES: usize = 36;
/// The word of the BIOS data area that holds the segment of the extended BIOS data area.
const EBDA_SEGMENT: u64 = 0x40e;

/// Looks for the root pointer where a BIOS puts it: in the first KiB of the extended BIOS data
/// area, or between 0xE0000 and 0xFFFFF, on a 16-byte boundary.
pub fn find_rsdp(memory: &impl PhysicalMemory) -> Option<u64> {
    let ebda = memory
        .read(EBDA_SEGMENT, 2)
        .and_then(<[u8]>::first_chunk)
        .map(|&segment| u64::from(u16::from_le_bytes(segment)) << 4)
        .filter(|ebda| (0x1000..0xa_0000).contains(ebda));
    let areas = [
        ebda.map(|start| Range::with_len(start, 1024)),
        Some(Range::new(0xe_0000, 0x10_0000)),
    ];
    areas
        .into_iter()
        .flatten()
        .flat_map(|area| (area.start..area.end).step_by(16))
        .find(|&address| root(memory, address).is_some())
}

enum Root {
    Rsdt(u32),
    Xsdt(u64),
}

fn root(memory: &impl PhysicalMemory, address: u64) -> Option<Root> {
    let v1 = memory.read(address, V1_BYTES)?;
    if !v1.starts_with(b"RSD PTR ") || !tables::adds_up_to_zero(v1) {
        return None;
    }
    let rsdt = u32::from_le_bytes(*v1.get(16..)?.first_chunk()?);
    if *v1.get(15)? >= 2
        && let Some(v2) = memory.read(address, V2_BYTES)
        && tables::adds_up_to_zero(v2)
    {
        let xsdt = u64::from_le_bytes(*v2.get(24..)?.first_chunk()?);
        if xsdt != 0 {
            return Some(Root::Xsdt(xsdt));
        }
    }
    Some(Root::Rsdt(rsdt))
}

pub(super) fn table_addresses(
    memory: &impl PhysicalMemory,
    rsdp: u64,
) -> Result<Vec<u64>, AcpiError> {
    let (address, signature, entry_bytes) = match root(memory, rsdp) {
        Some(Root::Xsdt(address)) => (address, *b"XSDT", 8),
        Some(Root::Rsdt(address)) => (u64::from(address), *b"RSDT", 4),
        None => return Err(AcpiError::BadRoot { address: rsdp }),
    };
    let table = tables::table(memory, address, signature)?;
    let entries = table
        .bytes
        .get(tables::HEADER_BYTES..)
        .unwrap_or_default()
        .chunks_exact(entry_bytes);
    if !entries.remainder().is_empty() {
        return Err(AcpiError::TooShort {
            table: Signature(signature),
            bytes: table.bytes.len(),
        });
    }
    Ok(entries
        .map(|entry| {
            let mut wide = [0; 8];
            wide[..entry_bytes].copy_from_slice(entry);
            u64::from_le_bytes(wide)
        })
        .filter(|&address| address != 0)
        .collect())
}
