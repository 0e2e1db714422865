//! Interrupt and exception entry.
//!
//! Every vector enters on an IST stack: the application runs at ring 0 too and owns the red zone
//! below its stack pointer, so nothing may ever be pushed there. The stubs save the general
//! purpose registers into a [`TrapFrame`] and call [`super::interrupts::dispatch`]. Vector state
//! is not saved: the kernel is compiled soft-float and never touches it.

use core::arch::global_asm;

/// Bytes between two entry stubs.
const STUB_BYTES: u64 = 16;

/// The registers of an interrupted context, in the order in which the entry stub pushes them.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct TrapFrame {
    pub(crate) r15: u64,
    pub(crate) r14: u64,
    pub(crate) r13: u64,
    pub(crate) r12: u64,
    pub(crate) rbp: u64,
    pub(crate) rbx: u64,
    pub(crate) r11: u64,
    pub(crate) r10: u64,
    pub(crate) r9: u64,
    pub(crate) r8: u64,
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rdx: u64,
    pub(crate) rcx: u64,
    pub(crate) rax: u64,
    pub(crate) vector: u64,
    pub(crate) error: u64,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) rflags: u64,
    pub(crate) rsp: u64,
    pub(crate) ss: u64,
}

/// Entry stubs of the first vectors, [`STUB_BYTES`] apart: each pushes what the processor does not
/// push for every vector, and goes on at a label.
macro_rules! stubs {
    ($name:literal, $count:literal, $continue:literal) => {
        concat!(
            "
    .balign 16
    .global ", $name, "
    ", $name, ":
    .set dolmen_vector, 0
    .rept ", $count, "
        .balign 16
        .if (dolmen_vector == 8) || ((dolmen_vector >= 10) && (dolmen_vector <= 14)) || (dolmen_vector == 17) || (dolmen_vector == 21) || (dolmen_vector == 29) || (dolmen_vector == 30)
        .else
            push 0
        .endif
        push dolmen_vector
        jmp ", $continue, "
        .set dolmen_vector, dolmen_vector + 1
    .endr
"
        )
    };
}

/// Completes a [`TrapFrame`] on the stack and leaves its address in `rdi` and `rbx`, with the stack
/// aligned for a call.
macro_rules! save_frame {
    () => {
        "
        push rax
        push rcx
        push rdx
        push rsi
        push rdi
        push r8
        push r9
        push r10
        push r11
        push rbx
        push rbp
        push r12
        push r13
        push r14
        push r15
        cld
        mov rdi, rsp
        mov rbx, rdi
        and rsp, -16
"
    };
}

global_asm!(
    r#"
    .pushsection .text.dolmen_vectors, "ax"
"#,
    stubs!("dolmen_vectors", "256", "dolmen_trap_entry"),
    stubs!("dolmen_early_vectors", "32", "dolmen_early_entry"),
    "dolmen_early_entry:",
    save_frame!(),
    "call {early}
        ud2",
    "dolmen_trap_entry:",
    save_frame!(),
    r#"
        call {dispatch}
        mov rdi, rbx

    // rdi: the frame to return through.
    .global dolmen_trap_return
    dolmen_trap_return:
        mov rsp, rdi
        pop r15
        pop r14
        pop r13
        pop r12
        pop rbp
        pop rbx
        pop r11
        pop r10
        pop r9
        pop r8
        pop rdi
        pop rsi
        pop rdx
        pop rcx
        pop rax
        add rsp, 16
        iretq
    .popsection
    "#,
    dispatch = sym super::interrupts::dispatch,
    early = sym super::interrupts::early,
);

unsafe extern "C" {
    #[link_name = "dolmen_vectors"]
    static VECTORS: [u8; 256 * STUB_BYTES as usize];
    #[link_name = "dolmen_early_vectors"]
    static EARLY_VECTORS: [u8; 32 * STUB_BYTES as usize];
    /// Leaves the current context for good and continues the interrupted one in `frame`.
    #[link_name = "dolmen_trap_return"]
    pub(crate) fn resume_trap(frame: *const TrapFrame) -> !;
}

/// The address of the entry stub of `vector`.
pub(crate) fn stub_address(vector: u8) -> u64 {
    (&raw const VECTORS).addr() as u64 + u64::from(vector) * STUB_BYTES
}

/// The same while the processor has no interrupt stacks and no data of its own yet; `vector` is an
/// exception's.
pub(crate) fn early_stub_address(vector: u8) -> u64 {
    (&raw const EARLY_VECTORS).addr() as u64 + u64::from(vector) * STUB_BYTES
}
