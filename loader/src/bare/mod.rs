//! What touches hardware.

mod boot;
mod console;
mod entry;
mod exceptions;
mod heap;
mod memory;
mod paging;

use core::panic::PanicInfo;

/// Ends the run with a sentence. Everything that can go wrong ends here.
fn fail(why: core::fmt::Arguments<'_>) -> ! {
    console::say(format_args!("dolmen-loader: {why}\n"));
    console::exit()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(at) => fail(format_args!("internal error: {} ({at})", info.message())),
        None => fail(format_args!("internal error: {}", info.message())),
    }
}
