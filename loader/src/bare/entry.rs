//! From the boot loader to Rust, and from Rust to the application.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use hermit_entry::boot_info::RawBootInfo;

/// Bytes of the loader's own stack.
const STACK_BYTES: usize = 128 << 10;
/// Bytes of the stack that the application starts with; its entry point relies on this size.
const APPLICATION_STACK_BYTES: usize = 32 << 10;

/// Memory that only assembly and the processor look at.
#[repr(C, align(4096))]
struct Raw<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: No Rust code makes a reference to the content.
unsafe impl<const N: usize> Sync for Raw<N> {}

static STACK: Raw<STACK_BYTES> = Raw(UnsafeCell::new([0; STACK_BYTES]));
static APPLICATION_STACK: Raw<APPLICATION_STACK_BYTES> =
    Raw(UnsafeCell::new([0; APPLICATION_STACK_BYTES]));

// The boot loader enters with a flat 32-bit protected mode, paging off, EAX = magic number,
// EBX = address of the information structure. The bss is cleared here because QEMU does not.
// The header asks for page-aligned modules (1) and a memory map (2), and gives addresses (1 << 16):
// boot loaders refuse 64-bit ELF files unless those say how to load it as a flat image.
global_asm!(
    r#"
.set FLAGS, (1 << 0) | (1 << 1) | (1 << 16)

.section .multiboot, "a"
.balign 4
multiboot_header:
    .long 0x1badb002
    .long FLAGS
    .long -(0x1badb002 + FLAGS)
    .long multiboot_header
    .long __loader_start
    .long __load_end
    .long __loader_end
    .long dolmen_entry

.section .rodata
no_multiboot:
    .asciz "dolmen-loader: it was not started by a multiboot boot loader\n"
no_long_mode:
    .asciz "dolmen-loader: this processor has no 64-bit mode\n"
.balign 8
gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
gdt_pointer:
    .word gdt_pointer - gdt - 1
    .quad gdt

.section .text
.code32
.global dolmen_entry
dolmen_entry:
    cli
    cld
    mov esi, eax
    mov edi, offset __load_end
    mov ecx, offset __loader_end
    sub ecx, edi
    xor eax, eax
    rep stosb
    mov esp, offset {stack} + {stack_bytes}
    mov ebp, ebx

    mov eax, offset no_multiboot
    cmp esi, 0x2badb002
    jne give_up

    // Is there CPUID, and does it tell of long mode?
    pushfd
    pop eax
    mov ecx, eax
    xor eax, 1 << 21
    push eax
    popfd
    pushfd
    pop edx
    push ecx
    popfd
    xor edx, ecx
    mov eax, offset no_long_mode
    test edx, 1 << 21
    jz give_up
    mov eax, 0x80000000
    cpuid
    mov ecx, eax
    mov eax, offset no_long_mode
    cmp ecx, 0x80000001
    jb give_up
    mov eax, 0x80000001
    cpuid
    mov eax, offset no_long_mode
    test edx, 1 << 29
    jz give_up

    // The first 4 GiB, identity mapped with 2 MiB pages.
    mov eax, offset {directory_pointers} + 3
    mov [{root}], eax
    mov eax, offset {directories} + 3
    mov edi, offset {directory_pointers}
    mov ecx, 4
2:  mov [edi], eax
    add eax, 4096
    add edi, 8
    loop 2b
    mov eax, 0x83
    mov edi, offset {directories}
    mov ecx, 4 * 512
3:  mov [edi], eax
    add eax, 1 << 21
    add edi, 8
    loop 3b
    mov eax, offset {root}
    mov cr3, eax

    // PAE and nothing else; long mode, and no-execute pages where there are any (EDX bit 20).
    mov eax, 1 << 5
    mov cr4, eax
    mov ebx, edx
    mov ecx, 0xc0000080
    rdmsr
    or eax, 1 << 8
    test ebx, 1 << 20
    jz 4f
    or eax, 1 << 11
4:  wrmsr

    // Paging, caches, an FPU that is there and reports errors by exception.
    mov eax, cr0
    and eax, ~((1 << 2) | (1 << 3) | (1 << 16) | (1 << 29) | (1 << 30))
    or eax, (1 << 1) | (1 << 5) | (1 << 31)
    mov cr0, eax
    lgdt [gdt_pointer]
    push 8
    mov eax, offset in_long_mode
    push eax
    retf

    // Writes the string at EAX to the first serial port and ends the run.
give_up:
    mov esi, eax
5:  lodsb
    test al, al
    jz 8f
    mov bl, al
    mov ecx, 1 << 20
    mov edx, {port} + 5
6:  in al, dx
    test al, 1 << 5
    jnz 7f
    loop 6b
7:  mov edx, {port}
    mov al, bl
    out dx, al
    jmp 5b
8:  mov eax, 1
    mov edx, 0xf4
    out dx, eax
9:  cli
    hlt
    jmp 9b

.code64
in_long_mode:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov rsp, offset {stack} + {stack_bytes}
    mov edi, ebp
    xor ebp, ebp
    call {start}
    ud2
"#,
    stack = sym STACK,
    stack_bytes = const STACK_BYTES,
    root = sym super::paging::ROOT,
    directory_pointers = sym super::paging::DIRECTORY_POINTERS,
    directories = sym super::paging::DIRECTORIES,
    port = const super::console::PORT,
    start = sym start,
);

extern "C" fn start(information: u32) -> ! {
    super::exceptions::install();
    super::heap::init();
    super::boot::boot(information.into())
}

/// Enters the application as the first processor.
///
/// # Safety
///
/// `entry` must be the entry point of a loaded application, and everything that `information`
/// refers to must stay as it is.
// A debugger stops here, where the first argument (RDI) tells it where the application was put.
// SAFETY: Nothing else has this name.
#[unsafe(export_name = "dolmen_loader_enter")]
#[inline(never)]
pub(super) unsafe extern "C" fn enter(entry: u64, information: &'static RawBootInfo) -> ! {
    // SAFETY: The caller vouches for the entry point. The stack is used by nobody else, and the
    // entry point adds its size to the stack pointer itself.
    unsafe {
        asm!(
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "cld",
            "jmp {entry}",
            stack = in(reg) APPLICATION_STACK.0.get(),
            entry = in(reg) entry,
            in("rdi") information,
            in("rsi") 0,
            options(noreturn)
        )
    }
}
