//! The first instructions of the image.

use core::arch::naked_asm;

use hermit_entry::Entry;
use hermit_entry::boot_info::RawBootInfo;

/// Bytes of the stack on which the boot processor sets the machine up and later idles.
const BOOT_STACK_BYTES: usize = 128 << 10;

#[repr(C, align(16))]
struct BootStack([u8; BOOT_STACK_BYTES]);

static mut BOOT_STACK: BootStack = BootStack([0; BOOT_STACK_BYTES]);

hermit_entry::define_abi_tag!();
hermit_entry::define_entry_version!();
hermit_entry::define_uhyve_interface_version!(UHYVE_INTERFACE_VERSION);

/// The version of uhyve's interface that the image is for.
const UHYVE_INTERFACE_VERSION: u32 = 3;

/// The loader's way in: long mode, interrupts off, the image relocated, the boot information in
/// `rdi` and the number of the processor in `rsi`. The stack that comes along is memory of the
/// loader's; the image brings its own.
///
/// # Safety
///
/// Only a loader that follows Hermit's entry protocol calls it, once.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _start(_boot_info: &'static RawBootInfo, _cpu: u32) -> ! {
    naked_asm!(
        "cld",
        "lea rsp, [rip + {stack}]",
        "add rsp, {bytes}",
        "xor ebp, ebp",
        "call {start}",
        "ud2",
        stack = sym BOOT_STACK,
        bytes = const BOOT_STACK_BYTES,
        start = sym crate::boot::start,
    )
}

/// The entry has the type that loaders expect.
const _: Entry = _start;
