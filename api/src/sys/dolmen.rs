//! Dolmen's own system calls.

use serde_json::{Map, Value};
use std::io;

// SAFETY: these are the signatures that the runtime exports.
unsafe extern "C" {
    fn sys_dolmen_report(kind: *const u8, kind_len: usize, json: *const u8, len: usize) -> i32;
    fn sys_dolmen_page_home(addr: *const u8) -> i32;
    safe fn sys_dolmen_node_count() -> i32;
    safe fn sys_dolmen_current_cpu() -> i32;
    safe fn sys_dolmen_node_of_cpu(cpu: i32) -> i32;
    fn sys_dolmen_counters(buf: *mut u8, len: usize) -> isize;
    safe fn sys_dolmen_map(bytes: usize, align: usize) -> *mut u8;
    fn sys_dolmen_unmap(ptr: *mut u8, bytes: usize) -> i32;
}

pub(crate) fn emit(kind: &str, inner: &str) {
    // SAFETY: both strings live across the call. The runtime drops the record if nobody wants records.
    unsafe { sys_dolmen_report(kind.as_ptr(), kind.len(), inner.as_ptr(), inner.len()) };
}

pub(crate) fn page_homes(addresses: &[usize]) -> Vec<Option<u32>> {
    addresses
        .iter()
        // SAFETY: the call looks the address up and accesses nothing behind it.
        .map(|&at| unsafe { sys_dolmen_page_home(std::ptr::without_provenance(at)) })
        .map(|node| u32::try_from(node).ok())
        .collect()
}

pub(crate) fn node_count() -> u32 {
    u32::try_from(sys_dolmen_node_count()).unwrap_or(1)
}

pub(crate) fn current_cpu() -> u32 {
    u32::try_from(sys_dolmen_current_cpu()).unwrap_or(0)
}

pub(crate) fn current_node() -> u32 {
    node_of_cpu(current_cpu()).unwrap_or(0)
}

pub(crate) fn node_of_cpu(cpu: u32) -> Option<u32> {
    u32::try_from(sys_dolmen_node_of_cpu(i32::try_from(cpu).ok()?)).ok()
}

pub(crate) fn cpus() -> Vec<u32> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    (0..count as u32).collect()
}

pub(crate) fn pin_current_thread(cpu: u32) -> io::Result<()> {
    match node_of_cpu(cpu) {
        Some(_) => Ok(()),
        None => Err(io::ErrorKind::InvalidInput.into()),
    }
}

pub(crate) fn counters() -> Map<String, Value> {
    let mut text = vec![0u8; 16 << 10];
    loop {
        // SAFETY: the buffer has the length that is passed; the runtime writes no more than that.
        let needed = unsafe { sys_dolmen_counters(text.as_mut_ptr(), text.len()) };
        match usize::try_from(needed) {
            Ok(needed) if needed > text.len() => text.resize(needed, 0),
            Ok(needed) => return serde_json::from_slice(&text[..needed]).unwrap_or_default(),
            Err(_) => return Map::new(),
        }
    }
}

pub(crate) fn map(bytes: usize, align: usize) -> *mut u8 {
    sys_dolmen_map(bytes, align)
}

/// # Safety
///
/// `ptr` and `bytes` must be those of one live mapping of [`map`], which nobody uses any more.
pub(crate) unsafe fn unmap(ptr: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { sys_dolmen_unmap(ptr, bytes) };
}
