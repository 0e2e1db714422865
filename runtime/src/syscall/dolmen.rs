//! Dolmen's own calls. The crate in `api/` wraps them.

use core::fmt;

use dolmen_mm::ids::{CpuId, VirtAddr};
use hermit_abi::errno::EINVAL;

use super::{buffer_of, bytes_of, negative};
use crate::cpu::local;
use crate::{boot, console, mem, report};

/// The node of the page that holds `address`, or −1 if none is mapped there.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dolmen_page_home(address: *const u8) -> i32 {
    let address = VirtAddr(address.addr() as u64);
    let node = if mem::ARENA.contains(address) {
        mem::enter(|manager| manager.page_home(address))
    } else {
        boot::node_of_image(address.0)
    };
    node.map_or(-1, |node| i32::from(node.get()))
}

/// NUMA nodes.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dolmen_node_count() -> i32 {
    mem::manager().map_or(1, |manager| manager.topology().node_count() as i32)
}

/// The processor that executes the caller. A thread stays on its processor.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dolmen_current_cpu() -> i32 {
    i32::from(local::this().cpu.get())
}

/// The node of processor `cpu`, or −EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn sys_dolmen_node_of_cpu(cpu: i32) -> i32 {
    u16::try_from(cpu)
        .ok()
        .and_then(|cpu| local::of(CpuId::new(cpu)))
        .map_or(-EINVAL, |local| i32::from(local.node.get()))
}

/// Writes the memory manager's counters, summed over all processors, as a JSON object into the
/// buffer, as far as it goes; returns the bytes needed for all.
///
/// # Safety
///
/// `buffer` points to `bytes` writable bytes, or `bytes` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_dolmen_counters(buffer: *mut u8, bytes: usize) -> isize {
    // SAFETY: by the contract.
    let buffer = match unsafe { buffer_of(buffer, bytes) } {
        Ok(buffer) => buffer,
        Err(errno) => return negative(errno),
    };
    let mut text = Text { buffer, written: 0 };
    if let Some(manager) = mem::manager()
        && report::write_counters(&mut text, manager).is_err()
    {
        return negative(EINVAL);
    }
    text.written as isize
}

/// Text that goes into a buffer as far as it fits, and is counted to its end.
struct Text<'a> {
    buffer: &'a mut [u8],
    written: usize,
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(rest) = self.buffer.get_mut(self.written..) {
            let fits = rest.len().min(text.len());
            rest[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        }
        self.written += text.len();
        Ok(())
    }
}

/// Writes a record of this kind, `app` or `progress`, for the host tool. `json` is the members of
/// the record's object behind its kind.
///
/// # Safety
///
/// Both pointers point to as many readable bytes as given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_dolmen_report(
    kind: *const u8,
    kind_bytes: usize,
    json: *const u8,
    json_bytes: usize,
) -> i32 {
    // SAFETY: by the contract.
    let (kind, json) = match unsafe { (bytes_of(kind, kind_bytes), bytes_of(json, json_bytes)) } {
        (Ok(kind), Ok(json)) => (kind, json),
        (Err(errno), _) | (_, Err(errno)) => return -errno,
    };
    let Ok(json) = core::str::from_utf8(json) else {
        return -EINVAL;
    };
    // A record is one line.
    if json.contains('\n') {
        return -EINVAL;
    }
    let kind = match kind {
        b"app" => "app",
        b"progress" => "progress",
        _ => return -EINVAL,
    };
    console::record(kind, json);
    0
}
