//! Files of the host in folders that it shares as virtio devices, as QEMU does.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;

use dolmen_firmware::bootargs;
use dolmen_fs::Errno;
use dolmen_fs::runs::Direction;
use dolmen_ninep::{Client, Error, Listing, MAX_OPEN, Mount, Mounts, OpenId, Resolved};
use hermit_abi::{
    DT_DIR, O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY, S_IFDIR, S_IFMT, SEEK_SET, stat,
};

use super::{Handle, HostFiles};
use crate::dev::virtio_9p::{self, Device};
use crate::fatal::refuse;
use crate::mem::{direct, pieces};
use crate::sched::mutex::Mutex;

/// Mounts what the boot arguments name; a tag without a device ends the boot.
pub(crate) fn mount(wanted: &[bootargs::Mount]) {
    if wanted.is_empty() {
        return;
    }
    let mut tags: Vec<&str> = Vec::new();
    for mount in wanted {
        if !tags.contains(&&*mount.tag) {
            tags.push(&mount.tag);
        }
    }
    let mut devices = virtio_9p::find(&tags);
    let shares = tags.iter().map(|tag| {
        let Some(found) = devices.iter().position(|(name, _)| name == tag) else {
            refuse(format_args!(
                "the machine has no virtio-9p device (of version 1) with the tag '{tag}', which the boot argument 'mount' names"
            ));
        };
        let (_, device) = devices.swap_remove(found);
        let client = Client::new(device).unwrap_or_else(|error| {
            refuse(format_args!("the share '{tag}' cannot be used: {error}"))
        });
        Mutex::new(client)
    });
    let shares = shares.collect();
    let mounts = wanted.iter().filter_map(|mount| {
        let share = tags.iter().position(|tag| *tag == mount.tag)?;
        let file = mount.file.as_ref().map(String::as_bytes);
        Some(Mount::new(share, mount.guest.as_bytes(), file))
    });
    super::install(Box::leak(Box::new(Shares {
        mounts: Mounts::new(mounts.collect()),
        shares,
        ways: Mutex::new(Vec::new()),
    })));
}

/// All shares, and where the application sees them.
struct Shares {
    mounts: Mounts,
    shares: Vec<Mutex<Client<Device>>>,
    /// What is open of the directories that lead to the shares.
    ways: Mutex<Vec<Option<Way>>>,
}

/// An open directory that leads to shares.
struct Way {
    listing: Listing,
    /// Bytes of it that were handed out.
    done: usize,
}

/// What a handle stands for. The upper half of its number is the share's number plus one, or 0.
enum Open {
    Way(usize),
    File(usize, OpenId),
}

impl Open {
    fn of(handle: Handle) -> Self {
        // Handles are made by `handle` alone.
        let number = handle.0 as u32;
        let id = number as u16;
        match (number >> 16).checked_sub(1) {
            None => Self::Way(id.into()),
            Some(share) => Self::File(share as usize, OpenId(id)),
        }
    }

    fn handle(self) -> Handle {
        Handle(match self {
            Self::Way(way) => way as i32,
            Self::File(share, id) => (share as i32 + 1) << 16 | i32::from(id.0),
        })
    }
}

fn errno(error: Error) -> Errno {
    Errno::from_number(error.errno())
}

/// Copies a piece of a file into memory of the application; returns how much of it that memory
/// takes.
fn copy_in(buffer: &mut [u8], piece: &[u8]) -> Result<usize, i32> {
    let mut done = 0;
    let (start, bytes) = (buffer.as_mut_ptr(), buffer.len());
    let copied = pieces::transfer(start, bytes, Direction::ToMemory, |run| {
        let from = &piece[done..][..run.bytes];
        // SAFETY: the run's frames are the buffer's while this closure runs, as `transfer`
        // promises; the buffer is borrowed for writing, and RAM is in the direct map.
        unsafe { direct::pointer::<u8>(run.physical).copy_from(from.as_ptr(), run.bytes) };
        done += run.bytes;
        Ok(run.bytes)
    });
    copied.map_err(Errno::number)
}

/// Copies memory of the application into a piece of a file that is to be written; returns how much
/// of it there is.
fn copy_out(buffer: &[u8], piece: &mut [u8]) -> Result<usize, i32> {
    let mut done = 0;
    let (start, bytes) = (buffer.as_ptr(), buffer.len());
    let copied = pieces::transfer(start, bytes, Direction::FromMemory, |run| {
        let to = &mut piece[done..][..run.bytes];
        // SAFETY: as in `copy_in`; the buffer is borrowed.
        unsafe { direct::pointer::<u8>(run.physical).copy_to(to.as_mut_ptr(), run.bytes) };
        done += run.bytes;
        Ok(run.bytes)
    });
    copied.map_err(Errno::number)
}

