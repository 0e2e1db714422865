//! Calls that name files.
//!
//! What the image has is the image's, and cannot be changed; everything else is the host's to answer
//! where the host covers it. A directory may be in both.

use core::ffi::{CStr, c_char};

use dolmen_fs::{AccessMode, Errno, FilePath, Handle, Node, Opened};
use hermit_abi::errno::EINVAL;
use hermit_abi::{O_APPEND, O_CREAT, O_DIRECTORY, O_RDONLY, O_TRUNC, S_IFDIR, S_IFMT, stat};

use super::{OPEN, close_handle, status, tree};
use crate::host::{self, HostFiles};

/// The path that a caller passed.
///
/// # Safety
///
/// `path` is null or points to a string that ends with a zero byte.
unsafe fn path_of(path: *const c_char) -> Result<FilePath, Errno> {
    if path.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the contract.
    FilePath::new(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Who has what a path names.
enum Place {
    /// The image.
    Image(Node),
    /// The host, if anybody.
    Host(&'static dyn HostFiles),
    /// Nobody, and nobody can.
    Nowhere,
}

fn place_of(path: &FilePath) -> Result<Place, Errno> {
    match tree().find(path) {
        Ok(node) => Ok(Place::Image(node)),
        Err(Errno::NOENT) => Ok(covering(path).map_or(Place::Nowhere, Place::Host)),
        Err(errno) => Err(errno),
    }
}

fn covering(path: &FilePath) -> Option<&'static dyn HostFiles> {
    host::files().filter(|files| files.covers(path.as_bytes()))
}

/// A descriptor without a file yet.
struct Reserved(i32);

impl Reserved {
    fn new() -> Result<Self, Errno> {
        OPEN.lock().reserve().map(Self)
    }

    fn fill(self, opened: Opened) -> i32 {
        OPEN.lock().fill(self.0, opened);
        self.0
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Leaves a descriptor alone that was filled.
        OPEN.lock().abandon(self.0);
    }
}

/// Opens a file or directory of the image or the host.
///
/// # Safety
///
/// `path` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_open(path: *const c_char, flags: i32, mode: i32) -> i32 {
    // SAFETY: by the contract.
    let path = unsafe { path_of(path) };
    path.and_then(|path| open(&path, flags, mode))
        .unwrap_or_else(Errno::negative)
}

/// Opens a directory.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_opendir(path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    unsafe { sys_open(path, O_DIRECTORY, 0) }
}

fn open(path: &FilePath, flags: i32, mode: i32) -> Result<i32, Errno> {
    let access = AccessMode::from_flags(flags)?;
    let place = place_of(path)?;
    let descriptor = Reserved::new()?;
    let opened = match place {
        Place::Image(node) => {
            tree().admits(node, flags)?;
            if tree().metadata(node).is_dir {
                let part = |files: &dyn HostFiles| {
                    files.open(path.as_c_str(), O_RDONLY | O_DIRECTORY, 0).ok()
                };
                Opened::Directory {
                    image: Some(node),
                    host: covering(path).and_then(part),
                }
            } else {
                Opened::ImageFile(node)
            }
        }
        Place::Host(files) => open_host(files, path, flags, mode, access)?,
        Place::Nowhere if flags & O_CREAT != 0 => return Err(Errno::ROFS),
        Place::Nowhere => return Err(Errno::NOENT),
    };
    Ok(descriptor.fill(opened))
}

fn open_host(
    files: &'static dyn HostFiles,
    path: &FilePath,
    flags: i32,
    mode: i32,
    access: AccessMode,
) -> Result<Opened, Errno> {
    if path.names_directory() && flags & O_CREAT != 0 {
        return Err(Errno::ISDIR);
    }
    let handle = files.open(path.as_c_str(), flags, mode)?;
    let opened = files.fstat(handle).and_then(|file| {
        let changes = access.write || flags & (O_CREAT | O_TRUNC | O_APPEND) != 0;
        match is_directory(&file) {
            true if changes => Err(Errno::ISDIR),
            true => Ok(Opened::Directory {
                image: None,
                host: Some(handle),
            }),
            false if path.names_directory() || flags & O_DIRECTORY != 0 => Err(Errno::NOTDIR),
            false => Ok(Opened::HostFile(handle, access)),
        }
    });
    if opened.is_err() {
        release(handle);
    }
    opened
}

/// Releases the handle of a file that turned out to be none that was meant.
fn release(handle: Handle) {
    // The error that led here is the one to tell.
    let _ = close_handle(handle);
}

fn is_directory(file: &stat) -> bool {
    file.st_mode & S_IFMT == S_IFDIR
}

/// Describes a file.
///
/// # Safety
///
/// `path` is null or a string that ends with a zero byte; `out` is null or points to writable
/// memory for the description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_stat(path: *const c_char, out: *mut stat) -> i32 {
    // SAFETY: by the contract.
    unsafe { describe(path, out, true) }
}

/// As [`sys_stat`], but a link of the host is described itself. The image has none.
///
/// # Safety
///
/// As [`sys_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_lstat(path: *const c_char, out: *mut stat) -> i32 {
    // SAFETY: by the contract.
    unsafe { describe(path, out, false) }
}

/// # Safety
///
/// As [`sys_stat`].
unsafe fn describe(path: *const c_char, out: *mut stat, follow: bool) -> i32 {
    // SAFETY: by the contract.
    let (path, out) = unsafe { (path_of(path), out.as_mut()) };
    let Some(out) = out else {
        return -EINVAL;
    };
    let describe = || {
        let path = path?;
        match place_of(&path)? {
            Place::Image(node) => Ok(tree().stat(node)),
            Place::Host(files) => {
                // A link that a slash follows stands for its directory.
                let follow = follow || path.names_directory();
                let file = files.stat(path.as_c_str(), follow)?;
                if path.names_directory() && !is_directory(&file) {
                    return Err(Errno::NOTDIR);
                }
                Ok(file)
            }
            Place::Nowhere => Err(Errno::NOENT),
        }
    };
    status(describe().map(|described| *out = described))
}

/// Changes what a path names: the image cannot be, and refuses with `image`.
fn change(
    path: Result<FilePath, Errno>,
    image: Errno,
    nowhere: Errno,
    host: impl FnOnce(&dyn HostFiles, &CStr) -> Result<(), Errno>,
) -> i32 {
    status(path.and_then(|path| match place_of(&path)? {
        Place::Image(_) => Err(image),
        Place::Host(files) => host(files, path.as_c_str()),
        Place::Nowhere => Err(nowhere),
    }))
}

/// Removes a file of the host.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_unlink(path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    let path = unsafe { path_of(path) };
    change(path, Errno::ROFS, Errno::NOENT, |files, path| {
        files.unlink(path)
    })
}

/// Removes an empty directory of the host.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_rmdir(path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    let path = unsafe { path_of(path) };
    change(path, Errno::ROFS, Errno::NOENT, |files, path| {
        files.rmdir(path)
    })
}

/// Makes a directory on the host.
///
/// # Safety
///
/// As [`sys_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_mkdir(path: *const c_char, mode: u32) -> i32 {
    // SAFETY: by the contract.
    let path = unsafe { path_of(path) };
    change(path, Errno::EXIST, Errno::ROFS, |files, path| {
        files.mkdir(path, mode)
    })
}
