//! The C symbols that Dolmen's kernel library supplies to applications.
//!
//! Rust's std calls part of C's `math.h` by name, and so do libraries written in C. On other
//! systems the C library answers; here this crate does, on top of the `libm` crate. The host tool
//! builds it as a static library for `x86_64-unknown-hermit`, so that floating-point arguments
//! travel in vector registers as the application expects (the kernel itself is soft-float), keeps
//! the symbols listed in `exports.txt` and hides all others.
//!
//! `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp` and `strlen` come from `compiler_builtins` in
//! the same archive: build with `-Zbuild-std=core -Zbuild-std-features=compiler-builtins-mem`.
//!
//! The math symbols are weak (as those of `compiler_builtins` are), so that an application that
//! brings its own `cos` links without a clash. Weak linkage is unstable in Rust; it is asked for
//! only on the Hermit target, which needs an unstable `-Zbuild-std` anyway. On the host the
//! functions keep mangled names: tests must not replace the host's own libm.
#![no_std]
#![cfg_attr(target_os = "hermit", feature(linkage))]

pub mod math;

/// The symbols that `compiler_builtins` (feature `mem`) contributes to the archive.
pub const MEMORY_SYMBOLS: [&str; 6] = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// A panic in here can only be a failed internal check of `libm`. An invalid instruction ends the
/// application with the kernel's report of the fault, and needs no symbol from elsewhere.
#[cfg(target_os = "hermit")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: the instruction only raises an exception, which does not return here.
    unsafe { core::arch::asm!("ud2", options(noreturn, nomem, nostack)) }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::{MEMORY_SYMBOLS, math};

    fn exported() -> Vec<&'static str> {
        include_str!("../exports.txt").lines().collect()
    }

    #[test]
    fn export_list_is_sorted_and_has_no_doubles() {
        assert!(exported().windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn export_list_names_exactly_what_is_defined() {
        let listed: BTreeSet<_> = exported().into_iter().collect();
        let defined: BTreeSet<_> = math::SYMBOLS
            .iter()
            .chain(&MEMORY_SYMBOLS)
            .copied()
            .collect();
        assert_eq!(listed, defined);
    }

    #[test]
    fn everything_std_declares_is_exported() {
        // std/src/sys/cmath.rs of 1.95 and 1.96, without the f128 functions.
        const STD: &str = "acos acosf acosh acoshf asin asinf asinh asinhf atan atan2 atan2f \
            atanf cosh coshf erf erfc erfcf erff expm1 expm1f hypot hypotf lgamma_r lgammaf_r \
            log1p log1pf sinh sinhf tan tanf tanh tanhf tgamma tgammaf";
        // What LLVM may make of core's intrinsics.
        const LLVM: &str = "cbrt cbrtf ceil ceilf copysign copysignf cos cosf exp exp10 exp10f \
            exp2 exp2f expf fabs fabsf fdim fdimf floor floorf fma fmaf fmax fmaxf fmaximum \
            fmaximum_num fmaximum_numf fmaximumf fmin fminf fminimum fminimum_num fminimum_numf \
            fminimumf fmod fmodf ldexp ldexpf log log10 log10f log2 log2f logf pow powf rint \
            rintf round roundeven roundevenf roundf sin sincos sincosf sinf sqrt sqrtf trunc \
            truncf";
        let listed: BTreeSet<_> = exported().into_iter().collect();
        for name in STD.split_whitespace().chain(LLVM.split_whitespace()) {
            assert!(listed.contains(name), "{name} is missing");
        }
    }
}
