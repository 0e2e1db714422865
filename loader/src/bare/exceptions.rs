//! Exceptions end the run with a sentence, in the loader and in the application's first steps, until
//! it has a table of its own.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use x86_64::VirtAddr;
use x86_64::registers::control::Cr2;
use x86_64::structures::idt::{Entry, InterruptDescriptorTable};

use super::fail;

/// Exceptions have the vectors below this.
const VECTORS: usize = 32;
/// Bytes between two stubs.
const STUB_BYTES: usize = 16;
const PAGE_FAULT: u64 = 14;

// Each stub pushes what the processor leaves out for some vectors, so that all look alike: vector,
// error code, instruction pointer. Nothing is saved, because nothing goes on.
global_asm!(
    r#"
.pushsection .text
.code64
.balign 16
exception_stubs:
.set vector, 0
.rept {vectors}
    .balign 16
    .if (vector != 8) && ((vector < 10) || (vector > 14)) && (vector != 17) && (vector != 21) && (vector != 29) && (vector != 30)
    push 0
    .endif
    push vector
    jmp exception
    .set vector, vector + 1
.endr
exception:
    cld
    pop rdi
    pop rsi
    mov rdx, [rsp]
    and rsp, -16
    call {report}
    ud2
.popsection
"#,
    vectors = const VECTORS,
    report = sym report,
);

unsafe extern "C" {
    #[link_name = "exception_stubs"]
    static STUBS: [u8; VECTORS * STUB_BYTES];
}

struct Table(UnsafeCell<InterruptDescriptorTable>);

// SAFETY: Written once, by the only processor that runs, before that processor loads it.
unsafe impl Sync for Table {}

/// It lies in the part of the loader that the application leaves alone.
static TABLE: Table = Table(UnsafeCell::new(InterruptDescriptorTable::new()));

/// Takes over the exceptions of this processor.
pub(super) fn install() {
    // SAFETY: This is the only reference that is ever made to the table while it is written, and it
    // stays as it is once it is loaded.
    unsafe {
        let table = &mut *TABLE.0.get();
        set(&mut table.divide_error, 0);
        set(&mut table.debug, 1);
        set(&mut table.non_maskable_interrupt, 2);
        set(&mut table.breakpoint, 3);
        set(&mut table.overflow, 4);
        set(&mut table.bound_range_exceeded, 5);
        set(&mut table.invalid_opcode, 6);
        set(&mut table.device_not_available, 7);
        set(&mut table.double_fault, 8);
        set(&mut table.invalid_tss, 10);
        set(&mut table.segment_not_present, 11);
        set(&mut table.stack_segment_fault, 12);
        set(&mut table.general_protection_fault, 13);
        set(&mut table.page_fault, 14);
        set(&mut table.x87_floating_point, 16);
        set(&mut table.alignment_check, 17);
        set(&mut table.machine_check, 18);
        set(&mut table.simd_floating_point, 19);
        set(&mut table.virtualization, 20);
        set(&mut table.cp_protection_exception, 21);
        table.load_unsafe();
    }
}

fn set<F>(entry: &mut Entry<F>, vector: usize) {
    let stub = (&raw const STUBS).addr() + vector * STUB_BYTES;
    // SAFETY: The stub takes an exception of this vector and does not return.
    unsafe { entry.set_handler_addr(VirtAddr::new(stub as u64)) };
}

extern "C" fn report(vector: u64, error: u64, instruction: u64) -> ! {
    match vector {
        PAGE_FAULT => fail(format_args!(
            "page fault at address {:#x} (error code {error:#x}, instruction at {instruction:#x})",
            Cr2::read_raw()
        )),
        vector => fail(format_args!(
            "exception {vector} (error code {error:#x}, instruction at {instruction:#x})"
        )),
    }
}
