//! The host's files by uhyve's calls.
//!
//! uhyve decides which paths lead to the host (`--file-mapping`); a path that it does not know it
//! answers itself, and a file created there lives as long as the machine.
//!
//! uhyve trusts its guest and panics where it does not expect an error: above all on a write that
//! fails, so that a write to a file that cannot be written must not reach it. What the kernel cannot
//! know beforehand, such as a full disk of the host or a position beyond what its file system holds, ends
//! the run with uhyve's message. The calls come with interrupts off, and uhyve answers them one after the
//! other: a file that blocks, such as a pipe, holds up every processor.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ffi::CStr;

use dolmen_fs::runs::Direction;
use dolmen_fs::{AccessMode, Errno};
use hermit_abi::{
    O_CREAT, O_DIRECTORY, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY, S_IFDIR, S_IFMT, stat, timespec,
};
use uhyve_interface::GuestPhysAddr;
use uhyve_interface::v2::HypercallAddress;
use uhyve_interface::v2::parameters::{
    ALLOWED_OPEN_FLAGS, CloseParams, FileAttr, FstatParams, GetdentParams, GetdentResult,
    LseekParams, MkdirParams, MkdirResult, OpenParams, ReadParams, StatKind, StatParams,
    StatResult, Timespec, UnlinkParams, WriteParams,
};

use super::{Handle, HostFiles};
use crate::dev::uhyve::hypercall;
use crate::mem::{direct, pieces};

/// The first handle that is not one of uhyve's own streams.
const FIRST_HANDLE: i32 = 3;

/// The files that uhyve offers.
pub(crate) struct Files;

/// A value in the kernel's heap, which is never paged, and whose blocks are physically contiguous.
/// uhyve writes to it behind the compiler's back.
struct Shared<T>(Box<UnsafeCell<T>>);

impl<T> Shared<T> {
    fn new(value: T) -> Result<Self, Errno> {
        let cell = Box::try_new(UnsafeCell::new(value));
        cell.map(Self).map_err(|_| Errno::NOMEM)
    }

    fn value(&mut self) -> &mut T {
        self.0.get_mut()
    }

    fn physical(&self) -> Result<GuestPhysAddr, Errno> {
        physical_of(self.0.get().cast())
    }

    /// Makes a call with this as its parameters.
    ///
    /// # Safety
    ///
    /// `T` is the type of the call's parameters, and the addresses in them are physical ones of as
    /// many bytes as they say, which nobody else uses meanwhile.
    unsafe fn call(&mut self, address: HypercallAddress) -> Result<(), Errno> {
        let argument = self.physical()?;
        // SAFETY: `Files` is only installed under uhyve; the rest by the contract.
        unsafe { hypercall(address, argument.as_u64()) };
        Ok(())
    }
}

/// The physical address of memory of the kernel. The boot has mapped it, for ever; a block of its
/// heap lies in one run of frames.
fn physical_of(start: *const u8) -> Result<GuestPhysAddr, Errno> {
    let translation = direct::translate(start.expose_provenance() as u64).ok_or(Errno::FAULT)?;
    Ok(GuestPhysAddr::new(translation.physical))
}

/// A number of uhyve's: an error if it is negative.
fn checked(value: i64) -> Result<u64, Errno> {
    u64::try_from(value)
        .map_err(|_| Errno::from_number(i32::try_from(value.unsigned_abs()).unwrap_or_default()))
}

fn is_directory(stat: &stat) -> bool {
    stat.st_mode & S_IFMT == S_IFDIR
}

/// Whether a file is one that uhyve took out of the image and keeps in its own memory. The host's
/// files have numbers.
fn is_virtual(stat: &stat) -> bool {
    !is_directory(stat) && stat.st_dev == 0 && stat.st_ino == 0
}

fn time(time: Timespec) -> timespec {
    timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_nsec,
    }
}

fn described(result: StatResult, attributes: &FileAttr) -> Result<stat, Errno> {
    match result {
        StatResult::Success => Ok(stat {
            st_dev: attributes.st_dev,
            st_ino: attributes.st_ino,
            st_nlink: attributes.st_nlink,
            st_mode: attributes.st_mode,
            st_uid: attributes.st_uid,
            st_gid: attributes.st_gid,
            st_rdev: attributes.st_rdev,
            st_size: attributes.st_size,
            st_blksize: attributes.st_blksize,
            st_blocks: attributes.st_blocks,
            st_atim: time(attributes.st_atim),
            st_mtim: time(attributes.st_mtim),
            st_ctim: time(attributes.st_ctim),
        }),
        StatResult::Error(number) => Err(Errno::from_number(number)),
        StatResult::None => Err(Errno::IO),
    }
}

