//! Listing directories.

use alloc::vec::Vec;

use dolmen_fs::{Entries, Errno, Handle, Listing, Node};
use hermit_abi::{SEEK_SET, dirent64};

use super::{Call, OPEN, buffer_of, tree};
use crate::host;

/// Bytes of the host's records that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// Reads all entries of an open directory; −EINVAL asks for a larger buffer, and then nothing is
/// lost.
///
/// # Safety
///
/// `out` points to `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_getdents64(fd: i32, out: *mut dirent64, bytes: usize) -> i64 {
    // SAFETY: by the contract.
    match unsafe { buffer_of(out.cast(), bytes) } {
        Ok(buffer) => match getdents(fd, buffer) {
            Ok(bytes) => bytes as i64,
            Err(errno) => i64::from(errno.negative()),
        },
        Err(errno) => i64::from(-errno),
    }
}

fn getdents(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let entries = OPEN.lock().getdents(fd)?;
    let (call, listing) = match entries {
        Entries::End => return Ok(0),
        Entries::Kept(call, listing) => (call, Ok(listing)),
        Entries::Collect { call, image, host } => (call, collect(image, host)),
    };
    let (result, kept) = match listing {
        Ok(listing) => match listing.copy_to(buffer) {
            Ok(bytes) => (Ok(bytes), None),
            Err(errno) => (Err(errno), Some(listing)),
        },
        Err(errno) => (Err(errno), None),
    };
    if result.is_err() {
        OPEN.lock().keep(&call, kept);
    }
    drop(Call(Some(call)));
    result
}

/// The entries of a directory's parts.
fn collect(image: Option<Node>, host: Option<Handle>) -> Result<Listing, Errno> {
    let mut listing = match image {
        Some(node) => Listing::of_image(tree(), node)?,
        None => Listing::default(),
    };
    let Some((handle, files)) = host.zip(host::files()) else {
        return Ok(listing);
    };
    let image = image.map(|node| (tree(), node));
    // Of the kernel's heap, and aligned as the records are.
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(READ_BYTES)
        .map_err(|_| Errno::NOMEM)?;
    buffer.resize(READ_BYTES, 0);
    files.seek(handle, 0, SEEK_SET)?;
    loop {
        let bytes = files.getdents(handle, &mut buffer)?;
        if bytes == 0 {
            return Ok(listing);
        }
        listing.add_host(&buffer[..bytes.min(READ_BYTES)], image)?;
    }
}
