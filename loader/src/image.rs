//! What the module is, and what its `hermit.toml` asks for.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use dolmen_firmware::bootargs::{ArgsError, Words};
use dolmen_firmware::ranges::RangeSet;
use hermit_entry::Format;
use hermit_entry::config::{Config, parse_tar};

/// Where a tar header has its magic word.
const TAR_MAGIC: core::ops::Range<usize> = 257..262;
/// Firmware keeps some memory for itself; a machine of 64 MiB does not have quite as much. What
/// is usable is rounded up to this before it is compared with what an image asks for.
const MEMORY_GRAIN: u64 = 2 << 20;

/// The forms that a module can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An application.
    Elf,
    /// A Hermit image: a gzip'd tar archive.
    Gzip,
    /// A Hermit image that the boot loader has unpacked already, as GRUB does.
    Tar,
}

/// Why a module cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// It has none of the forms of [`Kind`].
    Unknown,
    /// The archive lacks something, or its `hermit.toml` is not understood.
    Archive(String),
    /// The image asks for more memory than there is.
    Memory {
        /// What the image asks for, in bytes.
        asked: u64,
        /// What there is, in bytes.
        usable: u64,
    },
    /// The image asks for more processors than there are.
    Cpus {
        /// What the image asks for.
        asked: u32,
        /// What there are.
        present: usize,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "the first module is neither an ELF application nor a Hermit image (gzip'd tar)",
            ),
            Self::Archive(why) => f.write_str(why),
            Self::Memory { asked, usable } => write!(
                f,
                "the image requires {} MiB of memory, the machine has {} MiB",
                asked.div_ceil(1 << 20),
                usable >> 20
            ),
            Self::Cpus { asked, present } => write!(
                f,
                "the image requires {asked} processors, the machine has {present}"
            ),
        }
    }
}

impl core::error::Error for ImageError {}

impl Kind {
    /// The form that `module` has, judged by its first bytes.
    pub fn of(module: &[u8]) -> Result<Self, ImageError> {
        match hermit_entry::detect_format(module) {
            Some(Format::Elf) => Ok(Self::Elf),
            Some(Format::Gzip) => Ok(Self::Gzip),
            None if module.get(TAR_MAGIC) == Some(b"ustar") => Ok(Self::Tar),
            None => Err(ImageError::Unknown),
        }
    }
}

/// An image's application and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Image<'a> {
    /// The application.
    pub elf: &'a [u8],
    words: Words,
    memory: Option<u64>,
    cpus: u32,
}

impl<'a> Image<'a> {
    /// Reads an unpacked image.
    pub fn read(tar: &'a [u8]) -> Result<Self, ImageError> {
        let handle = parse_tar(tar).map_err(|e| ImageError::Archive(one_line(&e.to_string())))?;
        let Config::V1 {
            input,
            requirements,
            kernel: _,
        } = handle.config;
        let mut kernel: Vec<String> = input.kernel_args.iter().map(|w| w[..].to_owned()).collect();
        kernel.extend(input.env_vars.iter().map(|pair| format!("env={pair}")));
        let app = input.app_args.iter().map(|w| w[..].to_owned()).collect();
        Ok(Self {
            elf: handle.raw_kernel,
            words: Words { kernel, app },
            memory: requirements.memory.map(|bytes| bytes.as_u64()),
            cpus: requirements.cpus,
        })
    }

    /// Compares what the image requires with what there is. `cpus` is the number of processors, if
    /// it is known.
    pub fn check(&self, usable: &RangeSet, cpus: Option<usize>) -> Result<(), ImageError> {
        let usable = usable.bytes();
        if let Some(asked) = self.memory
            && usable.next_multiple_of(MEMORY_GRAIN) < asked
        {
            return Err(ImageError::Memory { asked, usable });
        }
        match cpus {
            Some(present) if present < self.cpus as usize => Err(ImageError::Cpus {
                asked: self.cpus,
                present,
            }),
            _ => Ok(()),
        }
    }

    /// The boot arguments: the image's words for the kernel and then the command line's, so that
    /// the latter win; the application's arguments from the command line if it has any, else from
    /// the image.
    pub fn boot_args(&self, command_line: &str) -> Result<String, ArgsError> {
        let Words { kernel, app } = Words::split(command_line)?;
        let mut words = self.words.clone();
        words.kernel.extend(kernel);
        if !app.is_empty() {
            words.app = app;
        }
        Ok(words.join())
    }
}

/// An error of the TOML parser spans several lines and shows the line that it is about. What
/// matters is in the first line and the last.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match (lines.next(), lines.next_back()) {
        (Some(first), Some(last)) => format!("{first}: {last}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
