//! The serial port, and the way out.

use core::arch::asm;
use core::fmt::{Arguments, Write};

use uart_16550::{Config, Uart16550Tty};

/// The first serial port.
pub(super) const PORT: u16 = 0x3f8;
/// QEMU's device `isa-debug-exit`. Elsewhere nobody listens there.
const EXIT_PORT: u16 = 0xf4;

/// Writes to the serial port.
pub(super) fn say(text: Arguments<'_>) {
    // SAFETY: The first serial port has this address on every PC, and nothing else uses it while
    // the loader runs on one processor.
    let port = unsafe { Uart16550Tty::new_port(PORT, Config::default()) };
    if let Ok(mut port) = port {
        // Nobody is left to tell if this fails.
        let _ = port.write_fmt(text);
    }
}

/// Ends the run, unsuccessfully.
pub(super) fn exit() -> ! {
    // SAFETY: The port ends the emulated machine or does nothing. Halting with interrupts off
    // touches no memory.
    unsafe {
        asm!("out dx, eax", in("dx") EXIT_PORT, in("eax") 1, options(nomem, nostack));
        loop {
            asm!("cli", "hlt", options(nomem, nostack));
        }
    }
}
