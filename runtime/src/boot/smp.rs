//! The start of the other processors: INIT, SIPI, SIPI, and the way from real mode to long mode.

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use dolmen_mm::ids::PAGE_BYTES;
use x86_64::registers::control::{Cr0, Cr4, Efer};

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
    fn new() -> Self {
        let gdt = (CODE_PAGE + PARAMETERS_OFFSET) as u32;
        Self {
            gdt: GDT,
            cr0: AtomicU64::new(Cr0::read_raw()),
            cr3: AtomicU64::new(direct::root()),
            cr4: AtomicU64::new(Cr4::read_raw()),
            // The "active" bit is the processor's own.
            efer: AtomicU64::new(Efer::read_raw() & !(1 << 10)),
            stack: AtomicU64::new(0),
            local: AtomicU64::new(0),
            entry: AtomicU64::new(start_here as *const () as u64),
            gdt_limit: size_of_val(&GDT) as u16 - 1,
            gdt_base: [gdt as u16, (gdt >> 16) as u16],
        }
    }
}

/// Starts all processors that have been published and are not online. One that does not come up
/// within ten seconds ends the run: its threads would never run.
pub(super) fn start_all() {
    if local::count() == 1 {
        return;
    }
    let parameters = prepare_pages();
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
    assert!(
        bytes <= PARAMETERS_OFFSET as usize,
        "the trampoline fits its place"
    );
    // SAFETY: both pages are mapped and unused, and the parameters lie in the first at a multiple
    // of 8; processors that start later only read them.
    unsafe {
        core::ptr::copy_nonoverlapping(start, code, bytes);
        root.write(direct::root_entries());
        let parameters = code.add(PARAMETERS_OFFSET as usize).cast::<Parameters>();
        parameters.write(Parameters::new());
        &*parameters
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
