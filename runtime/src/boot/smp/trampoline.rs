//! The start of processors that wait for it as the hardware does: INIT, SIPI, SIPI, and the way
//! from real mode to long mode.

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use dolmen_mm::ids::PAGE_BYTES;

use super::Start;
use crate::cpu::local::Local;
use crate::cpu::{apic, clock};
use crate::mem::direct;

/// Physical address of the page that holds the trampoline. Firmware puts nothing there that is
/// needed once the system runs, and [`dolmen_firmware::machine::LOW_MEMORY_END`] keeps the memory
/// below 1 MiB out of use.
const CODE_PAGE: u64 = 0x8000;
/// A copy of the page tables' root below 4 GiB, where a processor in protected mode can load it.
const ROOT_PAGE: u64 = 0x9000;

/// Offset of [`Parameters`] in [`CODE_PAGE`].
const PARAMETERS_OFFSET: u64 = 0x800;

global_asm!(
    r#"
    .pushsection .rodata.dolmen_trampoline, "a"
    .balign 16
    .global dolmen_trampoline
    dolmen_trampoline:
    .code16
        cli
        cld
        xor ax, ax
        mov ds, ax
        mov ebx, {parameters}
        lgdt [ebx + {gdt_pointer}]
        mov eax, cr0
        or al, 1
        mov cr0, eax
        .byte 0x66, 0xea
        .long {code} + (dolmen_trampoline_32 - dolmen_trampoline)
        .word 0x18
    .code32
    dolmen_trampoline_32:
        mov ax, 0x10
        mov ds, ax
        mov es, ax
        mov ss, ax
        mov eax, [ebx + {cr4}]
        mov cr4, eax
        mov eax, {root}
        mov cr3, eax
        mov ecx, 0xc0000080
        mov eax, [ebx + {efer}]
        xor edx, edx
        wrmsr
        mov eax, [ebx + {cr0}]
        mov cr0, eax
        .byte 0xea
        .long {code} + (dolmen_trampoline_64 - dolmen_trampoline)
        .word 0x08
    .code64
    dolmen_trampoline_64:
        mov ebx, ebx
        mov rax, [rbx + {cr3}]
        mov cr3, rax
        mov rsp, [rbx + {stack}]
        mov rdi, [rbx + {local}]
        mov rax, [rbx + {entry}]
        xor ebp, ebp
        call rax
        ud2
    .global dolmen_trampoline_end
    dolmen_trampoline_end:
    .popsection
    "#,
    code = const CODE_PAGE,
    root = const ROOT_PAGE,
    parameters = const CODE_PAGE + PARAMETERS_OFFSET,
    gdt_pointer = const offset_of!(Parameters, gdt_limit),
    cr0 = const offset_of!(Parameters, cr0),
    cr3 = const offset_of!(Parameters, cr3),
    cr4 = const offset_of!(Parameters, cr4),
    efer = const offset_of!(Parameters, efer),
    stack = const offset_of!(Parameters, stack),
    local = const offset_of!(Parameters, local),
    entry = const offset_of!(Parameters, entry),
);

unsafe extern "C" {
    #[link_name = "dolmen_trampoline"]
    static TRAMPOLINE: u8;
    #[link_name = "dolmen_trampoline_end"]
    static TRAMPOLINE_END: u8;
}

/// Null, 64-bit code, data, 32-bit code.
const GDT: [u64; 4] = [
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00cf_9b00_0000_ffff,
];

/// What the trampoline needs to know.
#[repr(C)]
struct Parameters {
    gdt: [u64; 4],
    cr0: AtomicU64,
    cr3: AtomicU64,
    cr4: AtomicU64,
    efer: AtomicU64,
    stack: AtomicU64,
    local: AtomicU64,
    entry: AtomicU64,
    /// Limit and base of `gdt`, as LGDT reads them: 16 and 32 bits without a gap.
    gdt_limit: u16,
    gdt_base: [u16; 2],
}

impl Parameters {
    fn new(start: &Start) -> Self {
        let gdt = (CODE_PAGE + PARAMETERS_OFFSET) as u32;
        Self {
            gdt: GDT,
            cr0: AtomicU64::new(start.cr0),
            cr3: AtomicU64::new(start.cr3),
            cr4: AtomicU64::new(start.cr4),
            // The "active" bit is the processor's own.
            efer: AtomicU64::new(start.efer & !(1 << 10)),
            stack: AtomicU64::new(0),
            local: AtomicU64::new(0),
            entry: AtomicU64::new(start.entry),
            gdt_limit: size_of_val(&GDT) as u16 - 1,
            gdt_base: [gdt as u16, (gdt >> 16) as u16],
        }
    }
}

/// The trampoline in its place, for as long as processors start.
pub(super) struct Trampoline(&'static Parameters);

impl Trampoline {
    /// Puts it there.
    pub(super) fn new(start: &Start) -> Self {
        Self(prepare_pages(start))
    }

    /// Starts `local`'s processor on `stack`: INIT and two start-up interrupts, with the pauses of
    /// Intel's manual (volume 3, section 11.4.4).
    pub(super) fn launch(&self, local: &'static Local, stack: u64) {
        self.0.stack.store(stack, Ordering::Relaxed);
        let address = core::ptr::from_ref(local).expose_provenance() as u64;
        self.0.local.store(address, Ordering::Release);
        apic::send_init(local.apic_id);
        clock::spin_nanos(10_000_000);
        for _ in 0..2 {
            apic::send_startup(local.apic_id, (CODE_PAGE / PAGE_BYTES as u64) as u8);
            clock::spin_nanos(200_000);
        }
    }
}

impl Drop for Trampoline {
    fn drop(&mut self) {
        direct::unmap_low_page(CODE_PAGE);
        direct::unmap_low_page(ROOT_PAGE);
    }
}

/// Copies trampoline and root into low memory.
fn prepare_pages(start: &Start) -> &'static Parameters {
    direct::map_low_page(CODE_PAGE);
    direct::map_low_page(ROOT_PAGE);
    let code = core::ptr::with_exposed_provenance_mut::<u8>(CODE_PAGE as usize);
    let root = core::ptr::with_exposed_provenance_mut::<[u64; 512]>(ROOT_PAGE as usize);
    let trampoline = &raw const TRAMPOLINE;
    let bytes = (&raw const TRAMPOLINE_END).addr() - trampoline.addr();
    assert!(
        bytes <= PARAMETERS_OFFSET as usize,
        "the trampoline fits its place"
    );
    // SAFETY: both pages are mapped and unused, and the parameters lie in the first at a multiple
    // of 8; processors that start later only read them.
    unsafe {
        core::ptr::copy_nonoverlapping(trampoline, code, bytes);
        root.write(direct::root_entries());
        let parameters = code.add(PARAMETERS_OFFSET as usize).cast::<Parameters>();
        parameters.write(Parameters::new(start));
        &*parameters
    }
}
