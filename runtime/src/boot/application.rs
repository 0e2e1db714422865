//! The application's main thread.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::c_char;

use super::settings;

unsafe extern "C" {
    /// The application's entry, in std.
    fn runtime_entry(argc: i32, argv: *const *const c_char, env: *const *const c_char) -> !;
}

/// The first function of the main thread.
pub(super) extern "C" fn main_thread(_: usize) {
    let args = &settings().expect("set before there are threads").args;
    let program = core::iter::once(String::from("dolmen"));
    let (arguments, argc) = strings(program.chain(args.app_args.iter().cloned()));
    let (environment, _) = strings(
        args.env
            .iter()
            .map(|(key, value)| alloc::format!("{key}={value}")),
    );
    // SAFETY: both are arrays of C strings that end with a null pointer and live for ever.
    unsafe { runtime_entry(argc, arguments, environment) }
}

/// An array of C strings with a null pointer at its end, for ever, and their number.
fn strings(all: impl Iterator<Item = String>) -> (*const *const c_char, i32) {
    let mut pointers: Vec<*const c_char> = all
        .map(|text| {
            let text = CString::new(text).unwrap_or_default();
            text.into_raw().cast_const()
        })
        .collect();
    let count = pointers.len() as i32;
    pointers.push(core::ptr::null());
    (pointers.leak().as_ptr(), count)
}
