//! Files: the console, the read-only tree that came with the image, and the host's files.
//!
//! The table of descriptors says what to do; it is done when the table is open again, since buffers
//! may fault and the host may take its time.

pub mod directory;
pub mod path;

use alloc::vec::Vec;

use dolmen_fs::{Errno, FdTable, Handle, InFlight, Owner, Seek, Source, Tree};
use hermit_abi::errno::{EBADF, EINVAL};
use hermit_abi::{IOV_MAX, S_IFCHR, STDERR_FILENO, STDIN_FILENO, STDOUT_FILENO, iovec, stat};

use super::{buffer_of, bytes_of, negative};
use crate::console;
use crate::host::{self, HostFiles};
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

/// An open file of the host in use: its handle lives as long as this.
struct InUse {
    files: &'static dyn HostFiles,
    handle: Handle,
    _call: Call,
}

impl InUse {
    fn new(call: InFlight, handle: Handle) -> Result<Self, Errno> {
        let call = Call(Some(call));
        let files = host::files().ok_or(Errno::BADF)?;
        Ok(Self {
            files,
            handle,
            _call: call,
        })
    }
}

/// A call on an open file. If the file was closed meanwhile, the last one releases its handle.
struct Call(Option<InFlight>);

impl Drop for Call {
    fn drop(&mut self) {
        let released = self.0.take().and_then(|call| OPEN.lock().finish(call));
        // Whoever closed the descriptor has returned already.
        let _ = released.map(close_handle);
    }
}

fn close_handle(handle: Handle) -> Result<(), Errno> {
    host::files().ok_or(Errno::BADF)?.close(handle)
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

/// Writes `bytes` bytes to the console or to a file of the host.
///
/// # Safety
///
/// `start` points to `bytes` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_write(fd: i32, start: *const u8, bytes: usize) -> isize {
    // SAFETY: by the contract.
    let bytes = unsafe { bytes_of(start, bytes) };
    match bytes {
        Ok(bytes) => write_slices(fd, &[bytes]),
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
    let slices = || {
        // SAFETY: by the contract.
        let vectors = unsafe { vectors_of(vectors, count) }?;
        vectors
            .iter()
            // SAFETY: by the contract.
            .map(|vector| unsafe { bytes_of(vector.iov_base.cast(), vector.iov_len) })
            .collect::<Result<Vec<_>, _>>()
    };
    match slices() {
        Ok(slices) => write_slices(fd, &slices),
        Err(errno) => negative(errno),
    }
}

fn write_slices(fd: i32, slices: &[&[u8]]) -> isize {
    if is_output(fd) {
        console::write_all(slices);
        return slices.iter().map(|bytes| bytes.len()).sum::<usize>() as isize;
    }
    let write = || {
        let (call, handle) = OPEN.lock().write(fd)?;
        let file = InUse::new(call, handle)?;
        in_turn(slices.iter(), |bytes| {
            let written = file.files.write(file.handle, bytes)?;
            Ok((written, bytes.len()))
        })
    };
    size(write())
}

/// Transfers buffers one after the other, up to the first that comes short, and adds up. `transfer`
/// returns the bytes that went over and the length. An error counts only where nothing went before.
fn in_turn<B>(
    buffers: impl Iterator<Item = B>,
    mut transfer: impl FnMut(B) -> Result<(usize, usize), Errno>,
) -> Result<usize, Errno> {
    let mut total = 0;
    for buffer in buffers {
        match transfer(buffer) {
            Ok((done, wanted)) => {
                total += done;
                if done < wanted {
                    break;
                }
            }
            Err(errno) if total == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(total)
}

/// Reads up to `bytes` bytes. The console has no input: it is at its end.
///
/// # Safety
///
/// `start` points to `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_read(fd: i32, start: *mut u8, bytes: usize) -> isize {
    let vector = iovec {
        iov_base: start.cast(),
        iov_len: bytes,
    };
    // SAFETY: by the contract.
    unsafe { sys_readv(fd, &raw const vector, 1) }
}

/// Reads into several buffers, one after the other.
///
/// # Safety
///
/// `vectors` points to `count` vectors of writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_readv(fd: i32, vectors: *const iovec, count: usize) -> isize {
    if fd == STDIN_FILENO {
        return 0;
    }
    if is_output(fd) {
        return negative(EBADF);
    }
    // SAFETY: by the contract.
    let vectors = match unsafe { vectors_of(vectors, count) } {
        Ok(vectors) => vectors,
        Err(errno) => return negative(errno),
    };
    size(in_turn(vectors.iter(), |vector| {
        // SAFETY: by the contract; the buffer before this one is not used any more.
        let buffer = unsafe { buffer_of(vector.iov_base.cast(), vector.iov_len) };
        let buffer = buffer.map_err(Errno::from_number)?;
        Ok((read_into(fd, buffer)?, vector.iov_len))
    }))
}

fn read_into(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let source = OPEN.lock().read(tree(), fd, buffer.len());
    match source? {
        Source::Image(contents) => {
            buffer[..contents.len()].copy_from_slice(contents);
            Ok(contents.len())
        }
        Source::Host(call, handle) => {
            let file = InUse::new(call, handle)?;
            file.files.read(file.handle, buffer)
        }
    }
}

/// Closes a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn sys_close(fd: i32) -> i32 {
    if is_console(fd) {
        return 0;
    }
    let released = OPEN.lock().close(fd);
    status(released.and_then(|handle| handle.map_or(Ok(()), close_handle)))
}

/// A second descriptor for the same open file.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dup(fd: i32) -> i32 {
    OPEN.lock().dup(fd).unwrap_or_else(Errno::negative)
}

/// Moves the position of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn sys_lseek(fd: i32, offset: isize, whence: i32) -> isize {
    let seek = OPEN.lock().lseek(tree(), fd, offset as i64, whence);
    let position = seek.and_then(|seek| match seek {
        Seek::At(position) => Ok(position),
        Seek::Host(call, handle) => {
            let file = InUse::new(call, handle)?;
            file.files.seek(file.handle, offset as i64, whence)
        }
    });
    match position {
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
    let owner = OPEN.lock().owner(fd);
    let described = owner.and_then(|owner| match owner {
        Owner::Image(node) => Ok(tree().stat(node)),
        Owner::Host(call, handle) => {
            let file = InUse::new(call, handle)?;
            file.files.fstat(file.handle)
        }
    });
    status(described.map(|described| *out = described))
}

/// Waits until what was written to a file of the host is safe there, where the host offers that. In
/// the image there is nothing to write back.
#[unsafe(no_mangle)]
pub extern "C" fn sys_fsync(fd: i32) -> i32 {
    if is_console(fd) {
        return 0;
    }
    let owner = OPEN.lock().owner(fd);
    status(owner.and_then(|owner| match owner {
        Owner::Image(_) => Ok(()),
        Owner::Host(call, handle) => {
            let file = InUse::new(call, handle)?;
            file.files.fsync(file.handle)
        }
    }))
}