const WAY: stat = stat {
    st_dev: 0,
    st_ino: 0,
    st_nlink: 2,
    st_mode: S_IFDIR | 0o555,
    st_uid: 0,
    st_gid: 0,
    st_rdev: 0,
    st_size: 0,
    st_blksize: 0,
    st_blocks: 0,
    st_atim: NEVER,
    st_mtim: NEVER,
    st_ctim: NEVER,
};
const NEVER: hermit_abi::timespec = hermit_abi::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Shares {
    /// Does one of two things with what a path stands for: in the share, or on the way.
    fn at<R>(
        &self,
        path: &CStr,
        in_share: impl FnOnce(&mut Client<Device>, usize, &[&[u8]]) -> Result<R, Error>,
        on_the_way: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match self.mounts.resolve(path.to_bytes()) {
            Some(Resolved::Share { share, names }) => {
                in_share(&mut self.shares[share].lock(), share, &names).map_err(errno)
            }
            Some(Resolved::OnTheWay) => on_the_way(),
            None => Err(Errno::NOENT),
        }
    }

    /// The same for an open file.
    fn with<R>(
        &self,
        handle: Handle,
        in_share: impl FnOnce(&mut Client<Device>, OpenId) -> Result<R, Error>,
        on_the_way: impl FnOnce(&mut Way) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        match Open::of(handle) {
            Open::File(share, id) => {
                let share = self.shares.get(share).ok_or(Errno::BADF)?;
                in_share(&mut share.lock(), id).map_err(errno)
            }
            Open::Way(way) => {
                let mut ways = self.ways.lock();
                let way = ways.get_mut(way).and_then(Option::as_mut);
                on_the_way(way.ok_or(Errno::BADF)?)
            }
        }
    }

    fn open_way(&self, path: &CStr, flags: i32) -> Result<Handle, Errno> {
        if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL {
            return Err(Errno::EXIST);
        }
        if flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND) != 0 {
            return Err(Errno::ISDIR);
        }
        let listing = self.list_way(path.to_bytes())?;
        let way = Some(Way { listing, done: 0 });
        let mut ways = self.ways.lock();
        if let Some(free) = ways.iter().position(Option::is_none) {
            ways[free] = way;
            return Ok(Open::Way(free).handle());
        }
        if ways.len() == MAX_OPEN {
            return Err(Errno::MFILE);
        }
        ways.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        ways.push(way);
        Ok(Open::Way(ways.len() - 1).handle())
    }

    /// The directories that lead on, and what exists of the places themselves.
    fn list_way(&self, path: &[u8]) -> Result<Listing, Errno> {
        let mut listing = Listing::default();
        for name in self.mounts.entries(path) {
            let place = [path, b"/", name].concat();
            let kind = match self.mounts.resolve(&place) {
                Some(Resolved::Share { share, names }) => {
                    match self.shares[share].lock().stat(&names, true) {
                        // The kind of a file in an entry is that in its mode.
                        Ok(stat) => ((stat.st_mode & S_IFMT) >> 12) as u8,
                        Err(_) => continue,
                    }
                }
                _ => DT_DIR,
            };
            listing.push(0, kind, name).map_err(errno)?;
        }
        Ok(listing)
    }
}

impl HostFiles for Shares {
    fn covers(&self, path: &[u8]) -> bool {
        self.mounts.resolve(path).is_some()
    }

    fn open(&self, path: &CStr, flags: i32, mode: i32) -> Result<Handle, Errno> {
        self.at(
            path,
            |client, share, names| {
                let id = client.open(names, flags, mode as u32)?;
                Ok(Open::File(share, id).handle())
            },
            || self.open_way(path, flags),
        )
    }

    fn close(&self, handle: Handle) -> Result<(), Errno> {
        match Open::of(handle) {
            Open::File(..) => self.with(handle, Client::close, |_| Err(Errno::BADF)),
            Open::Way(way) => {
                let mut ways = self.ways.lock();
                let way = ways.get_mut(way).and_then(Option::take);
                way.map(|_| ()).ok_or(Errno::BADF)
            }
        }
    }

    fn read(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.with(
            handle,
            |client, id| {
                client.read(id, buffer.len(), |at, piece| {
                    copy_in(&mut buffer[at..][..piece.len()], piece)
                })
            },
            |_| Err(Errno::ISDIR),
        )
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        self.with(
            handle,
            |client, id| {
                client.write(id, bytes.len(), |at, piece| {
                    copy_out(&bytes[at..][..piece.len()], piece)
                })
            },
            |_| Err(Errno::BADF),
        )
    }

    fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<i64, Errno> {
        self.with(
            handle,
            |client, id| client.seek(id, offset, whence),
            |way| {
                if (offset, whence) != (0, SEEK_SET) {
                    return Err(Errno::INVAL);
                }
                way.done = 0;
                Ok(0)
            },
        )
    }

    fn fstat(&self, handle: Handle) -> Result<stat, Errno> {
        self.with(handle, Client::fstat, |_| Ok(WAY))
    }

    fn stat(&self, path: &CStr, follow: bool) -> Result<stat, Errno> {
        self.at(
            path,
            |client, _, names| client.stat(names, follow),
            || Ok(WAY),
        )
    }

    fn getdents(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        let way = match Open::of(handle) {
            Open::Way(way) => way,
            Open::File(share, id) => {
                let share = self.shares.get(share).ok_or(Errno::BADF)?;
                return share.lock().getdents(id, buffer).map_err(errno);
            }
        };
        let mut ways = self.ways.lock();
        let way = ways.get_mut(way).and_then(Option::as_mut);
        let way = way.ok_or(Errno::BADF)?;
        let left = &way.listing.records()[way.done..];
        let records = Listing::fitting(left, buffer.len());
        if records.is_empty() && !left.is_empty() {
            return Err(Errno::INVAL);
        }
        buffer[..records.len()].copy_from_slice(records);
        way.done += records.len();
        Ok(records.len())
    }

    fn mkdir(&self, path: &CStr, mode: u32) -> Result<(), Errno> {
        self.at(
            path,
            |client, _, names| client.mkdir(names, mode),
            || Err(Errno::EXIST),
        )
    }

    fn unlink(&self, path: &CStr) -> Result<(), Errno> {
        self.at(
            path,
            |client, _, names| client.remove(names, false),
            || Err(Errno::ROFS),
        )
    }

    fn rmdir(&self, path: &CStr) -> Result<(), Errno> {
        self.at(
            path,
            |client, _, names| client.remove(names, true),
            || Err(Errno::ROFS),
        )
    }

    fn fsync(&self, handle: Handle) -> Result<(), Errno> {
        self.with(handle, Client::fsync, |_| Ok(()))
    }
}
