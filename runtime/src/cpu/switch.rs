//! Leaving one context and entering another.
//!
//! A context that gives the processor up by itself does so in a function call. The System V ABI
//! makes every vector register caller-saved there, so what must survive is the callee-saved
//! general purpose registers and the two control words, MXCSR and the x87 control word. A context
//! that is interrupted keeps everything: its registers in a trap frame, its vector state in an
//! XSAVE area ([`super::fpu`]).

use core::arch::naked_asm;

/// Pushes what a call must preserve and stores the stack pointer where `rdi` points.
macro_rules! save_call {
    () => {
        "push rbp
        push rbx
        push r12
        push r13
        push r14
        push r15
        sub rsp, 8
        stmxcsr [rsp]
        fnstcw [rsp + 4]
        mov [rdi], rsp"
    };
}

/// Saves the caller's context, stores its stack pointer in `save`, and continues the context whose
/// saved stack pointer is `next`.
///
/// # Safety
///
/// `next` was stored by a switch, is continued once, and its stack is mapped. Interrupts are off.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch_to_call(save: *mut u64, next: u64) {
    naked_asm!(
        save_call!(),
        "mov rdi, rsi",
        "jmp {resume}",
        resume = sym resume_call,
    )
}

/// Saves the caller's context, stores its stack pointer in `save`, and leaves it for good by calling
/// `resume(next)` on the same stack.
///
/// Whatever changes MXCSR or the x87 control word for the next context belongs into `resume`: here
/// they are still the caller's.
///
/// # Safety
///
/// `resume` may be called with `next`, and interrupts are off.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch_by<T>(
    save: *mut u64,
    next: *const T,
    resume: unsafe extern "C" fn(*const T) -> !,
) {
    naked_asm!(save_call!(), "mov rdi, rsi", "call rdx", "ud2")
}

/// Leaves the current context for good and continues the one whose saved stack pointer is `next`.
///
/// # Safety
///
/// As [`switch_to_call`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn resume_call(next: u64) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Calls `function(argument)` on the stack whose high end is `top`, and comes back.
///
/// # Safety
///
/// `top` is the high end, aligned to 16 bytes, of a mapped stack that nothing else uses meanwhile.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on_stack(
    argument: *mut (),
    function: extern "C" fn(*mut ()),
    top: u64,
) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}
