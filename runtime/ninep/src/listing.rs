//! Directory entries, as the application reads them.

use alloc::vec::Vec;

use hermit_abi::{dirent64, errno};

use crate::Error;
use crate::wire::Decoder;

const NAME_OFFSET: usize = core::mem::offset_of!(dirent64, d_name);
const RECLEN_OFFSET: usize = core::mem::offset_of!(dirent64, d_reclen);
/// The longest name that an entry has room for, without the zero byte behind it.
const NAME_MAX: usize = 255;

/// A whole directory as `dirent64` records.
#[derive(Debug, Default)]
pub struct Listing {
    records: Vec<u8>,
}

impl Listing {
    /// The records, one after the other.
    pub fn records(&self) -> &[u8] {
        &self.records
    }

    /// The records at the start of `records` that fit into `bytes` bytes.
    pub fn fitting(records: &[u8], bytes: usize) -> &[u8] {
        let mut end = 0;
        while let Some(head) = records[end..].get(RECLEN_OFFSET..RECLEN_OFFSET + 2) {
            let next = end + usize::from(u16::from_ne_bytes([head[0], head[1]]));
            if next > bytes.min(records.len()) || next == end {
                break;
            }
            end = next;
        }
        &records[..end]
    }

    /// Adds what one reply carries; returns where the next one is to begin. The directory itself
    /// and the one above it are left out, as std expects.
    pub(crate) fn add(&mut self, data: &[u8]) -> Result<u64, Error> {
        let mut data = Decoder::new(data);
        let mut next = 0;
        while !data.is_empty() {
            let qid = data.qid()?;
            next = data.u64()?;
            let kind = data.u8()?;
            let name = data.string()?;
            if name != b"." && name != b".." {
                self.push(qid.path, kind, name)?;
            }
        }
        Ok(next)
    }

    /// Adds an entry: the file's number, its type (`DT_…`) and its name.
    pub fn push(&mut self, number: u64, kind: u8, name: &[u8]) -> Result<(), Error> {
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) || name.contains(&b'/') {
            return Err(Error::Protocol("it lists what is no name"));
        }
        let start = self.records.len();
        let length = (NAME_OFFSET + name.len() + 1).next_multiple_of(align_of::<dirent64>());
        let end = start + length;
        self.records
            .try_reserve(length)
            .map_err(|_| Error::Errno(errno::ENOMEM))?;
        self.records.resize(end, 0);
        let record = &mut self.records[start..];
        let mut put = |offset: usize, bytes: &[u8]| {
            record[offset..][..bytes.len()].copy_from_slice(bytes);
        };
        put(
            core::mem::offset_of!(dirent64, d_ino),
            &number.to_ne_bytes(),
        );
        put(
            core::mem::offset_of!(dirent64, d_off),
            &(end as i64).to_ne_bytes(),
        );
        put(RECLEN_OFFSET, &(length as u16).to_ne_bytes());
        put(core::mem::offset_of!(dirent64, d_type), &[kind]);
        put(NAME_OFFSET, name);
        Ok(())
    }
}
