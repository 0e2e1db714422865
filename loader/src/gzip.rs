//! Unpacking gzip (RFC 1952).

use core::fmt;

use dolmen_firmware::bytes::Fields;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::decompress_slice_iter_to_slice;

const HEADER_BYTES: usize = 10;
const TRAILER_BYTES: usize = 8;

const HAS_HEADER_CRC: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0xe0;

/// A gzip file whose header has been read.
#[derive(Clone, Copy, Debug)]
pub struct Gzip<'a> {
    deflated: &'a [u8],
    crc: u32,
    bytes: u32,
}

/// Why a file cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GzipError {
    /// The header is malformed.
    Header,
    /// The file ends too early.
    Truncated,
    /// The compressed data are malformed.
    Corrupt,
    /// The data do not have the length or the checksum that the file ends with.
    Mismatch,
}

impl fmt::Display for GzipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "the image's gzip header is malformed",
            Self::Truncated => "the image's gzip data are truncated",
            Self::Corrupt => "the image's gzip data are corrupt",
            Self::Mismatch => {
                "the image's gzip data are corrupt or truncated: length or checksum do not match"
            }
        })
    }
}

impl core::error::Error for GzipError {}

impl<'a> Gzip<'a> {
    /// Reads the header and the trailer.
    pub fn parse(file: &'a [u8]) -> Result<Self, GzipError> {
        let (header, mut rest) = file
            .split_at_checked(HEADER_BYTES)
            .ok_or(GzipError::Truncated)?;
        let flags = match *header {
            [0x1f, 0x8b, 8, flags, ..] if flags & RESERVED == 0 => flags,
            _ => return Err(GzipError::Header),
        };
        if flags & HAS_EXTRA != 0 {
            let extra = rest.u16(0).ok_or(GzipError::Truncated)?;
            rest = skip(rest, 2 + usize::from(extra))?;
        }
        for string in [HAS_NAME, HAS_COMMENT] {
            if flags & string != 0 {
                let end = rest.iter().position(|&b| b == 0);
                rest = skip(rest, end.ok_or(GzipError::Truncated)? + 1)?;
            }
        }
        if flags & HAS_HEADER_CRC != 0 {
            rest = skip(rest, 2)?;
        }
        let (deflated, trailer) = rest
            .len()
            .checked_sub(TRAILER_BYTES)
            .and_then(|middle| rest.split_at_checked(middle))
            .ok_or(GzipError::Truncated)?;
        match (trailer.u32(0), trailer.u32(4)) {
            (Some(crc), Some(bytes)) => Ok(Self {
                deflated,
                crc,
                bytes,
            }),
            _ => Err(GzipError::Truncated),
        }
    }

    /// The length of the data when unpacked, according to the trailer.
    pub fn unpacked_bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Unpacks into `out`, which must have the length of [`unpacked_bytes`](Self::unpacked_bytes).
    pub fn unpack(&self, out: &mut [u8]) -> Result<(), GzipError> {
        let input = core::iter::once(self.deflated);
        match decompress_slice_iter_to_slice(out, input, false, true) {
            Ok(bytes) if bytes == out.len() && crc32fast::hash(out) == self.crc => Ok(()),
            Ok(_) | Err(TINFLStatus::HasMoreOutput) => Err(GzipError::Mismatch),
            Err(TINFLStatus::FailedCannotMakeProgress) => Err(GzipError::Truncated),
            Err(_) => Err(GzipError::Corrupt),
        }
    }
}

fn skip(bytes: &[u8], count: usize) -> Result<&[u8], GzipError> {
    bytes.get(count..).ok_or(GzipError::Truncated)
}

#[cfg(test)]
mod tests;
