//! Assembly that holds a state in the registers while others run on the same processor.

use std::arch::naked_asm;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use super::state::{CLEAN_MXCSR, State, Width};

/// What [`hold`] gets and gives.
#[repr(C)]
pub(crate) struct Hold<'a> {
    /// What to load.
    pub(crate) pattern: &'a State,
    /// What was in the registers afterwards.
    pub(crate) found: State,
    /// Who of the threads on this processor ran last.
    pub(crate) last: &'a AtomicU64,
    /// The caller's own number there.
    pub(crate) me: u64,
    /// How many threads have been interrupted for another since the program began, once in each round.
    pub(crate) interrupted: &'a AtomicU64,
    /// The registers are held until `interrupted` has this value.
    pub(crate) enough: u64,
    /// Memory that nobody has touched yet: `pages` pages are touched before the wait, as many after it.
    pub(crate) fresh: *mut u8,
    /// At least one.
    pub(crate) pages: u64,
    /// How often another thread ran meanwhile.
    pub(crate) switches: u64,
}

/// Loads a pattern into all registers, touches fresh memory, waits until each of its processor's threads has seen
/// another one run, touches memory again, and stores what is in the registers.
///
/// # Safety
///
/// The processor and the operating system offer `width`; `fresh` points to twice `pages` pages that can be written.
pub(crate) unsafe fn hold(width: Width, request: &mut Hold<'_>) {
    // SAFETY: by the contract. The functions keep what a call has to keep.
    unsafe {
        match width {
            Width::Sse => hold_sse(request),
            Width::Avx => hold_avx(request),
            Width::Avx512 => hold_avx512(request),
        }
    }
}

/// Instructions that load all registers of a kind, and the opmasks, from the state that `r8` points to.
macro_rules! load {
    (sse) => {
        r".irp at, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
          movups xmm\at, [r8 + 64 * \at]
          .endr"
    };
    (avx) => {
        r".irp at, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
          vmovups ymm\at, [r8 + 64 * \at]
          .endr"
    };
    (avx512) => {
        r".irp at, 0, 1, 2, 3, 4, 5, 6, 7
          kmovq k\at, [r8 + 2048 + 8 * \at]
          vmovups zmm\at, [r8 + 64 * \at]
          .endr
          .irp at, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
          vmovups zmm\at, [r8 + 64 * \at]
          .endr"
    };
}

/// Instructions that store them there.
macro_rules! store {
    (sse) => {
        r".irp at, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
          movups [r8 + 64 * \at], xmm\at
          .endr"
    };
    (avx) => {
        r".irp at, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
          vmovups [r8 + 64 * \at], ymm\at
          .endr
          vzeroupper"
    };
    (avx512) => {
        r".irp at, 0, 1, 2, 3, 4, 5, 6, 7
          kmovq [r8 + 2048 + 8 * \at], k\at
          vmovups [r8 + 64 * \at], zmm\at
          .endr
          .irp at, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
          vmovups [r8 + 64 * \at], zmm\at
          .endr
          vzeroupper"
    };
}

// The vectors are the first field of `State`, the opmasks the second.
const _: () = assert!(offset_of!(State, vectors) == 0 && offset_of!(State, opmasks) == 64 * 32);

