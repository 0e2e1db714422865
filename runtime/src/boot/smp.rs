//! The start of the other processors: INIT, SIPI, SIPI, and the way from real mode to long mode.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use dolmen_mm::ids::PAGE_BYTES;
use x86_64::registers::control::{Cr0, Cr4};

use crate::cpu::features::Features;
use crate::cpu::local::{self, Local};
use crate::cpu::{apic, clock, fpu, interrupts, thread_pointer};
use crate::mem::direct;
use crate::{console, sched};

/// Physical address of the page that holds the trampoline. Firmware puts nothing there that is
/// needed once the system runs, and [`dolmen_firmware::machine::LOW_MEMORY_END`] keeps the memory
/// below 1 MiB out of use.
const CODE_PAGE: u64 = 0x8000;
/// A copy of the page tables' root below 4 GiB, where a processor in protected mode can load it.
const ROOT_PAGE: u64 = 0x9000;
/// Bytes of the stack on which a processor starts and later idles.
const STACK_BYTES: usize = 32 << 10;
/// How long a processor has to come up, in nanoseconds.
const PATIENCE_NANOS: u64 = 10_000_000_000;

global_asm!(
    r#"
    .pushsection .rodata.dolmen_trampoline, "a"
    .balign 16
    dolmen_trampoline:
    .code16
        cli
        cld
        xor ax, ax
        mov ds, ax
        lgdt [{code} + (dolmen_trampoline_gdt_pointer - dolmen_trampoline)]
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
        mov eax, [{code} + (dolmen_trampoline_cr4 - dolmen_trampoline)]
        mov cr4, eax
        mov eax, {root}
        mov cr3, eax
        mov ecx, 0xc0000080
        mov eax, [{code} + (dolmen_trampoline_efer - dolmen_trampoline)]
        xor edx, edx
        wrmsr
        mov eax, [{code} + (dolmen_trampoline_cr0 - dolmen_trampoline)]
        mov cr0, eax
        .byte 0xea
        .long {code} + (dolmen_trampoline_64 - dolmen_trampoline)
        .word 0x08
    .code64
    dolmen_trampoline_64:
        mov rax, [{code} + (dolmen_trampoline_cr3 - dolmen_trampoline)]
        mov cr3, rax
        mov rsp, [{code} + (dolmen_trampoline_stack - dolmen_trampoline)]
        mov rdi, [{code} + (dolmen_trampoline_local - dolmen_trampoline)]
        mov rax, [{code} + (dolmen_trampoline_entry - dolmen_trampoline)]
        xor ebp, ebp
        call rax
        ud2
    .balign 8
    dolmen_trampoline_gdt:
        .quad 0
        .quad 0x00af9b000000ffff
        .quad 0x00cf93000000ffff
        .quad 0x00cf9b000000ffff
    dolmen_trampoline_gdt_pointer:
        .word 31
        .long {code} + (dolmen_trampoline_gdt - dolmen_trampoline)
    .balign 8
    dolmen_trampoline_parameters:
    dolmen_trampoline_cr0: .quad 0
    dolmen_trampoline_cr3: .quad 0
    dolmen_trampoline_cr4: .quad 0
    dolmen_trampoline_efer: .quad 0
    dolmen_trampoline_stack: .quad 0
    dolmen_trampoline_local: .quad 0
    dolmen_trampoline_entry: .quad 0
    dolmen_trampoline_end:
    .popsection
    "#,
    code = const CODE_PAGE,
    root = const ROOT_PAGE,
);

unsafe extern "C" {
    #[link_name = "dolmen_trampoline"]
    static TRAMPOLINE: u8;
    #[link_name = "dolmen_trampoline_parameters"]
    static PARAMETERS: u8;
    #[link_name = "dolmen_trampoline_end"]
    static TRAMPOLINE_END: u8;
}

