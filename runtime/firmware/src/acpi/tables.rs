//! The tables themselves.

use super::{
    Acpi, AcpiCpu, AcpiError, CpuAffinity, Distances, Fixed, MemoryAffinity, Register, Reset,
    Signature,
};
use crate::PhysicalMemory;
use crate::bytes::Fields;

/// Bytes of the header that every table starts with.
pub(super) const HEADER_BYTES: usize = 36;
/// A table longer than this is taken to be malformed.
const MAX_BYTES: usize = 16 << 20;

pub(super) fn adds_up_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, &b| sum.wrapping_add(b)) == 0
}

/// A table whose checksum is right.
pub(super) struct Table<'a> {
    pub(super) signature: Signature,
    pub(super) bytes: &'a [u8],
}

/// The table at `address`, which must have the name `signature`.
pub(super) fn table<M: PhysicalMemory>(
    memory: &M,
    address: u64,
    signature: [u8; 4],
) -> Result<Table<'_>, AcpiError> {
    let table = Signature(signature);
    let unreadable = || AcpiError::Unreadable { table, address };
    let header = memory.read(address, HEADER_BYTES).ok_or_else(unreadable)?;
    let (name, rest) = header.split_first_chunk().ok_or_else(unreadable)?;
    if *name != signature {
        return Err(AcpiError::Missing { table });
    }
    let length = rest.first_chunk().ok_or_else(unreadable)?;
    let bytes = u32::from_le_bytes(*length) as usize;
    if bytes < HEADER_BYTES {
        return Err(AcpiError::TooShort { table, bytes });
    }
    if bytes > MAX_BYTES {
        return Err(AcpiError::Nonsense {
            table,
            what: "claims to be larger than 16 MiB",
        });
    }
    let bytes = memory.read(address, bytes).ok_or_else(unreadable)?;
    if !adds_up_to_zero(bytes) {
        return Err(AcpiError::Checksum { table, address });
    }
    Ok(Table {
        signature: table,
        bytes,
    })
}

impl Table<'_> {
    fn too_short(&self) -> AcpiError {
        AcpiError::TooShort {
            table: self.signature,
            bytes: self.bytes.len(),
        }
    }

    fn nonsense(&self, what: &'static str) -> AcpiError {
        AcpiError::Nonsense {
            table: self.signature,
            what,
        }
    }

    /// Calls `visit` with the kind and the bytes of each entry. `visit` returns `None` for an entry
    /// that is shorter than its kind must be.
    fn for_each_entry(
        &self,
        first: usize,
        mut visit: impl FnMut(u8, &[u8]) -> Option<()>,
    ) -> Result<(), AcpiError> {
        let mut offset = first;
        let mut rest = self.bytes.get(first..).ok_or_else(|| self.too_short())?;
        while !rest.is_empty() {
            let bad = AcpiError::BadEntry {
                table: self.signature,
                offset,
            };
            let (Some(kind), Some(length @ 2..)) = (rest.u8(0), rest.u8(1)) else {
                return Err(bad);
            };
            let Some((entry, after)) = rest.split_at_checked(usize::from(length)) else {
                return Err(bad);
            };
            if visit(kind, entry).is_none() {
                return Err(bad);
            }
            offset += entry.len();
            rest = after;
        }
        Ok(())
    }
}

impl Acpi {
    pub(super) fn read_madt(&mut self, madt: Table<'_>) -> Result<(), AcpiError> {
        const ENTRIES: usize = 44;
        self.local_apic = madt
            .bytes
            .u32(HEADER_BYTES)
            .ok_or_else(|| madt.too_short())?
            .into();
        madt.for_each_entry(ENTRIES, |kind, entry| {
            match kind {
                // Local APIC; 0xff is the broadcast address, used for absent processors.
                0 => {
                    let (uid, id) = (entry.u8(2)?, entry.u8(3)?);
                    let flags = entry.u32(4)?;
                    if id != 0xff {
                        self.add_cpu(id.into(), uid.into(), flags);
                    }
                }
                // Local APIC address override.
                5 => self.local_apic = entry.u64(4)?,
                // Local x2APIC.
                9 => {
                    let (id, flags, uid) = (entry.u32(4)?, entry.u32(8)?, entry.u32(12)?);
                    if id != u32::MAX {
                        self.add_cpu(id, uid, flags);
                    }
                }
                _ => {}
            }
            Some(())
        })
    }

