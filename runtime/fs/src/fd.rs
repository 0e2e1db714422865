//! The table of open files.

use alloc::vec::Vec;

use hermit_abi as abi;

use crate::errno::Errno;
use crate::file::{Entries, Handle, InFlight, Opened, Owner, Seek, Source};
use crate::listing::Listing;
use crate::tree::Tree;

/// The first descriptor of the table: 0 to 2 are the console, which is the caller's.
pub const FIRST_FD: i32 = 3;
/// How many descriptors can be open at a time.
pub const MAX_OPEN: usize = 1024;

/// How far a directory was listed.
#[derive(Debug)]
enum Progress {
    /// At its start.
    Unread,
    /// Collected, but the caller's buffer was too small.
    Kept(Listing),
    /// At its end, or being collected.
    Read,
}

/// What an open descriptor stands for. Descriptors made by `dup` share it.
struct OpenFile {
    opened: Opened,
    /// In a file of the image. The host keeps its own files' positions.
    position: u64,
    progress: Progress,
    /// How many descriptors refer to it.
    descriptors: u32,
    /// How many calls use its handle now.
    in_flight: u32,
}

enum Place {
    Free,
    Reserved,
    Open(OpenFile),
}

#[derive(Clone, Copy)]
enum Slot {
    Free,
    /// For a descriptor that is about to be opened, with its place in `files`.
    Reserved(usize),
    Open(usize),
}

/// The descriptors of one application.
///
/// The caller locks it. No method touches the application's memory or calls the host, and allocation
/// failures are −ENOMEM: methods return *what* to do, and it is done when the lock is open again. A
/// handle of the host is in use from the method that returns it, with an [`InFlight`], to
/// [`FdTable::finish`]; who closes a descriptor meanwhile leaves it to `finish` to say that the
/// handle is to be released.
#[derive(Default)]
pub struct FdTable {
    /// By descriptor − 3.
    slots: Vec<Slot>,
    files: Vec<Place>,
}

impl FdTable {
    /// A table without open files.
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Sets a descriptor aside, the lowest that is free. It exists from [`FdTable::fill`] on.
    ///
    /// What opening changes on the host cannot be undone, so there is a descriptor first.
    pub fn reserve(&mut self) -> Result<i32, Errno> {
        let slot = self.free_slot()?;
        let free = |place: &Place| matches!(place, Place::Free);
        let index = match self.files.iter().position(free) {
            Some(index) => index,
            None => {
                self.files.try_reserve(1).map_err(|_| Errno::NOMEM)?;
                self.files.push(Place::Free);
                self.files.len() - 1
            }
        };
        self.files[index] = Place::Reserved;
        self.slots[slot] = Slot::Reserved(index);
        Ok(fd_of(slot))
    }

    /// Takes [`FdTable::reserve`] back.
    pub fn abandon(&mut self, fd: i32) {
        if let Some((slot, Slot::Reserved(index))) = self.slot(fd) {
            self.files[index] = Place::Free;
            self.slots[slot] = Slot::Free;
        }
    }

    /// Makes a reserved descriptor stand for a file.
    pub fn fill(&mut self, fd: i32, opened: Opened) {
        if let Some((slot, Slot::Reserved(index))) = self.slot(fd) {
            self.files[index] = Place::Open(OpenFile {
                opened,
                position: 0,
                progress: Progress::Unread,
                descriptors: 1,
                in_flight: 0,
            });
            self.slots[slot] = Slot::Open(index);
        }
    }

    /// `close(2)`. Returns the handle that is to be released now.
    pub fn close(&mut self, fd: i32) -> Result<Option<Handle>, Errno> {
        let Some((slot, Slot::Open(index))) = self.slot(fd) else {
            return Err(Errno::BADF);
        };
        self.slots[slot] = Slot::Free;
        if let Place::Open(file) = &mut self.files[index] {
            file.descriptors -= 1;
        }
        Ok(self.release(index))
    }

    /// `dup(2)`: a second descriptor for the same file.
    pub fn dup(&mut self, fd: i32) -> Result<i32, Errno> {
        let (index, _) = self.file(fd)?;
        let slot = self.free_slot()?;
        self.file(fd)?.1.descriptors += 1;
        self.slots[slot] = Slot::Open(index);
        Ok(fd_of(slot))
    }

