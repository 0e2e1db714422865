//! The information structure of multiboot, version 0.6.96.
//!
//! The `multiboot` crate trusts every address and length in it and every string to be UTF-8; this
//! reads over [`PhysicalMemory`] instead.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use dolmen_firmware::PhysicalMemory;
use dolmen_firmware::bytes::Fields;
use dolmen_firmware::ranges::{Range, RangeSet};

const INFO_BYTES: usize = 116;
const MODULE_BYTES: usize = 16;
/// A string that has not ended after this many bytes is taken to be none.
const MAX_STRING_BYTES: usize = 64 << 10;

const HAS_COMMAND_LINE: u32 = 1 << 2;
const HAS_MODULES: u32 = 1 << 3;
const HAS_MEMORY_MAP: u32 = 1 << 6;
const HAS_LOADER_NAME: u32 = 1 << 9;

/// What the boot loader says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multiboot {
    /// The memory that can be used, according to the memory map.
    pub usable: RangeSet,
    /// The modules, in the order given.
    pub modules: Vec<Range>,
    /// The command line, without the loader's own file name.
    pub command_line: String,
    /// Where all this is written, the modules not included.
    pub occupied: Vec<Range>,
}

/// Why the structure cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultibootError {
    /// It, or a part of it, lies outside of the readable memory.
    Unreadable,
    /// It has no memory map.
    NoMemoryMap,
    /// The memory map is malformed.
    BadMemoryMap,
    /// The command line is not UTF-8.
    BadCommandLine,
}

impl fmt::Display for MultibootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "the boot loader's information lies outside of the readable memory",
            Self::NoMemoryMap => "the boot loader does not hand over a memory map",
            Self::BadMemoryMap => "the boot loader's memory map is malformed",
            Self::BadCommandLine => "the command line is not UTF-8",
        })
    }
}

impl core::error::Error for MultibootError {}

impl Multiboot {
    /// Reads the structure at `address`.
    pub fn read(memory: &impl PhysicalMemory, address: u64) -> Result<Self, MultibootError> {
        let info = memory
            .read(address, INFO_BYTES)
            .ok_or(MultibootError::Unreadable)?;
        let field = |offset| info.u32(offset).unwrap_or_default();
        let flags = field(0);
        let mut multiboot = Self::default();
        multiboot
            .occupied
            .push(Range::with_len(address, INFO_BYTES as u64));

        if flags & HAS_MEMORY_MAP == 0 {
            return Err(MultibootError::NoMemoryMap);
        }
        multiboot.read_memory_map(memory, field(48), field(44))?;

        let from_qemu = flags & HAS_LOADER_NAME != 0 && {
            let name = multiboot.read_string(memory, field(64))?;
            name.starts_with(b"qemu")
        };
        if flags & HAS_COMMAND_LINE != 0 {
            let line = multiboot.read_string(memory, field(16))?;
            let line = String::from_utf8(line).map_err(|_| MultibootError::BadCommandLine)?;
            multiboot.command_line = match line.split_once(' ') {
                // QEMU puts the name of the loader's file in front, GRUB does not.
                Some((_, arguments)) if from_qemu => arguments.into(),
                None if from_qemu => String::new(),
                _ => line,
            };
        }
        if flags & HAS_MODULES != 0 {
            multiboot.read_modules(memory, field(24), field(20))?;
        }
        Ok(multiboot)
    }

    /// Ranges that are available and that no entry of another type overlaps.
    fn read_memory_map(
        &mut self,
        memory: &impl PhysicalMemory,
        address: u32,
        bytes: u32,
    ) -> Result<(), MultibootError> {
        const AVAILABLE: u32 = 1;
        let mut rest = memory
            .read(address.into(), bytes as usize)
            .ok_or(MultibootError::Unreadable)?;
        self.occupied
            .push(Range::with_len(address.into(), bytes.into()));
        let mut unusable = Vec::new();
        while !rest.is_empty() {
            // The size of an entry does not count the field that holds it.
            let entry = rest.u32(0).and_then(|size| {
                let (entry, after) = rest.get(4..)?.split_at_checked(size as usize)?;
                rest = after;
                Some((entry.u64(0)?, entry.u64(8)?, entry.u32(16)?))
            });
            let (start, bytes, kind) = entry.ok_or(MultibootError::BadMemoryMap)?;
            let range = Range::with_len(start, bytes);
            if kind == AVAILABLE {
                self.usable.insert(range);
            } else {
                unusable.push(range);
            }
        }
        for range in unusable {
            self.usable.remove(range);
        }
        Ok(())
    }

    fn read_modules(
        &mut self,
        memory: &impl PhysicalMemory,
        address: u32,
        count: u32,
    ) -> Result<(), MultibootError> {
        let bytes = (count as usize)
            .checked_mul(MODULE_BYTES)
            .ok_or(MultibootError::Unreadable)?;
        let list = memory
            .read(address.into(), bytes)
            .ok_or(MultibootError::Unreadable)?;
        self.occupied
            .push(Range::with_len(address.into(), bytes as u64));
        for entry in list.chunks_exact(MODULE_BYTES) {
            let field = |offset| u64::from(entry.u32(offset).unwrap_or_default());
            self.modules.push(Range::new(field(0), field(4)));
        }
        Ok(())
    }

    fn read_string(
        &mut self,
        memory: &impl PhysicalMemory,
        address: u32,
    ) -> Result<Vec<u8>, MultibootError> {
        let start = u64::from(address);
        let mut string = Vec::new();
        while string.len() < MAX_STRING_BYTES {
            match memory.read(start + string.len() as u64, 1) {
                Some([0]) => {
                    self.occupied
                        .push(Range::with_len(start, string.len() as u64 + 1));
                    return Ok(string);
                }
                Some([byte]) => string.push(*byte),
                _ => break,
            }
        }
        Err(MultibootError::Unreadable)
    }
}

#[cfg(test)]
mod tests;
