//! What the host tool learns of a run at its end.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering;

use crate::boot::{self, Settings};
use crate::console::ReportConsole;
use crate::cpu::{clock, local};
use crate::mem::{self, Manager};

/// Writes the kernel's record: the machine, times, counters and the account of all frames. A run
/// that ends while booting has none.
pub(crate) fn at_exit() {
    if let (Some(manager), Some(settings)) = (mem::manager(), boot::settings()) {
        ReportConsole.record(format_args!("{}", KernelRecord(manager, settings)));
    }
}

struct KernelRecord(&'static Manager, &'static Settings);

impl fmt::Display for KernelRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(manager, settings) = *self;
        let now = clock::ticks();
        let booted = boot::main_started_at();
        let cpus = local::count() as u64;
        let idle: u64 = local::all().map(idle_ticks).sum();
        let memory: u64 = local::all()
            .map(|local| local.memory_ticks.load(Ordering::Relaxed))
            .sum();
        let wall = now.saturating_sub(booted);
        let busy = (wall * cpus).saturating_sub(idle);
        write!(
            f,
            "{{\"dolmen\":\"kernel\",\"cpus\":{cpus},\"nodes\":{},\"mem_bytes\":{},\"thp\":\"{}\",\"numa\":\"{}\",\"boot_ns\":{},\"wall_ns\":{},\"user_ns\":{},\"sys_ns\":{},\"counters\":",
            manager.topology().node_count(),
            settings.memory_bytes,
            settings.thp,
            settings.numa,
            clock::nanos_from_ticks(booted.saturating_sub(clock::entry_ticks())),
            clock::nanos_from_ticks(wall),
            clock::nanos_from_ticks(busy.saturating_sub(memory)),
            clock::nanos_from_ticks(memory),
        )?;
        write_counters(f, manager)?;
        f.write_str(",\"nodes_mem\":[")?;
        for (index, node) in manager.topology().nodes().enumerate() {
            let memory = manager.frames().node_memory(node);
            let comma = if index > 0 { "," } else { "" };
            write!(
                f,
                "{comma}{{\"total_bytes\":{},\"free_bytes\":{}}}",
                memory.total_frames * 4096,
                memory.free_frames * 4096
            )?;
        }
        f.write_str("]}")
    }
}

fn idle_ticks(local: &local::Local) -> u64 {
    let now = match local.idle_since.load(Ordering::Relaxed) {
        0 => 0,
        since => boot::run_ticks_since(since),
    };
    local.idle_ticks.load(Ordering::Relaxed) + now
}

/// Writes all counters as a JSON object.
pub(crate) fn write_counters(out: &mut impl Write, manager: &Manager) -> fmt::Result {
    out.write_char('{')?;
    for (name, value) in manager.snapshot().iter() {
        write!(out, "\"{name}\":{value},")?;
    }
    let frames = manager.frames();
    write!(
        out,
        "\"frames_allocated\":{},\"frames_mapped\":{},\"frames_page_table\":{},\"frames_kernel\":{}}}",
        frames.allocated_frames(),
        manager.mapped_frames(),
        manager.page_table_frames(),
        mem::kernel_heap::held_frames(),
    )
}
