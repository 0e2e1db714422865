//! Hermit's application ABI, and Dolmen's own calls (`sys_dolmen_*`).
//!
//! An application calls these functions directly: there is no change of privilege and no trap.
//! Errors are negative `errno` values, as `hermit-abi` names them.

pub mod dolmen;
pub mod file;
pub mod memory;
pub mod net;
pub mod thread;
pub mod time;

pub(crate) use file::mount;
use hermit_abi::errno::EINVAL;

/// `-errno` in a return type that is wider than `i32`.
fn negative(errno: i32) -> isize {
    -(errno as isize)
}

/// The bytes that a caller passed.
///
/// # Safety
///
/// `start` points to `bytes` readable bytes that do not change during the call, or `bytes` is 0.
unsafe fn bytes_of<'a>(start: *const u8, bytes: usize) -> Result<&'a [u8], i32> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if start.is_null() || bytes > isize::MAX as usize {
        return Err(EINVAL);
    }
    // SAFETY: by the contract.
    Ok(unsafe { core::slice::from_raw_parts(start, bytes) })
}

/// The buffer that a caller passed.
///
/// # Safety
///
/// `start` points to `bytes` writable bytes that nobody else uses during the call, or `bytes` is 0.
unsafe fn buffer_of<'a>(start: *mut u8, bytes: usize) -> Result<&'a mut [u8], i32> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    if start.is_null() || bytes > isize::MAX as usize {
        return Err(EINVAL);
    }
    // SAFETY: by the contract.
    Ok(unsafe { core::slice::from_raw_parts_mut(start, bytes) })
}
