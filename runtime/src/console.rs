//! The console: text for people, and records for the host tool.
//!
//! A record is a JSON text sequence (RFC 7464) within the stream: the byte 0x1e, one JSON object, a
//! line feed. Records are written only when the boot argument `report` asks for them.

use alloc::string::String;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::local;
use crate::dev::terminal;

const RECORD_SEPARATOR: u8 = 0x1e;

static RECORDS: AtomicBool = AtomicBool::new(false);
/// Whose turn it is to write. Held longer than a spin lock may be, so a waiter gives way.
static TURN: AtomicBool = AtomicBool::new(false);

/// Lets records be written.
pub(crate) fn enable_records() {
    RECORDS.store(true, Ordering::Relaxed);
}

/// The right to write to the console, one thread at a time and preemption off.
struct Turn {
    _preemption: local::PreemptionOff,
}

impl Turn {
    fn take() -> Self {
        loop {
            let preemption = local::PreemptionOff::new();
            if TURN
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return Self {
                    _preemption: preemption,
                };
            }
            drop(preemption);
            core::hint::spin_loop();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.store(false, Ordering::Release);
    }
}

/// Writes all bytes; those of one call stay together.
pub(crate) fn write(bytes: &[u8]) {
    write_all(&[bytes]);
}

/// Writes all slices; they stay together.
pub(crate) fn write_all(slices: &[&[u8]]) {
    let _turn = Turn::take();
    for bytes in slices {
        terminal::write(bytes);
    }
}

/// Writes one line of the kernel's own.
pub(crate) fn line(arguments: fmt::Arguments<'_>) {
    let mut text = String::new();
    if writeln!(text, "dolmen: {arguments}").is_ok() {
        write(text.as_bytes());
    }
}

/// Writes a record with these members, if records are asked for.
pub(crate) fn record(kind: &str, members: &str) {
    if RECORDS.load(Ordering::Relaxed) {
        write_all(&[
            &[RECORD_SEPARATOR],
            b"{\"dolmen\":\"",
            kind.as_bytes(),
            b"\",",
            members.as_bytes(),
            b"}\n",
        ]);
    }
}

/// The console of a report about the end of the run: takes no turn and no memory.
pub(crate) struct ReportConsole;

impl ReportConsole {
    /// Writes a record, if records are asked for.
    pub(crate) fn record(&mut self, arguments: fmt::Arguments<'_>) {
        if RECORDS.load(Ordering::Relaxed) {
            terminal::write_for_report(&[RECORD_SEPARATOR]);
            let _ = writeln!(self, "{arguments}");
        }
    }
}

impl Write for ReportConsole {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        terminal::write_for_report(text.as_bytes());
        Ok(())
    }
}