/// A function that does what [`hold`] says with one kind of registers.
macro_rules! holder {
    ($name:ident, $kind:tt) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(request: &mut Hold<'_>) {
            naked_asm!(
                "mov r8, [rdi + {pattern}]",
                "fninit",
                "fldcw [r8 + {x87_control}]",
                ".irp at, 7, 6, 5, 4, 3, 2, 1, 0",
                r"fld tbyte ptr [r8 + {x87} + 16 * \at]",
                ".endr",
                "ldmxcsr [r8 + {mxcsr}]",
                load!($kind),
                // Page faults.
                "mov rsi, [rdi + {fresh}]",
                "mov rcx, [rdi + {pages}]",
                "2: mov byte ptr [rsi], 1",
                "add rsi, 4096",
                "dec rcx",
                "jnz 2b",
                // The first look at who ran last does not count: the registers are loaded only now.
                "mov r9, [rdi + {last}]",
                "mov r10, [rdi + {me}]",
                "mov r11, [rdi + {interrupted}]",
                "mov rdx, [rdi + {enough}]",
                "mov rax, r10",
                "xchg [r9], rax",
                "xor ecx, ecx",
                "3: mov rax, r10",
                "xchg [r9], rax",
                "cmp rax, r10",
                "je 4f",
                "inc rcx",
                "cmp rcx, 1",
                "jne 4f",
                "lock inc qword ptr [r11]",
                "4: pause",
                "cmp [r11], rdx",
                "jb 3b",
                "mov [rdi + {switches}], rcx",
                "mov rcx, [rdi + {pages}]",
                "5: mov byte ptr [rsi], 1",
                "add rsi, 4096",
                "dec rcx",
                "jnz 5b",
                "lea r8, [rdi + {found}]",
                store!($kind),
                "stmxcsr [r8 + {mxcsr}]",
                "fnstcw [r8 + {x87_control}]",
                ".irp at, 0, 1, 2, 3, 4, 5, 6, 7",
                r"fstp tbyte ptr [r8 + {x87} + 16 * \at]",
                ".endr",
                // The control words that Rust relies on.
                "fninit",
                "push {clean_mxcsr}",
                "ldmxcsr [rsp]",
                "pop rax",
                "ret",
                pattern = const offset_of!(Hold<'_>, pattern),
                found = const offset_of!(Hold<'_>, found),
                last = const offset_of!(Hold<'_>, last),
                me = const offset_of!(Hold<'_>, me),
                interrupted = const offset_of!(Hold<'_>, interrupted),
                enough = const offset_of!(Hold<'_>, enough),
                fresh = const offset_of!(Hold<'_>, fresh),
                pages = const offset_of!(Hold<'_>, pages),
                switches = const offset_of!(Hold<'_>, switches),
                x87 = const offset_of!(State, x87),
                x87_control = const offset_of!(State, x87_control),
                mxcsr = const offset_of!(State, mxcsr),
                clean_mxcsr = const CLEAN_MXCSR,
            )
        }
    };
}

holder!(hold_sse, sse);
holder!(hold_avx, avx);
holder!(hold_avx512, avx512);

/// Calls `function(argument)` with the control words of `pattern`, and stores into `found` those that it came back
/// with.
///
/// # Safety
///
/// `function` computes nothing with floating-point numbers and may be called with `argument`. `pattern` masks all
/// exceptions.
pub(crate) unsafe fn call_with_control<T>(
    pattern: &State,
    found: &mut State,
    function: extern "C" fn(&T),
    argument: &T,
) {
    // SAFETY: by the contract; `around` keeps what a call has to keep.
    unsafe {
        around(
            pattern,
            found,
            function as *const (),
            std::ptr::from_ref(argument).cast(),
        );
    }
}

#[unsafe(naked)]
unsafe extern "C" fn around(
    pattern: &State,
    found: &mut State,
    function: *const (),
    argument: *const (),
) {
    naked_asm!(
        "push rbx",
        "mov rbx, rsi",
        "fldcw [rdi + {x87_control}]",
        "ldmxcsr [rdi + {mxcsr}]",
        "mov rdi, rcx",
        "call rdx",
        "fnstcw [rbx + {x87_control}]",
        "stmxcsr [rbx + {mxcsr}]",
        "fninit",
        "push {clean_mxcsr}",
        "ldmxcsr [rsp]",
        "pop rax",
        "pop rbx",
        "ret",
        x87_control = const offset_of!(State, x87_control),
        mxcsr = const offset_of!(State, mxcsr),
        clean_mxcsr = const CLEAN_MXCSR,
    )
}

/// What the first function of a thread finds.
#[cfg(target_os = "hermit")]
#[repr(C)]
pub(crate) struct FirstLook {
    /// The registers, without the x87 stack.
    pub(crate) found: State,
    /// The x87 environment, as `fnstenv` stores it.
    pub(crate) x87_environment: [u8; 28],
}

/// The function for a thread to begin with: it fills the [`FirstLook`] that it gets the address of.
#[cfg(target_os = "hermit")]
pub(crate) fn first_look(width: Width) -> extern "C" fn(usize) {
    match width {
        Width::Sse => first_look_sse,
        Width::Avx => first_look_avx,
        Width::Avx512 => first_look_avx512,
    }
}

#[cfg(target_os = "hermit")]
macro_rules! first_looker {
    ($name:ident, $kind:tt) => {
        #[unsafe(naked)]
        extern "C" fn $name(look: usize) {
            naked_asm!(
                "lea r8, [rdi + {found}]",
                "stmxcsr [r8 + {mxcsr}]",
                "fnstcw [r8 + {x87_control}]",
                "fnstenv [rdi + {x87_environment}]",
                store!($kind),
                "ret",
                found = const offset_of!(FirstLook, found),
                x87_environment = const offset_of!(FirstLook, x87_environment),
                x87_control = const offset_of!(State, x87_control),
                mxcsr = const offset_of!(State, mxcsr),
            )
        }
    };
}

#[cfg(target_os = "hermit")]
first_looker!(first_look_sse, sse);
#[cfg(target_os = "hermit")]
first_looker!(first_look_avx, avx);
#[cfg(target_os = "hermit")]
first_looker!(first_look_avx512, avx512);
