//! Where characters go: to the hypervisor's console if there is one, else to the serial port.

use super::{serial, uhyve};

/// Opens the way out; `port` is the serial port's I/O address, if the boot information has one.
pub(crate) fn open(port: Option<u16>) {
    if !uhyve::is_present() {
        serial::open(port);
    }
}

/// Sends all bytes.
pub(crate) fn write(bytes: &[u8]) {
    if uhyve::is_present() {
        uhyve::write(bytes);
    } else {
        serial::write(bytes);
    }
}

/// Sends all bytes even if another processor never opens the lock again.
pub(crate) fn write_for_report(bytes: &[u8]) {
    if uhyve::is_present() {
        uhyve::write_for_report(bytes);
    } else {
        serial::write_for_report(bytes);
    }
}
