//! Files of the host that the machine runs on.

pub(crate) mod ninep;
pub(crate) mod uhyve;

use core::ffi::CStr;

pub(crate) use dolmen_fs::Handle;

use dolmen_fs::Errno;
use hermit_abi::stat;

use crate::sync::Once;

/// Files of the host that the machine runs on. Paths are absolute, normalised and end with a zero
/// byte; they lie in the kernel's heap. The host keeps each handle's position.
///
/// Calls come on the caller's stack with preemption on, from several processors at once; no lock is
/// held. Buffers of `read` and `write` may be memory of the application that has no frames yet, or
/// that does not allow the access: −EFAULT. Who calls has checked that a handle is open for what is
/// asked of it.
pub(crate) trait HostFiles: Sync {
    /// Whether paths like this one are the host's to answer, where the image has no such file.
    fn covers(&self, path: &[u8]) -> bool;

    /// Opens a file, or, without any flag that would change it, a directory.
    fn open(&self, path: &CStr, flags: i32, mode: i32) -> Result<Handle, Errno>;

    /// Gives a handle back.
    fn close(&self, handle: Handle) -> Result<(), Errno>;

    /// Reads up to the buffer's length; 0 at the end.
    fn read(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Writes; returns the number of bytes.
    fn write(&self, handle: Handle, bytes: &[u8]) -> Result<usize, Errno>;

    /// Moves the position; `whence` is one of the three that there are. A directory can be rewound.
    fn seek(&self, handle: Handle, offset: i64, whence: i32) -> Result<i64, Errno>;

    /// Describes an open file or directory.
    fn fstat(&self, handle: Handle) -> Result<stat, Errno>;

    /// Describes what a path names; a link itself where `follow` is false.
    fn stat(&self, path: &CStr, follow: bool) -> Result<stat, Errno>;

    /// Reads the next `dirent64` records of a directory into a buffer of the kernel's; 0 at the end,
    /// −EINVAL where not even one fits. Entries for `.` and `..` may be among them.
    fn getdents(&self, handle: Handle, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Makes a directory.
    fn mkdir(&self, path: &CStr, mode: u32) -> Result<(), Errno>;

    /// Removes a file.
    fn unlink(&self, path: &CStr) -> Result<(), Errno>;

    /// Removes an empty directory.
    fn rmdir(&self, path: &CStr) -> Result<(), Errno>;

    /// Returns when what was written will outlive a failure of the host.
    fn fsync(&self, handle: Handle) -> Result<(), Errno>;
}

static FILES: Once<&'static dyn HostFiles> = Once::new();

/// Makes the host's files known, once, at boot.
pub(crate) fn install(files: &'static dyn HostFiles) {
    FILES.set(files);
}

/// The host's files, if the machine has a way to them.
pub(crate) fn files() -> Option<&'static dyn HostFiles> {
    FILES.get().copied()
}
