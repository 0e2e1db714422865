//! Files: the console and the read-only tree that came with the image.

use alloc::vec::Vec;
use core::ffi::{CStr, c_char};

use dolmen_fs::{Errno, FdTable, Tree};
use hermit_abi::errno::{EBADF, EINVAL};
use hermit_abi::{
    IOV_MAX, S_IFCHR, STDERR_FILENO, STDIN_FILENO, STDOUT_FILENO, dirent64, iovec, stat,
};

use super::{buffer_of, bytes_of, negative};
use crate::console;
use crate::sync::{Once, SpinLock};

static TREE: Once<Tree<'static>> = Once::new();
static OPEN: SpinLock<FdTable> = SpinLock::new(FdTable::new());

/// Makes `tree` the application's file system.
pub(crate) fn mount(tree: Tree<'static>) {
    TREE.set(tree);
}

fn tree() -> &'static Tree<'static> {
    TREE.get().expect("mounted before the application starts")
}

fn is_output(fd: i32) -> bool {
    fd == STDOUT_FILENO || fd == STDERR_FILENO
}

fn is_console(fd: i32) -> bool {
    fd == STDIN_FILENO || is_output(fd)
}

fn status(result: Result<(), Errno>) -> i32 {
    result.map_or_else(Errno::negative, |()| 0)
}

fn size(result: Result<usize, Errno>) -> isize {
    result.map_or_else(|errno| errno.negative() as isize, |size| size as isize)
}

/// The path that a caller passed.
///
/// # Safety
///
/// `path` is null or points to a string that ends with a zero byte.
unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a [u8], Errno> {
    if path.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the contract.
    Ok(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Writes `bytes` bytes to the console. Files cannot be written.
///
/// # Safety
///
/// `start` points to `bytes` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_write(fd: i32, start: *const u8, bytes: usize) -> isize {
    if !is_output(fd) {
        return size(OPEN.lock().write(fd));
    }
    // SAFETY: by the contract.
    match unsafe { bytes_of(start, bytes) } {
        Ok(bytes) => {
            console::write(bytes);
            bytes.len() as isize
        }
        Err(errno) => negative(errno),
    }
}

/// The vectors that a caller passed.
///
/// # Safety
///
/// `vectors` points to `count` vectors, or `count` is 0.
unsafe fn vectors_of<'a>(vectors: *const iovec, count: usize) -> Result<&'a [iovec], i32> {
    if count == 0 {
        return Ok(&[]);
    }
    if vectors.is_null() || count > IOV_MAX {
        return Err(EINVAL);
    }
    // SAFETY: by the contract.
    Ok(unsafe { core::slice::from_raw_parts(vectors, count) })
}

/// Writes several buffers; on the console they stay together.
///
/// # Safety
///
/// `vectors` points to `count` vectors of readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_writev(fd: i32, vectors: *const iovec, count: usize) -> isize {
    if !is_output(fd) {
        return size(OPEN.lock().write(fd));
    }
    let write = || {
        // SAFETY: by the contract.
        let vectors = unsafe { vectors_of(vectors, count) }?;
        let slices = vectors
            .iter()
            // SAFETY: by the contract.
            .map(|vector| unsafe { bytes_of(vector.iov_base.cast(), vector.iov_len) })
            .collect::<Result<Vec<_>, _>>()?;
        console::write_all(&slices);
        Ok(slices.iter().map(|bytes| bytes.len()).sum::<usize>() as isize)
    };
    write().unwrap_or_else(negative)
}

/// Reads up to `bytes` bytes. The console has no input: it is at its end.
///
/// # Safety
///
/// `start` points to `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_read(fd: i32, start: *mut u8, bytes: usize) -> isize {
    if is_console(fd) {
        return if fd == STDIN_FILENO {
            0
        } else {
            negative(EBADF)
        };
    }
    // SAFETY: by the contract.
    let buffer = match unsafe { buffer_of(start, bytes) } {
        Ok(buffer) => buffer,
        Err(errno) => return negative(errno),
    };
    size(read_into(fd, buffer))
}

fn read_into(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    // The table is open again before the buffer is touched, whose pages may fault.
    let contents = OPEN.lock().read(tree(), fd, buffer.len());
    let contents = contents?;
    buffer[..contents.len()].copy_from_slice(contents);
    Ok(contents.len())
}

