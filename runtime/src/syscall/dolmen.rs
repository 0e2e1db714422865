//! Dolmen's own calls. The crate in `api/` wraps them.

use alloc::format;
use alloc::string::String;

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
/// buffer, if it is large enough; returns the bytes needed.
///
/// # Safety
///
/// `buffer` points to `bytes` writable bytes, or `bytes` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_dolmen_counters(buffer: *mut u8, bytes: usize) -> isize {
    let mut text = String::new();
    if let Some(manager) = mem::manager()
        && report::write_counters(&mut text, manager).is_err()
    {
        return negative(EINVAL);
    }
    // SAFETY: by the contract.
    match unsafe { buffer_of(buffer, bytes) } {
        Ok(buffer) => {
            if let Some(buffer) = buffer.get_mut(..text.len()) {
                buffer.copy_from_slice(text.as_bytes());
            }
            text.len() as isize
        }
        Err(errno) => negative(errno),
    }
}

/// Writes a record for the host tool. `kind` is `app` (then `json` is the application's report, one
/// object) or `progress` (then `json` is the inside of an object: its members).
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
    let record = match kind {
        b"app" => format!("{{\"dolmen\":\"app\",\"report\":{json}}}"),
        b"progress" => format!("{{\"dolmen\":\"progress\",{json}}}"),
        _ => return -EINVAL,
    };
    console::record(record.as_bytes());
    0
}
