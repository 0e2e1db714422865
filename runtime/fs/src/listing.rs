//! What `getdents64` gives: the entries of a directory, whether they come from the image, the
//! host, or both.

use alloc::vec::Vec;

use hermit_abi::{DT_DIR, DT_REG, dirent64};

use crate::errno::Errno;
use crate::tree::{Node, Tree};

/// Where parts of a record start.
const RECORD_BYTES: usize = core::mem::offset_of!(dirent64, d_reclen);
const KIND: usize = core::mem::offset_of!(dirent64, d_type);
const NAME: usize = core::mem::offset_of!(dirent64, d_name);

/// The names in the root of the image that are the packer's: the description of the image and the
/// folder with the application itself. They can be opened, but are no files of the application.
const HIDDEN: [&[u8]; 2] = [b"hermit.toml", b".dolmen"];

/// All entries of a directory as `dirent64` records, without `.` and `..`.
///
/// std calls `getdents64` once with a growing buffer and takes any success for everything, so
/// entries are never split over calls.
#[derive(Debug, Default)]
pub struct Listing {
    records: Vec<u8>,
}

impl Listing {
    /// The entries of a directory of the image.
    pub fn of_image(tree: &Tree<'_>, directory: Node) -> Result<Self, Errno> {
        let mut listing = Self::default();
        for (name, node) in tree.read_dir(directory)? {
            if directory == Tree::ROOT && HIDDEN.contains(&name) {
                continue;
            }
            let kind = if tree.metadata(node).is_dir {
                DT_DIR
            } else {
                DT_REG
            };
            listing.push(name, Tree::inode_number(node), kind)?;
        }
        Ok(listing)
    }

    /// Adds `dirent64` records of the host, but for those whose names the image's directory has as
    /// well: an image's file is what its path names. Records that make no sense are −EIO.
    pub fn add_host(
        &mut self,
        mut records: &[u8],
        image: Option<(&Tree<'_>, Node)>,
    ) -> Result<(), Errno> {
        while !records.is_empty() {
            let header = records.get(..NAME).ok_or(Errno::IO)?;
            let bytes = usize::from(u16::from_ne_bytes([
                header[RECORD_BYTES],
                header[RECORD_BYTES + 1],
            ]));
            let record = records.get(..bytes).ok_or(Errno::IO)?;
            let name = record.get(NAME..).ok_or(Errno::IO)?;
            let end = name.iter().position(|&byte| byte == 0).ok_or(Errno::IO)?;
            let name = &name[..end];
            records = &records[bytes..];
            let in_image = |(tree, node): (&Tree<'_>, Node)| tree.child(node, name).is_some();
            if matches!(name, b"." | b"..") || image.is_some_and(in_image) {
                continue;
            }
            if name.is_empty() || name.contains(&b'/') {
                return Err(Errno::IO);
            }
            let mut number = [0; 8];
            number.copy_from_slice(&record[..8]);
            self.push(name, u64::from_ne_bytes(number), record[KIND])?;
        }
        Ok(())
    }

    fn push(&mut self, name: &[u8], inode: u64, kind: u8) -> Result<(), Errno> {
        // Header, name and a zero byte, rounded so that the next record is aligned.
        let bytes = (NAME + name.len() + 1).next_multiple_of(align_of::<dirent64>());
        let record_bytes = u16::try_from(bytes).map_err(|_| Errno::IO)?;
        let start = self.records.len();
        let end = start + bytes;
        self.records.try_reserve(bytes).map_err(|_| Errno::NOMEM)?;
        self.records.resize(end, 0);
        let record = &mut self.records[start..];
        record[..8].copy_from_slice(&inode.to_ne_bytes());
        record[8..16].copy_from_slice(&(end as i64).to_ne_bytes());
        record[RECORD_BYTES..][..2].copy_from_slice(&record_bytes.to_ne_bytes());
        record[KIND] = kind;
        record[NAME..][..name.len()].copy_from_slice(name);
        Ok(())
    }

    /// The bytes of all records.
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    /// Copies all records; −EINVAL if the buffer is too small for them. Returns their bytes.
    pub fn copy_to(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        buffer
            .get_mut(..self.records.len())
            .ok_or(Errno::INVAL)?
            .copy_from_slice(&self.records);
        Ok(self.records.len())
    }
}

#[cfg(test)]
mod tests;