/// Reads into several buffers, one after the other.
///
/// # Safety
///
/// `vectors` points to `count` vectors of writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_readv(fd: i32, vectors: *const iovec, count: usize) -> isize {
    // SAFETY: by the contract.
    let vectors = match unsafe { vectors_of(vectors, count) } {
        Ok(vectors) => vectors,
        Err(errno) => return negative(errno),
    };
    let mut total = 0;
    for vector in vectors {
        // SAFETY: by the contract.
        let read = unsafe { sys_read(fd, vector.iov_base.cast(), vector.iov_len) };
        if read < 0 {
            return if total > 0 { total } else { read };
        }
        total += read;
        if (read as usize) < vector.iov_len {
            break;
        }
    }
    total
}

/// Opens a file of the image for reading.
///
/// # Safety
///
/// `path` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_open(path: *const c_char, flags: i32, _mode: i32) -> i32 {
    // SAFETY: by the contract.
    let path = unsafe { path_of(path) };
    path.and_then(|path| OPEN.lock().open(tree(), path, flags))
        .unwrap_or_else(Errno::negative)
}

/// Opens a directory of the image.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_opendir(path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    unsafe { sys_open(path, hermit_abi::O_DIRECTORY, 0) }
}

/// Closes a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn sys_close(fd: i32) -> i32 {
    if is_console(fd) {
        return 0;
    }
    status(OPEN.lock().close(fd))
}

/// A second descriptor for the same open file.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dup(fd: i32) -> i32 {
    OPEN.lock().dup(fd).unwrap_or_else(Errno::negative)
}

/// Moves the position of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn sys_lseek(fd: i32, offset: isize, whence: i32) -> isize {
    match OPEN.lock().lseek(tree(), fd, offset as i64, whence) {
        Ok(position) => position as isize,
        Err(errno) => errno.negative() as isize,
    }
}

/// Describes an open file.
///
/// # Safety
///
/// `out` is null or points to writable memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_fstat(fd: i32, out: *mut stat) -> i32 {
    // SAFETY: by the contract.
    let Some(out) = (unsafe { out.as_mut() }) else {
        return -EINVAL;
    };
    if is_console(fd) {
        *out = stat {
            st_mode: S_IFCHR | 0o600,
            ..stat::default()
        };
        return 0;
    }
    let node = OPEN.lock().node(fd);
    status(node.map(|node| *out = tree().stat(node)))
}

/// Describes a file of the image.
///
/// # Safety
///
/// `path` is null or a string that ends with a zero byte; `out` is null or points to writable
/// memory for the description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_stat(path: *const c_char, out: *mut stat) -> i32 {
    // SAFETY: by the contract.
    let (path, out) = unsafe { (path_of(path), out.as_mut()) };
    let Some(out) = out else {
        return -EINVAL;
    };
    let node = path.and_then(|path| tree().open(path));
    status(node.map(|node| *out = tree().stat(node)))
}

/// As [`sys_stat`]: the tree has no links.
///
/// # Safety
///
/// As [`sys_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_lstat(path: *const c_char, out: *mut stat) -> i32 {
    // SAFETY: by the contract.
    unsafe { sys_stat(path, out) }
}

/// Reads entries of an open directory; −EINVAL asks for a larger buffer.
///
/// # Safety
///
/// `out` points to `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_getdents64(fd: i32, out: *mut dirent64, bytes: usize) -> i64 {
    // SAFETY: by the contract.
    let buffer = match unsafe { buffer_of(out.cast(), bytes) } {
        Ok(buffer) => buffer,
        Err(errno) => return i64::from(-errno),
    };
    // The table is open again before the buffer is touched, whose pages may fault.
    let directory = OPEN.lock().getdents(tree(), fd, buffer.len());
    let written = directory.and_then(|directory| match directory {
        Some(directory) => tree().write_dirents(directory, buffer),
        None => Ok(0),
    });
    match written {
        Ok(bytes) => bytes as i64,
        Err(errno) => i64::from(errno.negative()),
    }
}

/// Files of the image cannot be removed.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_unlink(path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    let path = unsafe { path_of(path) };
    status(path.and_then(|path| FdTable::remove(tree(), path)))
}

/// Directories of the image cannot be removed.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_rmdir(path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    unsafe { sys_unlink(path) }
}

/// Directories cannot be made.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_mkdir(path: *const c_char, _mode: u32) -> i32 {
    // SAFETY: by the contract.
    let path = unsafe { path_of(path) };
    status(path.and_then(|path| FdTable::mkdir(tree(), path)))
}

/// There is nothing to write back.
#[unsafe(no_mangle)]
pub extern "C" fn sys_fsync(fd: i32) -> i32 {
    if is_console(fd) {
        return 0;
    }
    status(OPEN.lock().node(fd).map(|_| ()))
}
