//! ACPI tables: processors, NUMA affinity and distances, a few registers.
//!
//! The tables are read by hand over [`PhysicalMemory`]: the `acpi` crate maps them through raw
//! pointers and trusts the lengths inside them, which a bad table would turn into a fault.

mod rsdp;
mod tables;

use alloc::vec::Vec;
use core::fmt;

pub use self::rsdp::find_rsdp;
use crate::PhysicalMemory;

/// A table's four-letter name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 4]);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why ACPI's tables cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcpiError {
    /// The root pointer is not valid.
    BadRoot {
        /// Where it should have been.
        address: u64,
    },
    /// A table lies outside of the memory that can be read.
    Unreadable {
        /// The table.
        table: Signature,
        /// Its address.
        address: u64,
    },
    /// The bytes of a table do not add up to zero.
    Checksum {
        /// The table.
        table: Signature,
        /// Its address.
        address: u64,
    },
    /// A table is shorter than what it must contain.
    TooShort {
        /// The table.
        table: Signature,
        /// Its length in bytes.
        bytes: usize,
    },
    /// An entry of a table does not fit into the table, or is shorter than its kind must be.
    BadEntry {
        /// The table.
        table: Signature,
        /// The entry's offset in bytes.
        offset: usize,
    },
    /// A table says something that cannot be.
    Nonsense {
        /// The table.
        table: Signature,
        /// What it says.
        what: &'static str,
    },
    /// A table that there must be is missing.
    Missing {
        /// The table.
        table: Signature,
    },
}

impl fmt::Display for AcpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRoot { address } => {
                write!(f, "there is no valid ACPI root pointer at {address:#x}")
            }
            Self::Unreadable { table, address } => write!(
                f,
                "the ACPI table {table} at {address:#x} lies outside of the readable memory"
            ),
            Self::Checksum { table, address } => {
                write!(
                    f,
                    "the ACPI table {table} at {address:#x} has a wrong checksum"
                )
            }
            Self::TooShort { table, bytes } => {
                write!(f, "the ACPI table {table} is too short ({bytes} bytes)")
            }
            Self::BadEntry { table, offset } => write!(
                f,
                "the ACPI table {table} has a malformed entry at offset {offset}"
            ),
            Self::Nonsense { table, what } => write!(f, "the ACPI table {table} {what}"),
            Self::Missing { table } => write!(f, "there is no ACPI table {table}"),
        }
    }
}

impl core::error::Error for AcpiError {}

/// What the tables say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acpi {
    /// The physical address of the local APIC's registers.
    pub local_apic: u64,
    /// The processors, in the order of the MADT.
    pub cpus: Vec<AcpiCpu>,
    /// The memory's affinity: the SRAT's enabled entries. Empty without a SRAT.
    pub memory_affinity: Vec<MemoryAffinity>,
    /// The processors' affinity: the SRAT's enabled entries. Empty without a SRAT.
    pub cpu_affinity: Vec<CpuAffinity>,
    /// The SLIT.
    pub distances: Option<Distances>,
    /// The FADT's registers.
    pub fixed: Fixed,
    /// The physical address of the HPET's registers.
    pub hpet: Option<u64>,
}

/// A processor of the MADT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcpiCpu {
    /// The (x2)APIC identifier.
    pub apic_id: u32,
    /// The processor identifier of ACPI's namespace.
    pub uid: u32,
    /// Ready for use. The others are `online_capable` and must be added at run time first.
    pub enabled: bool,
    /// Can be added at run time.
    pub online_capable: bool,
}

/// A range of memory and the proximity domain that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAffinity {
    /// The first address.
    pub start: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The proximity domain.
    pub domain: u32,
    /// Room for memory that may be plugged in, not necessarily memory.
    pub hot_pluggable: bool,
    /// The memory keeps its content without power.
    pub non_volatile: bool,
}

/// A processor and the proximity domain that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuAffinity {
    /// The (x2)APIC identifier.
    pub apic_id: u32,
    /// The proximity domain.
    pub domain: u32,
}

/// The distances between the proximity domains, 10 being the distance to oneself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distances {
    localities: usize,
    entries: Vec<u8>,
}

impl Distances {
    /// The distance from one domain to another, if the table has it.
    pub fn get(&self, from: u32, to: u32) -> Option<u8> {
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        if from >= self.localities || to >= self.localities {
            return None;
        }
        self.entries.get(from * self.localities + to).copied()
    }
}

/// Registers of the FADT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The I/O port of the power management timer (3.579545 MHz).
    pub pm_timer_port: Option<u16>,
    /// The power management timer has 32 bits, not 24.
    pub pm_timer_32_bits: bool,
    /// The register that resets the machine.
    pub reset: Option<Reset>,
}

/// A write that resets the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Where to write.
    pub register: Register,
    /// The byte to write.
    pub value: u8,
}

/// An address in one of ACPI's address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// A physical address.
    Memory(u64),
    /// An I/O port.
    Port(u16),
}

impl Acpi {
    /// Reads the tables that the root pointer at `rsdp` leads to.
    ///
    /// A machine without MADT is an error; the other tables may be missing, but one that is there
    /// must be well-formed.
    pub fn parse(memory: &impl PhysicalMemory, rsdp: u64) -> Result<Self, AcpiError> {
        let mut acpi = Self::default();
        let mut has_madt = false;
        for address in rsdp::table_addresses(memory, rsdp)? {
            let Some(signature) = memory.read(address, 4).and_then(<[u8]>::first_chunk) else {
                continue;
            };
            match signature {
                b"APIC" if !has_madt => {
                    has_madt = true;
                    acpi.read_madt(tables::table(memory, address, *signature)?)?;
                }
                b"SRAT" => acpi.read_srat(tables::table(memory, address, *signature)?)?,
                b"SLIT" => acpi.read_slit(tables::table(memory, address, *signature)?)?,
                b"FACP" => acpi.read_fadt(tables::table(memory, address, *signature)?)?,
                b"HPET" => acpi.read_hpet(tables::table(memory, address, *signature)?)?,
                _ => {}
            }
        }
        if !has_madt {
            return Err(AcpiError::Missing {
                table: Signature(*b"APIC"),
            });
        }
        Ok(acpi)
    }
}

#[cfg(test)]
pub(crate) mod tests;
