//! The first instructions of the image.

use core::arch::naked_asm;

use hermit_entry::Entry;
use hermit_entry::boot_info::RawBootInfo;

use crate::boot::smp::parked::Release;

/// Number of the register that enables long mode and no-execute pages.
const EFER: u32 = 0xc000_0080;

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
/// loader's; the image brings its own. Under uhyve all processors come at once: those behind the
/// first wait until it names them.
///
/// # Safety
///
/// Only a loader that follows Hermit's entry protocol calls it, once on each processor.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _start(_boot_info: &'static RawBootInfo, _cpu: u32) -> ! {
    naked_asm!(
        "cld",
        "test esi, esi",
        "jnz 2f",
        "lea rsp, [rip + {stack}]",
        "add rsp, {bytes}",
        "xor ebp, ebp",
        "call {start}",
        "ud2",
        "2:",
        "lea rbx, [rip + {release}]",
        "3:",
        "pause",
        "cmp esi, [rbx + {cpu}]",
        "jne 3b",
        "mov ecx, {efer_register}",
        "mov eax, [rbx + {efer}]",
        "mov edx, [rbx + {efer} + 4]",
        "wrmsr",
        "mov rax, [rbx + {cr3}]",
        "mov cr3, rax",
        "mov rax, [rbx + {cr4}]",
        "mov cr4, rax",
        "mov rax, [rbx + {cr0}]",
        "mov cr0, rax",
        "mov rsp, [rbx + {first_stack}]",
        "mov rdi, [rbx + {local}]",
        "xor ebp, ebp",
        "call [rbx + {entry}]",
        "ud2",
        stack = sym BOOT_STACK,
        bytes = const BOOT_STACK_BYTES,
        start = sym crate::boot::start,
        release = sym crate::boot::smp::parked::RELEASE,
        cpu = const Release::CPU,
        efer_register = const EFER,
        efer = const Release::EFER,
        cr3 = const Release::CR3,
        cr4 = const Release::CR4,
        cr0 = const Release::CR0,
        first_stack = const Release::STACK,
        local = const Release::LOCAL,
        entry = const Release::ENTRY,
    )
}

/// The entry has the type that loaders expect.
const _: Entry = _start;