    /// Processors below 255 may be listed both as local APIC and as local x2APIC.
    fn add_cpu(&mut self, apic_id: u32, uid: u32, flags: u32) {
        let cpu = AcpiCpu {
            apic_id,
            uid,
            enabled: flags & 1 != 0,
            online_capable: flags & 2 != 0,
        };
        if !cpu.enabled && !cpu.online_capable {
            return;
        }
        match self.cpus.iter_mut().find(|c| c.apic_id == apic_id) {
            Some(known) if cpu.enabled => *known = cpu,
            Some(_) => {}
            None => self.cpus.push(cpu),
        }
    }

    pub(super) fn read_srat(&mut self, srat: Table<'_>) -> Result<(), AcpiError> {
        const ENTRIES: usize = 48;
        srat.for_each_entry(ENTRIES, |kind, entry| {
            match kind {
                // Processor local APIC affinity.
                0 => {
                    let low = entry.u8(2)?;
                    let apic_id = entry.u8(3)?.into();
                    let enabled = entry.u32(4)? & 1 != 0;
                    let [_, a, b, c] = entry.field(8)?;
                    let domain = u32::from_le_bytes([low, a, b, c]);
                    if enabled {
                        self.cpu_affinity.push(CpuAffinity { apic_id, domain });
                    }
                }
                // Memory affinity.
                1 => {
                    let domain = entry.u32(2)?;
                    let (start, bytes) = (entry.u64(8)?, entry.u64(16)?);
                    let flags = entry.u32(28)?;
                    if flags & 1 != 0 && bytes != 0 {
                        start.checked_add(bytes)?;
                        self.memory_affinity.push(MemoryAffinity {
                            start,
                            bytes,
                            domain,
                            hot_pluggable: flags & 2 != 0,
                            non_volatile: flags & 4 != 0,
                        });
                    }
                }
                // Processor local x2APIC affinity.
                2 => {
                    let (domain, apic_id) = (entry.u32(4)?, entry.u32(8)?);
                    if entry.u32(12)? & 1 != 0 {
                        self.cpu_affinity.push(CpuAffinity { apic_id, domain });
                    }
                }
                _ => {}
            }
            Some(())
        })
    }

    pub(super) fn read_slit(&mut self, slit: Table<'_>) -> Result<(), AcpiError> {
        const ENTRIES: usize = 44;
        let count = slit.bytes.u64(HEADER_BYTES);
        let localities = count
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| slit.too_short())?;
        let entries = localities
            .checked_mul(localities)
            .and_then(|n| slit.bytes.get(ENTRIES..)?.get(..n))
            .ok_or_else(|| slit.too_short())?;
        for from in 0..localities {
            for to in 0..localities {
                let distance = entries[from * localities + to];
                if distance < 10 || (from == to && distance != 10) {
                    return Err(
                        slit.nonsense("has a distance below 10, or one to itself other than 10")
                    );
                }
            }
        }
        self.distances = Some(Distances {
            localities,
            entries: entries.to_vec(),
        });
        Ok(())
    }

    pub(super) fn read_fadt(&mut self, fadt: Table<'_>) -> Result<(), AcpiError> {
        let bytes = fadt.bytes;
        let timer = bytes.u32(76).ok_or_else(|| fadt.too_short())?;
        let flags = bytes.u32(112).ok_or_else(|| fadt.too_short())?;
        // The reset register came with the second version of the table.
        let reset = (flags & (1 << 10) != 0)
            .then(|| {
                let register = match (bytes.u8(116)?, bytes.u64(120)?) {
                    (0, address) => Register::Memory(address),
                    (1, port) => Register::Port(u16::try_from(port).ok()?),
                    _ => return None,
                };
                let value = bytes.u8(128)?;
                Some(Reset { register, value })
            })
            .flatten();
        self.fixed = Fixed {
            pm_timer_port: u16::try_from(timer).ok().filter(|&port| port != 0),
            pm_timer_32_bits: flags & (1 << 8) != 0,
            reset,
        };
        Ok(())
    }

    pub(super) fn read_hpet(&mut self, hpet: Table<'_>) -> Result<(), AcpiError> {
        let space = hpet.bytes.u8(40).ok_or_else(|| hpet.too_short())?;
        let address = hpet.bytes.u64(44).ok_or_else(|| hpet.too_short())?;
        self.hpet = (space == 0 && address != 0).then_some(address);
        Ok(())
    }
}