/// What the trampoline needs to know, in the order in which it expects it.
#[repr(C)]
struct Parameters {
    cr0: AtomicU64,
    cr3: AtomicU64,
    cr4: AtomicU64,
    efer: AtomicU64,
    stack: AtomicU64,
    local: AtomicU64,
    entry: AtomicU64,
}

/// Starts all processors that have been published and are not online. One that does not come up
/// within ten seconds ends the run: its threads would never run.
pub(super) fn start_all() {
    if local::count() == 1 {
        return;
    }
    let parameters = prepare_pages();
    parameters.cr0.store(Cr0::read_raw(), Ordering::Relaxed);
    parameters.cr3.store(direct::root(), Ordering::Relaxed);
    parameters.cr4.store(Cr4::read_raw(), Ordering::Relaxed);
    let efer = x86_64::registers::model_specific::Efer::read_raw();
    // The "active" bit is the processor's own.
    parameters.efer.store(efer & !(1 << 10), Ordering::Relaxed);
    parameters
        .entry
        .store(start_here as *const () as u64, Ordering::Relaxed);
    for local in local::all().filter(|local| !local.online.load(Ordering::Relaxed)) {
        parameters
            .stack
            .store(local::stack(STACK_BYTES), Ordering::Relaxed);
        parameters.local.store(
            core::ptr::from_ref(local).expose_provenance() as u64,
            Ordering::Release,
        );
        start(local);
    }
    direct::unmap_low_page(CODE_PAGE);
    direct::unmap_low_page(ROOT_PAGE);
}

/// Copies trampoline and root into low memory.
fn prepare_pages() -> &'static Parameters {
    direct::map_low_page(CODE_PAGE);
    direct::map_low_page(ROOT_PAGE);
    let code = core::ptr::with_exposed_provenance_mut::<u8>(CODE_PAGE as usize);
    let root = core::ptr::with_exposed_provenance_mut::<[u64; 512]>(ROOT_PAGE as usize);
    let start = &raw const TRAMPOLINE;
    let bytes = (&raw const TRAMPOLINE_END).addr() - start.addr();
    let parameters = (&raw const PARAMETERS).addr() - start.addr();
    assert!(bytes <= PAGE_BYTES, "the trampoline fits its page");
    // SAFETY: both pages are mapped and unused; the trampoline's parameters lie in the copy, at a
    // multiple of 8, and are only read by processors that start later.
    unsafe {
        core::ptr::copy_nonoverlapping(start, code, bytes);
        root.write(direct::root_entries());
        &*code.add(parameters).cast::<Parameters>()
    }
}

/// INIT and two start-up interrupts, with the pauses of Intel's manual (volume 3, section 11.4.4).
fn start(local: &'static Local) {
    let apic_id = local.apic_id;
    apic::send_init(apic_id);
    clock::spin_nanos(10_000_000);
    let begin = clock::ticks();
    let patience = clock::ticks_from_nanos(PATIENCE_NANOS);
    for _ in 0..2 {
        apic::send_startup(apic_id, (CODE_PAGE / PAGE_BYTES as u64) as u8);
        clock::spin_nanos(200_000);
    }
    while !local.online.load(Ordering::Acquire) {
        if clock::ticks() - begin > patience {
            crate::fatal::refuse(format_args!(
                "CPU {} (APIC {apic_id}) does not start",
                local.cpu.get()
            ));
        }
        core::hint::spin_loop();
    }
}

/// The first function of every other processor, on the page tables and the stack that it keeps.
extern "C" fn start_here(local: &'static Local) -> ! {
    let features = Features::detect();
    super::load_descriptors(local);
    fpu::enable(&features);
    thread_pointer::enable(&features);
    apic::enable(&features);
    if apic::id() != local.apic_id {
        console::line(format_args!(
            "CPU {} answers as APIC {}, not {}",
            local.cpu.get(),
            apic::id(),
            local.apic_id
        ));
    }
    sched::become_idle_context();
    interrupts::go_online();
    sched::idle_loop()
}
