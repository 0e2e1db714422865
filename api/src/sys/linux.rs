//! The same on Linux.

use serde_json::{Map, Value, json};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn emit(kind: &str, inner: &str) {
    let Some(path) = std::env::var_os("DOLMEN_REPORT") else {
        return;
    };
    let comma = if inner.is_empty() { "" } else { "," };
    let line = format!("{{\"dolmen\":\"{kind}\"{comma}{inner}}}\n");
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("cannot write the report file {}: {error}", path.display());
    }
}

pub(crate) fn page_homes(addresses: &[usize]) -> Vec<Option<u32>> {
    let mut status = vec![0i32; addresses.len()];
    // SAFETY: both arrays have `addresses.len()` elements; without target nodes the call only fills in `status`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            addresses.len(),
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    };
    if result != 0 {
        // A kernel without NUMA, or a sandbox without the call: all memory is node 0's.
        return vec![Some(0); addresses.len()];
    }
    status
        .into_iter()
        .map(|node| u32::try_from(node).ok())
        .collect()
}

pub(crate) fn node_count() -> u32 {
    std::fs::read_to_string("/sys/devices/system/node/online")
        .ok()
        .and_then(|list| {
            let last = list.trim().rsplit([',', '-']).next()?;
            Some(last.parse::<u32>().ok()? + 1)
        })
        .unwrap_or(1)
}

/// CPU and node of the calling thread.
fn getcpu() -> (u32, u32) {
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: the two pointers are valid for writes; the third argument has been unused since Linux 2.6.24.
    unsafe {
        libc::syscall(
            libc::SYS_getcpu,
            &raw mut cpu,
            &raw mut node,
            std::ptr::null_mut::<u8>(),
        )
    };
    (cpu, node)
}

pub(crate) fn current_cpu() -> u32 {
    getcpu().0
}

pub(crate) fn current_node() -> u32 {
    getcpu().1
}

pub(crate) fn node_of_cpu(cpu: u32) -> Option<u32> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    if !Path::new(&folder).exists() {
        return None;
    }
    let node = (0..node_count()).find(|node| Path::new(&format!("{folder}/node{node}")).exists());
    Some(node.unwrap_or(0))
}

pub(crate) fn cpus() -> Vec<u32> {
    // SAFETY: an all-zero set is the empty set, which the call fills in.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    let cpus: Vec<u32> = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below the size of the set.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .map(|cpu| cpu as u32)
        .collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

pub(crate) fn pin_current_thread(cpu: u32) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as u32 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the index is below the size of the set, which is empty when zeroed; the call only reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(crate) fn counters() -> Map<String, Value> {
    // SAFETY: zero is a valid `rusage`, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let counters = json!({
        "pgfault": usage.ru_minflt + usage.ru_majflt,
        "pgmajfault": usage.ru_majflt,
        "nvcsw": usage.ru_nvcsw,
        "nivcsw": usage.ru_nivcsw,
    });
    match counters {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// `bytes` (whole pages) of fresh zero memory at a multiple of `align` (a power of two, at least a page), or null.
pub(crate) fn map(bytes: usize, align: usize) -> *mut u8 {
    let slack = align - crate::PAGE_BYTES;
    let Some(total) = bytes.checked_add(slack) else {
        return std::ptr::null_mut();
    };
    // SAFETY: a new private mapping replaces nothing.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            total,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    let base = base.cast::<u8>();
    let head = base.addr().next_multiple_of(align) - base.addr();
    // SAFETY: head, block and tail make up the mapping, and only head and tail are given back.
    unsafe {
        if head > 0 {
            unmap(base, head);
        }
        if slack > head {
            unmap(base.add(head + bytes), slack - head);
        }
        base.add(head)
    }
}

/// # Safety
///
/// `ptr` and `bytes` must be whole pages of mappings of [`map`], which nobody uses any more.
pub(crate) unsafe fn unmap(ptr: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(ptr.cast(), bytes) };
}
