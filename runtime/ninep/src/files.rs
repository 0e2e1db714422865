//! What POSIX does with files.

use hermit_abi::{self as abi, errno, stat};

use crate::client::{Client, NONE, OpenFile, OpenId};
use crate::listing::Listing;
use crate::walk::{Fid, ROOT};
use crate::wire::{Kind, Qid};
use crate::{Error, Transport};

/// Permissions that new files do not get, as for a process of the host.
const UMASK: u32 = 0o022;
/// The flag that makes removing mean a directory.
const REMOVE_DIRECTORY: u32 = 0x200;
/// What opening hands on to the host.
const HOST_FLAGS: i32 = abi::O_WRONLY | abi::O_RDWR | abi::O_TRUNC | abi::O_APPEND;

impl<T: Transport> Client<T> {
    /// `open(2)` with the flags of `hermit-abi`.
    pub fn open(&mut self, path: &[&[u8]], flags: i32, mode: u32) -> Result<OpenId, Error> {
        let slot = self.free_slot()?;
        let (fid, qid) = if flags & abi::O_CREAT == 0 {
            self.open_existing(path, true, flags)?
        } else {
            self.open_or_create(path, flags, mode)?
        };
        self.open[slot] = Some(OpenFile {
            fid,
            qid,
            position: 0,
            appends: flags & abi::O_APPEND != 0,
            listing: None,
        });
        // At most MAX_OPEN.
        Ok(OpenId(slot as u16))
    }

    fn open_existing(
        &mut self,
        path: &[&[u8]],
        follow: bool,
        flags: i32,
    ) -> Result<(Fid, Qid), Error> {
        let (mut fid, qid) = self.walk(path, follow)?;
        let writes = flags & (HOST_FLAGS | abi::O_CREAT) != 0;
        let refusal = match qid.is_directory() {
            true if writes => Some(errno::EISDIR),
            false if flags & abi::O_DIRECTORY != 0 => Some(errno::ENOTDIR),
            _ => None,
        };
        if let Some(number) = refusal {
            self.release(fid);
            return Err(Error::Errno(number));
        }
        if fid == ROOT {
            fid = self.clone_root()?;
        }
        let opened = self.call(Kind::Lopen, |request| {
            request.u32(fid.0);
            request.u32(host_flags(flags));
        });
        match opened.map(|_| ()) {
            Ok(()) => Ok((fid, qid)),
            Err(error) => {
                self.release(fid);
                Err(error)
            }
        }
    }

    fn open_or_create(
        &mut self,
        path: &[&[u8]],
        flags: i32,
        mode: u32,
    ) -> Result<(Fid, Qid), Error> {
        let exclusive = flags & abi::O_EXCL != 0;
        let missing = Error::Errno(errno::ENOENT);
        if exclusive {
            match self.with(path, false, |_, _| Ok(())) {
                Ok(()) => return Err(Error::Errno(errno::EEXIST)),
                Err(error) if error == missing => {}
                Err(error) => return Err(error),
            }
            return self.create(path, flags, mode);
        }
        match self.open_existing(path, true, flags) {
            Err(error) if error == missing => {}
            result => return result,
        }
        match self.create(path, flags, mode) {
            // Somebody on the host was faster.
            Err(Error::Errno(errno::EEXIST)) => self.open_existing(path, true, flags),
            result => result,
        }
    }

    fn create(&mut self, path: &[&[u8]], flags: i32, mode: u32) -> Result<(Fid, Qid), Error> {
        let (name, directory) = path.split_last().ok_or(Error::Errno(errno::EISDIR))?;
        let (mut fid, _) = self.walk(directory, true)?;
        if fid == ROOT {
            fid = self.clone_root()?;
        }
        let created = self.call(Kind::Lcreate, |request| {
            request.u32(fid.0);
            request.string(name);
            request.u32(host_flags(flags) | (abi::O_CREAT | abi::O_EXCL) as u32);
            request.u32(mode & 0o7777 & !UMASK);
            request.u32(NONE);
        });
        // The directory's number now stands for the file.
        match created.and_then(|mut reply| reply.qid()) {
            Ok(qid) => Ok((fid, qid)),
            Err(error) => {
                self.release(fid);
                Err(error)
            }
        }
    }