impl Files {
    fn try_open(path: &CStr, flags: i32, mode: i32) -> Result<Handle, Errno> {
        let mut parameters = Shared::new(OpenParams {
            name: physical_of(path.as_ptr().cast())?,
            flags: flags & ALLOWED_OPEN_FLAGS,
            mode,
            ret: -Errno::IO.number(),
        })?;
        // SAFETY: the parameters of this call; the path ends with a zero byte.
        unsafe { parameters.call(HypercallAddress::FileOpen) }?;
        match checked(parameters.value().ret.into())? as i32 {
            handle if handle >= FIRST_HANDLE => Ok(Handle(handle)),
            _ => Err(Errno::IO),
        }
    }
}

impl HostFiles for Files {
    fn covers(&self, _path: &[u8]) -> bool {
        true
    }

    fn open(&self, path: &CStr, flags: i32, mode: i32) -> Result<Handle, Errno> {
        const EXCLUSIVE: i32 = O_CREAT | O_EXCL;
        let exclusive = flags & EXCLUSIVE == EXCLUSIVE;
        // uhyve has no number for this error.
        if flags & O_DIRECTORY != 0 && !is_directory(&self.stat(path, true)?) {
            return Err(Errno::NOTDIR);
        }
        let handle = match Self::try_open(path, flags, mode) {
            // Directories that are only on the way to what is mapped open with O_DIRECTORY alone.
            Err(Errno::INVAL) if flags & O_DIRECTORY == 0 => {
                let known = self.stat(path, true);
                if !known.is_ok_and(|stat| is_directory(&stat)) {
                    return Err(Errno::INVAL);
                }
                if exclusive {
                    return Err(Errno::EXIST);
                }
                if flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC) != 0 {
                    return Err(Errno::ISDIR);
                }
                return Self::try_open(path, flags | O_DIRECTORY, mode);
            }
            opened => opened?,
        };
        // uhyve opens its own read-only files in every mode, and panics when they are written.
        if AccessMode::from_flags(flags)?.write {
            let refused = match self.fstat(handle) {
                Ok(stat) if is_virtual(&stat) && exclusive => Some(Errno::EXIST),
                Ok(stat) if is_virtual(&stat) => Some(Errno::ROFS),
                Ok(_) => None,
                Err(errno) => Some(errno),
            };
            if let Some(errno) = refused {
                self.close(handle)?;
                return Err(errno);
            }
        }
        Ok(handle)
    }

    fn close(&self, handle: Handle) -> Result<(), Errno> {
        let mut parameters = Shared::new(CloseParams {
            fd: handle.0,
            ret: -Errno::IO.number(),
        })?;
        // SAFETY: the parameters of this call.
        unsafe { parameters.call(HypercallAddress::FileClose) }?;
        checked(parameters.value().ret.into()).map(|_| ())
    }

    fn read(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut parameters = Shared::new(ReadParams {
            len: 0,
            ret: 0,
            buf: GuestPhysAddr::zero(),
            fd: handle.0,
        })?;
        let start = buffer.as_mut_ptr();
        pieces::transfer(start, buffer.len(), Direction::ToMemory, |run| {
            let piece = parameters.value();
            piece.len = run.bytes as u64;
            piece.buf = GuestPhysAddr::new(run.physical);
            piece.ret = -i64::from(Errno::IO.number());
            // SAFETY: the parameters of this call. The run's frames are the buffer's while this
            // closure runs, as `transfer` promises; the buffer is borrowed for writing.
            unsafe { parameters.call(HypercallAddress::FileRead) }?;
            checked(parameters.value().ret).map(|bytes| bytes as usize)
        })
    }

    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let mut parameters = Shared::new(WriteParams {
            len: 0,
            ret: 0,
            buf: GuestPhysAddr::zero(),
            fd: handle.0,
        })?;
        let start = bytes.as_ptr();
        pieces::transfer(start, bytes.len(), Direction::FromMemory, |run| {
            let piece = parameters.value();
            piece.len = run.bytes as u64;
            piece.buf = GuestPhysAddr::new(run.physical);
            piece.ret = -i64::from(Errno::IO.number());
            // SAFETY: as in `read`; the bytes are borrowed, and the host only reads them.
            unsafe { parameters.call(HypercallAddress::FileWrite) }?;
            checked(parameters.value().ret).map(|bytes| bytes as usize)
        })
    }

    fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<i64, Errno> {
        let mut parameters = Shared::new(LseekParams {
            offset,
            whence: whence as u32,
            fd: handle.0,
        })?;
        // SAFETY: the parameters of this call.
        unsafe { parameters.call(HypercallAddress::FileLseek) }?;
        checked(parameters.value().offset).map(|position| position as i64)
    }

    fn fstat(&self, handle: Handle) -> Result<stat, Errno> {
        let mut attributes = Shared::new(FileAttr::default())?;
        let mut parameters = Shared::new(FstatParams {
            fd: handle.0,
            attr: attributes.physical()?,
            ret: StatResult::None,
        })?;
        // SAFETY: the parameters of this call, with memory for the attributes.
        unsafe { parameters.call(HypercallAddress::FileFstat) }?;
        described(parameters.value().ret, attributes.value())
    }

    fn stat(&self, path: &CStr, follow: bool) -> Result<stat, Errno> {
        let mut attributes = Shared::new(FileAttr::default())?;
        let mut parameters = Shared::new(StatParams {
            name: physical_of(path.as_ptr().cast())?,
            kind: if follow {
                StatKind::Stat
            } else {
                StatKind::LStat
            },
            attr: attributes.physical()?,
            ret: StatResult::None,
        })?;
        // SAFETY: the parameters of this call, with memory for the attributes and a path that ends
        // with a zero byte.
        unsafe { parameters.call(HypercallAddress::FileStat) }?;
        described(parameters.value().ret, attributes.value())
    }

    fn getdents(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut parameters = Shared::new(GetdentParams {
            fd: handle.0,
            buf: physical_of(buffer.as_mut_ptr())?,
            len: buffer.len() as u64,
            ret: GetdentResult::None,
        })?;
        // SAFETY: the parameters of this call; the buffer is the kernel's, by the contract of the
        // trait, and borrowed for writing.
        unsafe { parameters.call(HypercallAddress::Getdents) }?;
        match parameters.value().ret {
            GetdentResult::Success(bytes) => Ok((bytes as usize).min(buffer.len())),
            GetdentResult::EndOfDirectory => Ok(0),
            GetdentResult::Error(number) => Err(Errno::from_number(number)),
            GetdentResult::None => Err(Errno::IO),
        }
    }

    /// uhyve ignores the mode.
    fn mkdir(&self, path: &CStr, _mode: u32) -> Result<(), Errno> {
        let mut parameters = Shared::new(MkdirParams {
            path: physical_of(path.as_ptr().cast())?,
            len: path.count_bytes() as u64,
            ret: MkdirResult::None,
        })?;
        // SAFETY: the parameters of this call; the path ends with a zero byte.
        unsafe { parameters.call(HypercallAddress::Mkdir) }?;
        match parameters.value().ret {
            MkdirResult::Success => Ok(()),
            // Directories on the way to what is mapped.
            MkdirResult::Error(number)
                if Errno::from_number(number) == Errno::INVAL && self.stat(path, true).is_ok() =>
            {
                Err(Errno::EXIST)
            }
            MkdirResult::Error(number) => Err(Errno::from_number(number)),
            MkdirResult::None => Err(Errno::IO),
        }
    }

    /// uhyve forgets what is mapped at the path before it tries to remove it, so what it cannot or
    /// should not remove does not reach it: directories, and files of the image.
    fn unlink(&self, path: &CStr) -> Result<(), Errno> {
        let file = self.stat(path, false)?;
        if is_directory(&file) {
            return Err(Errno::ISDIR);
        }
        if is_virtual(&file) {
            return Err(Errno::ROFS);
        }
        let mut parameters = Shared::new(UnlinkParams {
            name: physical_of(path.as_ptr().cast())?,
            ret: -Errno::IO.number(),
        })?;
        // SAFETY: the parameters of this call; the path ends with a zero byte.
        unsafe { parameters.call(HypercallAddress::FileUnlink) }?;
        checked(parameters.value().ret.into()).map(|_| ())
    }

    /// There is no such call.
    fn rmdir(&self, _path: &CStr) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// There is no such call: what was written has reached the host's kernel, which writes it back in
    /// its own time.
    fn fsync(&self, _handle: Handle) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }
}
