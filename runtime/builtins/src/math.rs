//! C's `math.h`, by name.
//!
//! The functions whose C signature and `libm` signature agree are passed straight through; those
//! that return a second value through a pointer are spelled out below them. What a C caller
//! points to may be uninitialised, hence `MaybeUninit`.

use core::ffi::c_char;
use core::mem::MaybeUninit;

/// Defines C functions (on the host: plain Rust functions) and a list of their names.
macro_rules! c_functions {
    ($list:ident: $(fn $name:ident($($arg:ident: $type:ty),+) $(-> $result:ty)? $body:block)+) => {
        $(
            #[doc = concat!("C's `", stringify!($name), "`.")]
            #[cfg_attr(target_os = "hermit", linkage = "weak", unsafe(no_mangle))]
            pub extern "C" fn $name($($arg: $type),+) $(-> $result)? $body
        )+
        const $list: &[&str] = &[$(stringify!($name)),+];
    };
}

macro_rules! from_libm {
    ($list:ident: $(fn $name:ident($($arg:ident: $type:ty),+) -> $result:ty;)+) => {
        c_functions! {
            $list: $(fn $name($($arg: $type),+) -> $result { libm::$name($($arg),+) })+
        }
    };
}

/// The names of all functions of this module.
pub const SYMBOLS: [&str; PLAIN.len() + SPELLED_OUT.len()] = {
    let mut all = [""; PLAIN.len() + SPELLED_OUT.len()];
    let (plain, spelled_out) = all.split_at_mut(PLAIN.len());
    plain.copy_from_slice(PLAIN);
    spelled_out.copy_from_slice(SPELLED_OUT);
    all
};

