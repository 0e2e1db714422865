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

global_asm!(
    r#"
    .pushsection .text.dolmen_vectors, "ax"
    .balign 16
    .global dolmen_vectors
    dolmen_vectors:
    .set dolmen_vector, 0
    .rept 256
        .balign 16
        .if (dolmen_vector == 8) || ((dolmen_vector >= 10) && (dolmen_vector <= 14)) || (dolmen_vector == 17) || (dolmen_vector == 21) || (dolmen_vector == 29) || (dolmen_vector == 30)
        .else
            push 0
        .endif
        push dolmen_vector
        jmp dolmen_trap_entry
        .set dolmen_vector, dolmen_vector + 1
    .endr

    dolmen_trap_entry:
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
        // The frame is 22 words long and the processor aligned the stack before it pushed its five.
        sub rsp, 8
        and rsp, -16
        mov rbx, rdi
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
);

unsafe extern "C" {
    #[link_name = "dolmen_vectors"]
    static VECTORS: [u8; 256 * STUB_BYTES as usize];
    /// Leaves the current context for good and continues the interrupted one in `frame`.
    #[link_name = "dolmen_trap_return"]
    pub(crate) fn resume_trap(frame: *const TrapFrame) -> !;
}

/// The address of the entry stub of `vector`.
pub(crate) fn stub_address(vector: u8) -> u64 {
    (&raw const VECTORS).addr() as u64 + u64::from(vector) * STUB_BYTES
}
