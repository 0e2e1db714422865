//! The processor: descriptors, interrupts, local APIC, vector state, time stamp counter.

pub(crate) mod apic;
pub(crate) mod clock;
pub(crate) mod features;
pub(crate) mod fpu;
pub(crate) mod gdt;
pub(crate) mod interrupts;
pub(crate) mod local;
pub(crate) mod machine_check;
pub(crate) mod switch;
pub(crate) mod thread_pointer;
pub(crate) mod vectors;

use x86_64::instructions::interrupts as flags;

/// Interrupts off while it lives; what they were before comes back when it is dropped.
pub(crate) struct InterruptsOff {
    were_on: bool,
}

impl InterruptsOff {
    /// Turns interrupts off on this processor.
    pub(crate) fn new() -> Self {
        let were_on = flags::are_enabled();
        flags::disable();
        Self { were_on }
    }
}

impl Drop for InterruptsOff {
    fn drop(&mut self) {
        if self.were_on {
            flags::enable();
        }
    }
}

/// Stops this processor for good.
pub(crate) fn halt_forever() -> ! {
    loop {
        flags::disable();
        x86_64::instructions::hlt();
    }
}