from_libm! { PLAIN:
    fn acos(x: f64) -> f64;
    fn acosf(x: f32) -> f32;
    fn acosh(x: f64) -> f64;
    fn acoshf(x: f32) -> f32;
    fn asin(x: f64) -> f64;
    fn asinf(x: f32) -> f32;
    fn asinh(x: f64) -> f64;
    fn asinhf(x: f32) -> f32;
    fn atan(x: f64) -> f64;
    fn atan2(y: f64, x: f64) -> f64;
    fn atan2f(y: f32, x: f32) -> f32;
    fn atanf(x: f32) -> f32;
    fn atanh(x: f64) -> f64;
    fn atanhf(x: f32) -> f32;
    fn cbrt(x: f64) -> f64;
    fn cbrtf(x: f32) -> f32;
    fn ceil(x: f64) -> f64;
    fn ceilf(x: f32) -> f32;
    fn copysign(x: f64, y: f64) -> f64;
    fn copysignf(x: f32, y: f32) -> f32;
    fn cos(x: f64) -> f64;
    fn cosf(x: f32) -> f32;
    fn cosh(x: f64) -> f64;
    fn coshf(x: f32) -> f32;
    fn erf(x: f64) -> f64;
    fn erfc(x: f64) -> f64;
    fn erfcf(x: f32) -> f32;
    fn erff(x: f32) -> f32;
    fn exp(x: f64) -> f64;
    fn exp10(x: f64) -> f64;
    fn exp10f(x: f32) -> f32;
    fn exp2(x: f64) -> f64;
    fn exp2f(x: f32) -> f32;
    fn expf(x: f32) -> f32;
    fn expm1(x: f64) -> f64;
    fn expm1f(x: f32) -> f32;
    fn fabs(x: f64) -> f64;
    fn fabsf(x: f32) -> f32;
    fn fdim(x: f64, y: f64) -> f64;
    fn fdimf(x: f32, y: f32) -> f32;
    fn floor(x: f64) -> f64;
    fn floorf(x: f32) -> f32;
    fn fma(x: f64, y: f64, z: f64) -> f64;
    fn fmaf(x: f32, y: f32, z: f32) -> f32;
    fn fmax(x: f64, y: f64) -> f64;
    fn fmaxf(x: f32, y: f32) -> f32;
    fn fmaximum(x: f64, y: f64) -> f64;
    fn fmaximum_num(x: f64, y: f64) -> f64;
    fn fmaximum_numf(x: f32, y: f32) -> f32;
    fn fmaximumf(x: f32, y: f32) -> f32;
    fn fmin(x: f64, y: f64) -> f64;
    fn fminf(x: f32, y: f32) -> f32;
    fn fminimum(x: f64, y: f64) -> f64;
    fn fminimum_num(x: f64, y: f64) -> f64;
    fn fminimum_numf(x: f32, y: f32) -> f32;
    fn fminimumf(x: f32, y: f32) -> f32;
    fn fmod(x: f64, y: f64) -> f64;
    fn fmodf(x: f32, y: f32) -> f32;
    fn hypot(x: f64, y: f64) -> f64;
    fn hypotf(x: f32, y: f32) -> f32;
    fn ilogb(x: f64) -> i32;
    fn ilogbf(x: f32) -> i32;
    fn j0(x: f64) -> f64;
    fn j0f(x: f32) -> f32;
    fn j1(x: f64) -> f64;
    fn j1f(x: f32) -> f32;
    fn jn(n: i32, x: f64) -> f64;
    fn jnf(n: i32, x: f32) -> f32;
    fn ldexp(x: f64, n: i32) -> f64;
    fn ldexpf(x: f32, n: i32) -> f32;
    fn lgamma(x: f64) -> f64;
    fn lgammaf(x: f32) -> f32;
    fn log(x: f64) -> f64;
    fn log10(x: f64) -> f64;
    fn log10f(x: f32) -> f32;
    fn log1p(x: f64) -> f64;
    fn log1pf(x: f32) -> f32;
    fn log2(x: f64) -> f64;
    fn log2f(x: f32) -> f32;
    fn logf(x: f32) -> f32;
    fn nextafter(x: f64, y: f64) -> f64;
    fn nextafterf(x: f32, y: f32) -> f32;
    fn pow(x: f64, y: f64) -> f64;
    fn powf(x: f32, y: f32) -> f32;
    fn remainder(x: f64, y: f64) -> f64;
    fn remainderf(x: f32, y: f32) -> f32;
    fn rint(x: f64) -> f64;
    fn rintf(x: f32) -> f32;
    fn round(x: f64) -> f64;
    fn roundeven(x: f64) -> f64;
    fn roundevenf(x: f32) -> f32;
    fn roundf(x: f32) -> f32;
    fn scalbn(x: f64, n: i32) -> f64;
    fn scalbnf(x: f32, n: i32) -> f32;
    fn sin(x: f64) -> f64;
    fn sinf(x: f32) -> f32;
    fn sinh(x: f64) -> f64;
    fn sinhf(x: f32) -> f32;
    fn sqrt(x: f64) -> f64;
    fn sqrtf(x: f32) -> f32;
    fn tan(x: f64) -> f64;
    fn tanf(x: f32) -> f32;
    fn tanh(x: f64) -> f64;
    fn tanhf(x: f32) -> f32;
    fn tgamma(x: f64) -> f64;
    fn tgammaf(x: f32) -> f32;
    fn trunc(x: f64) -> f64;
    fn truncf(x: f32) -> f32;
    fn y0(x: f64) -> f64;
    fn y0f(x: f32) -> f32;
    fn y1(x: f64) -> f64;
    fn y1f(x: f32) -> f32;
    fn yn(n: i32, x: f64) -> f64;
    fn ynf(n: i32, x: f32) -> f32;
}