    /// `close(2)`.
    pub fn close(&mut self, id: OpenId) -> Result<(), Error> {
        let slot = self.open.get_mut(usize::from(id.0));
        let file = slot.and_then(Option::take);
        let file = file.ok_or(Error::Errno(errno::EBADF))?;
        self.release(file.fid);
        Ok(())
    }

    /// `read(2)` of up to `bytes` bytes: all of them, unless the file ends before.
    ///
    /// They go to `take`, piece by piece: where each is to stand, counted from the first byte, and
    /// the bytes. It returns how many it took; less than there are, or an error number, ends the
    /// call, like any error with what was taken before.
    pub fn read(
        &mut self,
        id: OpenId,
        bytes: usize,
        mut take: impl FnMut(usize, &[u8]) -> Result<usize, i32>,
    ) -> Result<usize, Error> {
        let file = self.file(id)?;
        if file.qid.is_directory() {
            return Err(Error::Errno(errno::EISDIR));
        }
        let (fid, position) = (file.fid, file.position);
        let done = pieces(bytes, self.data_bytes(), |done, asked| {
            let mut reply = self.call(Kind::Read, |request| {
                request.u32(fid.0);
                request.u64(position + done as u64);
                request.u32(asked as u32);
            })?;
            take(done, reply.data(asked)?).map_err(Error::Errno)
        })?;
        self.file(id)?.position += done as u64;
        Ok(done)
    }

    /// `write(2)` of `bytes` bytes: all of them, unless the host fails after some.
    ///
    /// They come from `give`, piece by piece: it is told where the piece stands, counted from the
    /// first byte, and fills it. It returns how many bytes it gave; less than asked for, or an
    /// error number, ends the call, like any error with what was written before.
    pub fn write(
        &mut self,
        id: OpenId,
        bytes: usize,
        mut give: impl FnMut(usize, &mut [u8]) -> Result<usize, i32>,
    ) -> Result<usize, Error> {
        let (fid, appends) = (self.file(id)?.fid, self.file(id)?.appends);
        if appends {
            let end = self.size(fid)?;
            self.file(id)?.position = end;
        }
        let position = self.file(id)?.position;
        let done = pieces(bytes, self.data_bytes(), |done, asked| {
            let given = give(done, self.data_place(asked)).map_err(Error::Errno)?;
            let mut reply = self.call(Kind::Write, |request| {
                request.u32(fid.0);
                request.u64(position + done as u64);
                request.u32(given as u32);
                request.skip(given);
            })?;
            let count = reply.u32()? as usize;
            if count > given {
                return Err(Error::Protocol("it wrote more than it was given"));
            }
            Ok(count)
        })?;
        self.file(id)?.position += done as u64;
        Ok(done)
    }

    /// `lseek(2)`: positions behind the end are fine, those before the start are not. A directory
    /// can only be read again from its start.
    pub fn seek(&mut self, id: OpenId, offset: i64, whence: i32) -> Result<i64, Error> {
        let file = self.file(id)?;
        if file.qid.is_directory() {
            if (offset, whence) != (0, abi::SEEK_SET) {
                return Err(Error::Errno(errno::EINVAL));
            }
            file.listing = None;
        }
        let base = match whence {
            abi::SEEK_SET => 0,
            abi::SEEK_CUR => file.position,
            abi::SEEK_END => {
                let fid = file.fid;
                self.size(fid)?
            }
            _ => return Err(Error::Errno(errno::EINVAL)),
        };
        let position = i64::try_from(base)
            .ok()
            .and_then(|base| base.checked_add(offset))
            .ok_or(Error::Errno(errno::EOVERFLOW))?;
        let file = self.file(id)?;
        file.position = u64::try_from(position).map_err(|_| Error::Errno(errno::EINVAL))?;
        Ok(position)
    }

    /// `fstat(2)`.
    pub fn fstat(&mut self, id: OpenId) -> Result<stat, Error> {
        let fid = self.file(id)?.fid;
        self.attributes(fid)
    }

