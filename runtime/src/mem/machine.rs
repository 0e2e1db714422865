//! x86-64 as the memory manager sees it.

use core::arch::asm;
use core::sync::atomic::Ordering;

use dolmen_mm::clear::{Cleared, Store, Strategy};
use dolmen_mm::ids::{CpuId, FrameId, NodeId, Order, PageSize, VirtAddr};
use dolmen_mm::machine::{Machine, Table};

use super::direct;
use crate::cpu::{apic, local};

/// The machine that the kernel runs on.
pub(crate) struct X86Machine {
    /// Processors, online or not yet.
    pub(crate) cpus: usize,
    /// How frames are cleared.
    pub(crate) clearing: Strategy,
}

impl Machine for X86Machine {
    fn cpu_count(&self) -> usize {
        self.cpus
    }

    fn this_cpu(&self) -> CpuId {
        local::this().cpu
    }

    fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        local::of(cpu).map_or(NodeId::new(0), |local| local.node)
    }

    fn is_online(&self, cpu: CpuId) -> bool {
        local::of(cpu).is_some_and(|local| local.online.load(Ordering::Acquire))
    }

    fn table(&self, frame: FrameId) -> &Table {
        // SAFETY: all RAM is in the direct map for ever, and the memory manager passes frames that
        // it uses as page-table pages, through atomic operations only. The root lies in the image,
        // which is RAM as well.
        unsafe { &*direct::pointer::<Table>(frame.address().0) }
    }

    fn clear(&self, frame: FrameId, order: Order, touched_byte: usize) -> Cleared {
        let start = direct::pointer::<u8>(frame.address().0);
        let mut cleared = Cleared::default();
        for extent in self.clearing.plan(order.bytes(), touched_byte) {
            cleared.add(&extent);
            // SAFETY: the extent lies in the run of frames, which belongs to the caller and is in
            // the direct map.
            unsafe {
                let start = start.add(extent.bytes.start);
                match extent.store {
                    Store::Cached => clear_cached(start, extent.bytes.len()),
                    Store::NonTemporal => clear_nontemporal(start, extent.bytes.len()),
                }
            }
        }
        if cleared.nontemporal_bytes > 0 {
            // SAFETY: orders the non-temporal stores before the store that maps the frames.
            unsafe { asm!("sfence", options(nostack, preserves_flags)) };
        }
        cleared
    }

    fn flush_page(&self, page: VirtAddr, _size: PageSize) {
        // INVLPG drops the translation of whatever size holds the address.
        x86_64::instructions::tlb::flush(x86_64::VirtAddr::new(page.0));
    }

    fn flush_all(&self) {
        // The kernel's half is global and stays; everything the memory manager maps goes.
        x86_64::instructions::tlb::flush_all();
    }

    fn send_shootdown(&self, cpu: CpuId) {
        if let Some(target) = local::of(cpu) {
            apic::send(target.apic_id, apic::VECTOR_SHOOTDOWN);
        }
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }
}

/// Clears with string stores.
///
/// # Safety
///
/// `start` points to `bytes` writable bytes.
unsafe fn clear_cached(start: *mut u8, bytes: usize) {
    // SAFETY: by the contract.
    unsafe {
        asm!("rep stosb", inout("rdi") start => _, inout("rcx") bytes => _, in("al") 0u8,
            options(nostack, preserves_flags));
    }
}

/// Clears with non-temporal stores of the general purpose registers.
///
/// # Safety
///
/// As [`clear_cached`]; both are multiples of 64.
unsafe fn clear_nontemporal(start: *mut u8, bytes: usize) {
    // SAFETY: by the contract; the loop ends at `start + bytes`.
    unsafe {
        asm!(
            "2:",
            "movnti [{at}], {zero}",
            "movnti [{at} + 8], {zero}",
            "movnti [{at} + 16], {zero}",
            "movnti [{at} + 24], {zero}",
            "movnti [{at} + 32], {zero}",
            "movnti [{at} + 40], {zero}",
            "movnti [{at} + 48], {zero}",
            "movnti [{at} + 56], {zero}",
            "add {at}, 64",
            "cmp {at}, {end}",
            "jb 2b",
            at = inout(reg) start => _,
            end = in(reg) start.add(bytes),
            zero = in(reg) 0u64,
            options(nostack),
        );
    }
}