c_functions! { SPELLED_OUT:
    fn frexp(x: f64, exponent: &mut MaybeUninit<i32>) -> f64 {
        let (fraction, power) = libm::frexp(x);
        exponent.write(power);
        fraction
    }
    fn lgamma_r(x: f64, sign: &mut MaybeUninit<i32>) -> f64 {
        let (value, sign_of_gamma) = libm::lgamma_r(x);
        sign.write(sign_of_gamma);
        value
    }
    fn modf(x: f64, integer: &mut MaybeUninit<f64>) -> f64 {
        let (fraction, whole) = libm::modf(x);
        integer.write(whole);
        fraction
    }
    fn nan(_payload: *const c_char) -> f64 {
        f64::NAN
    }
    fn remquo(x: f64, y: f64, quotient: &mut MaybeUninit<i32>) -> f64 {
        let (remainder, low_bits) = libm::remquo(x, y);
        quotient.write(low_bits);
        remainder
    }
    fn sincos(x: f64, sine: &mut MaybeUninit<f64>, cosine: &mut MaybeUninit<f64>) {
        let (s, c) = libm::sincos(x);
        sine.write(s);
        cosine.write(c);
    }
    fn frexpf(x: f32, exponent: &mut MaybeUninit<i32>) -> f32 {
        let (fraction, power) = libm::frexpf(x);
        exponent.write(power);
        fraction
    }
    fn lgammaf_r(x: f32, sign: &mut MaybeUninit<i32>) -> f32 {
        let (value, sign_of_gamma) = libm::lgammaf_r(x);
        sign.write(sign_of_gamma);
        value
    }
    fn modff(x: f32, integer: &mut MaybeUninit<f32>) -> f32 {
        let (fraction, whole) = libm::modff(x);
        integer.write(whole);
        fraction
    }
    fn nanf(_payload: *const c_char) -> f32 {
        f32::NAN
    }
    fn remquof(x: f32, y: f32, quotient: &mut MaybeUninit<i32>) -> f32 {
        let (remainder, low_bits) = libm::remquof(x, y);
        quotient.write(low_bits);
        remainder
    }
    fn sincosf(x: f32, sine: &mut MaybeUninit<f32>, cosine: &mut MaybeUninit<f32>) {
        let (s, c) = libm::sincosf(x);
        sine.write(s);
        cosine.write(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second<T, R>(call: impl FnOnce(&mut MaybeUninit<T>) -> R, default: T) -> (R, T) {
        let mut place = MaybeUninit::new(default);
        let first = call(&mut place);
        // SAFETY: initialised above; the call can only have replaced the value.
        (first, unsafe { place.assume_init() })
    }

    #[test]
    fn values_behind_pointers_arrive() {
        assert_eq!(second(|e| frexp(48.0, e), 0), (0.75, 6));
        assert_eq!(second(|e| frexpf(-0.25, e), 0), (-0.5, -1));
        assert_eq!(second(|i| modf(-3.25, i), 0.0), (-0.25, -3.0));
        assert_eq!(second(|i| modff(3.25, i), 0.0), (0.25, 3.0));
        assert_eq!(second(|q| remquo(7.0, 2.0, q), 0), (-1.0, 4));
        assert_eq!(second(|q| remquof(7.0, 2.0, q), 0), (-1.0, 4));
        // Γ(−0.5) = −2√π.
        let (value, sign) = second(|s| lgamma_r(-0.5, s), 0);
        assert!((value - 1.265_512_123_484_645_4).abs() < 1e-15);
        assert_eq!(sign, -1);
        assert_eq!(second(|s| lgammaf_r(1.0, s), 0), (0.0, 1));
        let (sine, cosine) = second(|c| second(|s| sincos(0.5, s, c), 0.0).1, 0.0);
        assert_eq!((sine, cosine), (sin(0.5), cos(0.5)));
        let (sine, cosine) = second(|c| second(|s| sincosf(0.5, s, c), 0.0).1, 0.0);
        assert_eq!((sine, cosine), (sinf(0.5), cosf(0.5)));
        assert!(nan(core::ptr::null()).is_nan() && nanf(core::ptr::null()).is_nan());
    }

    #[test]
    fn order_of_arguments_is_that_of_c() {
        assert_eq!(atan2(1.0, 0.0), core::f64::consts::FRAC_PI_2);
        assert_eq!(pow(2.0, 3.0), 8.0);
        assert_eq!(fmod(7.0, 4.0), 3.0);
        assert_eq!(copysign(1.0, -2.0), -1.0);
        assert_eq!(fdim(5.0, 3.0), 2.0);
        assert_eq!(ldexp(0.75, 6), 48.0);
        assert_eq!(jn(0, 0.0), 1.0);
    }
}