    /// `read(2)`: the bytes of the image to copy to the application, or the host's file to read.
    /// The position in the image has moved behind the bytes, so that no two readers get the same.
    pub fn read<'a>(&mut self, tree: &Tree<'a>, fd: i32, len: usize) -> Result<Source<'a>, Errno> {
        let (index, file) = self.file(fd)?;
        match file.opened {
            Opened::ImageFile(node) => {
                let bytes = tree.extent(node, file.position, len)?;
                file.position += bytes.len() as u64;
                Ok(Source::Image(bytes))
            }
            Opened::HostFile(handle, access) if access.read => {
                Ok(Source::Host(file.begin(index), handle))
            }
            Opened::HostFile(..) => Err(Errno::BADF),
            Opened::Directory { .. } => Err(Errno::ISDIR),
        }
    }

    /// `write(2)`: only files of the host are ever open for writing.
    pub fn write(&mut self, fd: i32) -> Result<(InFlight, Handle), Errno> {
        let (index, file) = self.file(fd)?;
        match file.opened {
            Opened::HostFile(handle, access) if access.write => Ok((file.begin(index), handle)),
            _ => Err(Errno::BADF),
        }
    }

    /// `lseek(2)`: positions behind the end are fine, those before the start are not. A directory
    /// can only be rewound.
    pub fn lseek(
        &mut self,
        tree: &Tree<'_>,
        fd: i32,
        offset: i64,
        whence: i32,
    ) -> Result<Seek, Errno> {
        let (index, file) = self.file(fd)?;
        let size = match file.opened {
            Opened::HostFile(handle, _) => {
                if !matches!(whence, abi::SEEK_SET | abi::SEEK_CUR | abi::SEEK_END) {
                    return Err(Errno::INVAL);
                }
                return Ok(Seek::Host(file.begin(index), handle));
            }
            Opened::Directory { .. } => {
                if (offset, whence) != (0, abi::SEEK_SET) {
                    return Err(Errno::INVAL);
                }
                file.progress = Progress::Unread;
                return Ok(Seek::At(0));
            }
            Opened::ImageFile(node) => tree.metadata(node).size,
        };
        let base = match whence {
            abi::SEEK_SET => 0,
            abi::SEEK_CUR => file.position,
            abi::SEEK_END => size,
            _ => return Err(Errno::INVAL),
        };
        let base = i64::try_from(base).map_err(|_| Errno::OVERFLOW)?;
        let position = base.checked_add(offset).ok_or(Errno::OVERFLOW)?;
        file.position = u64::try_from(position).map_err(|_| Errno::INVAL)?;
        Ok(Seek::At(position))
    }

    /// Who knows about an open file, for `fstat(2)` and the like. A directory of both is described
    /// by the image.
    pub fn owner(&mut self, fd: i32) -> Result<Owner, Errno> {
        let (index, file) = self.file(fd)?;
        match file.opened {
            Opened::ImageFile(node)
            | Opened::Directory {
                image: Some(node), ..
            } => Ok(Owner::Image(node)),
            Opened::HostFile(handle, _)
            | Opened::Directory {
                host: Some(handle), ..
            } => Ok(Owner::Host(file.begin(index), handle)),
            Opened::Directory {
                image: None,
                host: None,
            } => Err(Errno::BADF),
        }
    }

    /// First half of `getdents64`. The directory is at its end from here on, for whoever else reads
    /// it at the same time; [`FdTable::keep`] takes that back.
    pub fn getdents(&mut self, fd: i32) -> Result<Entries, Errno> {
        let (index, file) = self.file(fd)?;
        let Opened::Directory { image, host } = file.opened else {
            return Err(Errno::NOTDIR);
        };
        match core::mem::replace(&mut file.progress, Progress::Read) {
            Progress::Read => Ok(Entries::End),
            Progress::Kept(listing) => Ok(Entries::Kept(file.begin(index), listing)),
            Progress::Unread => Ok(Entries::Collect {
                call: file.begin(index),
                image,
                host,
            }),
        }
    }

    /// The caller did not get the entries: they are kept for the next call, or, where there are
    /// none, to be collected anew.
    pub fn keep(&mut self, call: &InFlight, listing: Option<Listing>) {
        if let Place::Open(file) = &mut self.files[call.index] {
            file.progress = listing.map_or(Progress::Unread, Progress::Kept);
        }
    }

    /// Ends a call. Returns the handle that is to be released now: the descriptor was closed
    /// meanwhile, and this was the last call.
    pub fn finish(&mut self, call: InFlight) -> Option<Handle> {
        if let Place::Open(file) = &mut self.files[call.index] {
            file.in_flight -= 1;
        }
        self.release(call.index)
    }

    /// Frees the place of a file that nobody refers to and nobody uses; returns its handle.
    fn release(&mut self, index: usize) -> Option<Handle> {
        match &self.files[index] {
            Place::Open(file) if file.descriptors == 0 && file.in_flight == 0 => {
                let handle = file.opened.handle();
                self.files[index] = Place::Free;
                handle
            }
            _ => None,
        }
    }

    fn slot(&self, fd: i32) -> Option<(usize, Slot)> {
        let slot = usize::try_from(fd.checked_sub(FIRST_FD)?).ok()?;
        Some((slot, *self.slots.get(slot)?))
    }

    fn file(&mut self, fd: i32) -> Result<(usize, &mut OpenFile), Errno> {
        match self.slot(fd) {
            Some((_, Slot::Open(index))) => match &mut self.files[index] {
                Place::Open(file) => Ok((index, file)),
                _ => Err(Errno::BADF),
            },
            _ => Err(Errno::BADF),
        }
    }

    /// The lowest free slot, as POSIX wants it.
    fn free_slot(&mut self) -> Result<usize, Errno> {
        let free = |slot: &Slot| matches!(slot, Slot::Free);
        if let Some(slot) = self.slots.iter().position(free) {
            return Ok(slot);
        }
        if self.slots.len() == MAX_OPEN {
            return Err(Errno::MFILE);
        }
        self.slots.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        self.slots.push(Slot::Free);
        Ok(self.slots.len() - 1)
    }
}

impl OpenFile {
    /// A call that uses the file's handle begins.
    fn begin(&mut self, index: usize) -> InFlight {
        self.in_flight += 1;
        InFlight { index }
    }
}

fn fd_of(slot: usize) -> i32 {
    // At most MAX_OPEN slots: fits.
    FIRST_FD + slot as i32
}

#[cfg(test)]
mod tests;