    /// `stat(2)`, or `lstat(2)` where links are not followed.
    pub fn stat(&mut self, path: &[&[u8]], follow: bool) -> Result<stat, Error> {
        self.with(path, follow, Self::attributes)
    }

    /// `getdents64`: as many of a directory's `dirent64` records as the buffer holds, 0 at the end.
    /// A buffer that does not hold one is −EINVAL.
    ///
    /// The directory is read as a whole at the first call, so what changes on the host meanwhile
    /// neither doubles nor hides other entries.
    pub fn getdents(&mut self, id: OpenId, buffer: &mut [u8]) -> Result<usize, Error> {
        let file = self.file(id)?;
        if !file.qid.is_directory() {
            return Err(Error::Errno(errno::ENOTDIR));
        }
        if file.listing.is_none() {
            let fid = file.fid;
            let listing = self.list(fid)?;
            self.file(id)?.listing = Some(listing);
        }
        let OpenFile {
            position, listing, ..
        } = self.file(id)?;
        let listing = listing.as_ref().map_or(&[][..], Listing::records);
        // What was handed out before.
        let left = listing.get(*position as usize..).unwrap_or_default();
        let records = Listing::fitting(left, buffer.len());
        if records.is_empty() && !left.is_empty() {
            return Err(Error::Errno(errno::EINVAL));
        }
        buffer[..records.len()].copy_from_slice(records);
        *position += records.len() as u64;
        Ok(records.len())
    }

    fn list(&mut self, fid: Fid) -> Result<Listing, Error> {
        let asked = self.data_bytes();
        let mut listing = Listing::default();
        let mut offset = 0;
        loop {
            let mut reply = self.call(Kind::Readdir, |request| {
                request.u32(fid.0);
                request.u64(offset);
                request.u32(asked as u32);
            })?;
            let data = reply.data(asked)?;
            if data.is_empty() {
                return Ok(listing);
            }
            let next = listing.add(data)?;
            if next == offset {
                return Err(Error::Protocol("a directory does not come to its end"));
            }
            offset = next;
        }
    }

    /// `mkdir(2)`.
    pub fn mkdir(&mut self, path: &[&[u8]], mode: u32) -> Result<(), Error> {
        let (name, directory) = path.split_last().ok_or(Error::Errno(errno::EEXIST))?;
        self.with(directory, true, |client, fid| {
            let made = client.call(Kind::Mkdir, |request| {
                request.u32(fid.0);
                request.string(name);
                request.u32(mode & 0o7777 & !UMASK);
                request.u32(NONE);
            });
            made.map(|_| ())
        })
    }

    /// `unlink(2)`, or `rmdir(2)`. The share itself stays.
    pub fn remove(&mut self, path: &[&[u8]], directory: bool) -> Result<(), Error> {
        let (name, parent) = path.split_last().ok_or(Error::Errno(errno::EBUSY))?;
        self.with(parent, true, |client, fid| {
            let removed = client.call(Kind::Unlinkat, |request| {
                request.u32(fid.0);
                request.string(name);
                request.u32(if directory { REMOVE_DIRECTORY } else { 0 });
            });
            removed.map(|_| ())
        })
    }

    /// `fsync(2)`.
    pub fn fsync(&mut self, id: OpenId) -> Result<(), Error> {
        let fid = self.file(id)?.fid;
        let synced = self.call(Kind::Fsync, |request| {
            request.u32(fid.0);
            // Data and attributes.
            request.u32(0);
        });
        synced.map(|_| ())
    }
}

/// The flags as the host gets them: a pipe in the share must not hold the machine up.
fn host_flags(flags: i32) -> u32 {
    (flags & HOST_FLAGS | abi::O_NONBLOCK) as u32
}

/// Calls `one` with what is done and what to ask for, until all of `total` is done or one call
/// does less than it was asked for. A failure counts only if nothing was done before.
fn pieces(
    total: usize,
    most: usize,
    mut one: impl FnMut(usize, usize) -> Result<usize, Error>,
) -> Result<usize, Error> {
    let mut done = 0;
    while done < total {
        let asked = most.min(total - done);
        match one(done, asked) {
            Ok(count) => {
                done += count;
                if count < asked {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
