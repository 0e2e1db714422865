//! The legacy interrupt controllers, which firmware leaves sending their timer to the vector of
//! double faults.

use x86_64::instructions::port::Port;

/// Masks all their interrupts: the local APICs deliver everything that is needed.
pub(crate) fn mask() {
    // SAFETY: the data ports of the two 8259 controllers; all ones masks every line.
    unsafe {
        Port::<u8>::new(0x21).write(0xff);
        Port::<u8>::new(0xa1).write(0xff);
    }
}
