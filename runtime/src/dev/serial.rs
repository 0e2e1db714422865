//! The serial console.

use uart_16550::backend::PioBackend;
use uart_16550::{Config, Uart16550};

use crate::sync::SpinLock;

/// I/O port of the first serial port, where the boot information names none.
const DEFAULT_PORT: u16 = 0x3f8;

/// Bytes sent with interrupts off at a time: what the port's buffer takes at once.
const CHUNK_BYTES: usize = 16;

static PORT: SpinLock<Option<Uart16550<PioBackend>>> = SpinLock::new(None);

/// Opens the serial port at I/O address `port`. Without one, output goes nowhere.
pub(crate) fn open(port: Option<u16>) {
    // SAFETY: the boot information names the console's port, or it is where every PC has its first
    // one; nobody else drives it.
    let uart = unsafe { Uart16550::new_port(port.unwrap_or(DEFAULT_PORT)) };
    let Ok(mut uart) = uart else { return };
    if uart.init(Config::default()).is_ok() {
        *PORT.lock() = Some(uart);
    }
}

/// Sends all bytes.
pub(crate) fn write(bytes: &[u8]) {
    for chunk in bytes.chunks(CHUNK_BYTES) {
        if let Some(uart) = PORT.lock().as_mut() {
            uart.send_bytes_exact(chunk);
        }
    }
}

/// Sends all bytes even if another processor never opens the lock again.
pub(crate) fn write_for_report(bytes: &[u8]) {
    if let Some(mut port) = PORT.lock_for_report() {
        if let Some(uart) = port.as_mut() {
            uart.send_bytes_exact(bytes);
        }
        return;
    }
    for byte in bytes {
        // SAFETY: writing to the transmit register of the console; whoever holds the lock is
        // stopped or broken.
        unsafe { x86_64::instructions::port::Port::<u8>::new(DEFAULT_PORT).write(*byte) };
    }
}
