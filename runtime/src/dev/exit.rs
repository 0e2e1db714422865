//! The end of the machine.

use x86_64::instructions::port::Port;

use super::uhyve;
use crate::cpu::halt_forever;

/// I/O port of QEMU's `isa-debug-exit` device, as the host tool configures it.
const DEBUG_EXIT_PORT: u16 = 0xf4;

/// Ends the run with `status`, which uhyve passes on whole. Of QEMU's exit status the low seven bits
/// are left: QEMU exits with `status * 2 + 1`. Where there is neither, the processor stops.
pub(crate) fn exit_machine(status: i32) -> ! {
    if uhyve::is_present() {
        uhyve::exit(status);
        halt_forever();
    }
    let status = status as u32;
    // A status that would lose its only set bits still has to read as a failure.
    let code = if status != 0 && status & 0x7f == 0 {
        0x7f
    } else {
        status & 0x7f
    };
    // SAFETY: the port belongs to the exit device or to nothing.
    unsafe { Port::<u32>::new(DEBUG_EXIT_PORT).write(code) };
    halt_forever()
}
