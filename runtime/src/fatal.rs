//! The end of a run: `exit`, faults that nobody handles, and panics of the kernel.
//!
//! Whatever ends the run stops the other processors first, writes one report, and leaves with a
//! status.

use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dolmen_mm::{Access, FaultError};

use crate::console::ReportConsole;
use crate::cpu::vectors::TrapFrame;
use crate::cpu::{apic, clock, halt_forever, local, machine_check};
use crate::dev::exit::exit_machine;
use crate::{mem, report, sched};

/// The status of a run that a fault, an abort or a panic ended: 128 + SIGABRT, as a shell shows it.
pub(crate) const STATUS_ABORTED: i32 = 134;
/// The status of a run that could not begin.
const STATUS_BOOT: i32 = 1;

/// Addresses below this are offsets from a null pointer.
const NULL_BYTES: u64 = 64 << 10;
/// How long the other processors have to stop, in nanoseconds.
const STOP_NANOS: u64 = 2_000_000_000;

/// The number of the processor that ends the run, plus 1; 0 while none does.
static ENDING: AtomicU32 = AtomicU32::new(0);
/// Set when the processor that ends the run has failed at it.
static FAILED: AtomicBool = AtomicBool::new(false);

/// A fault that ends the run.
pub(crate) enum Fault {
    /// A page fault that the memory manager does not resolve.
    Page {
        address: u64,
        access: Access,
        error: FaultError,
    },
    /// A page fault in the page-fault handler.
    Nested { address: u64 },
    /// A non-maskable interrupt.
    NonMaskable,
    /// A machine check, with what the processor tells about it.
    MachineCheck(Option<machine_check::Error>),
    /// Any other exception.
    Exception { name: &'static str, code: u64 },
}

/// Takes the right to end the run, or gives the number, plus 1, of the processor that has it.
fn claim_end() -> Result<(), u32> {
    let me = u32::from(local::this().cpu.get()) + 1;
    ENDING
        .compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire)
        .map(|_| ())
}

/// Takes the right to end the run; a processor that comes second stops here. One that comes again
/// has faulted on its way out, and leaves at once.
fn begin_end() {
    x86_64::instructions::interrupts::disable();
    let Err(owner) = claim_end() else { return };
    if owner != u32::from(local::this().cpu.get()) + 1 {
        stop_here();
    }
    if !FAILED.swap(true, Ordering::Relaxed) {
        let _ = writeln!(
            ReportConsole,
            "dolmen: fatal: {Whereabouts}: one more fault while the run was being ended"
        );
        leave(STATUS_ABORTED);
    }
    exit_machine(STATUS_ABORTED)
}

/// Asks the other processors to stop and waits until they have, or for two seconds: one that is
/// broken does not answer.
fn stop_others() {
    let me = local::this().cpu;
    let running = || {
        local::all().filter(move |local| {
            local.cpu != me
                && local.online.load(Ordering::Acquire)
                && !local.stopped.load(Ordering::Acquire)
        })
    };
    for local in running() {
        apic::send(local.apic_id, apic::VECTOR_STOP);
    }
    let start = clock::ticks();
    let patience = clock::ticks_from_nanos(STOP_NANOS);
    while running().next().is_some() && clock::ticks() - start < patience {
        // One that is about to stop may wait for this processor's acknowledgement first.
        mem::poll_shootdowns();
        core::hint::spin_loop();
    }
}

/// Another processor ends the run. A thread within the memory manager finishes its call first, so
/// that the counters and the accounts are those of a quiet machine.
pub(crate) fn on_stop_request() {
    if local::may_preempt() {
        stop_here();
    }
    local::request_reschedule();
}

/// Stops this processor if the run is ending. The scheduler asks before it runs a thread.
pub(crate) fn stop_if_ending() {
    if ENDING.load(Ordering::Relaxed) != 0 {
        x86_64::instructions::interrupts::disable();
        stop_here();
    }
}

fn stop_here() -> ! {
    local::this().stopped.store(true, Ordering::Release);
    loop {
        // Whoever still finishes a call of the memory manager may wait for this processor.
        mem::poll_shootdowns();
        core::hint::spin_loop();
    }
}

/// Ends the run with the status of the application.
pub(crate) fn exit(status: i32) -> ! {
    begin_end();
    stop_others();
    report::at_exit();
    leave(status)
}

fn leave(status: i32) -> ! {
    ReportConsole.record(format_args!("{{\"dolmen\":\"exit\",\"status\":{status}}}"));
    exit_machine(status)
}

/// Ends the run because the application gave up.
pub(crate) fn abort() -> ! {
    begin_end();
    stop_others();
    let mut console = ReportConsole;
    let _ = writeln!(console, "dolmen: fatal: {} aborted", Whereabouts);
    report::at_exit();
    leave(STATUS_ABORTED)
}

/// Ends the run before it has begun, with one sentence.
pub(crate) fn refuse(reason: core::fmt::Arguments<'_>) -> ! {
    x86_64::instructions::interrupts::disable();
    let mut console = ReportConsole;
    let _ = writeln!(console, "dolmen: {reason}");
    leave(STATUS_BOOT)
}

/// Ends the run because of a fault in the context of `frame`.
pub(crate) fn report(fault: Fault, frame: &TrapFrame) -> ! {
    begin_end();
    stop_others();
    let mut console = ReportConsole;
    let _ = match fault {
        Fault::Page {
            address,
            access,
            error,
        } => page_sentence(&mut console, address, access, error),
        Fault::Nested { address } => writeln!(
            console,
            "dolmen: fatal: {Whereabouts}: the kernel's page-fault handler touched the unmapped address {address:#x}",
        ),
        Fault::NonMaskable => writeln!(
            console,
            "dolmen: fatal: {Whereabouts}: non-maskable interrupt: broken hardware, a watchdog, or somebody's request",
        ),
        Fault::MachineCheck(Some(error)) => writeln!(
            console,
            "dolmen: fatal: {Whereabouts}: machine check: {error}",
        ),
        Fault::MachineCheck(None) => writeln!(
            console,
            "dolmen: fatal: {Whereabouts}: machine check without a report",
        ),
        Fault::Exception { name, code } => writeln!(
            console,
            "dolmen: fatal: {Whereabouts}: {name} (error code {code:#x})",
        ),
    };
    let _ = writeln!(
        console,
        "dolmen: instruction at {:#x}, stack pointer {:#x}",
        frame.rip, frame.rsp
    );
    if let Some((start, _)) = crate::boot::image_range() {
        let _ = writeln!(
            console,
            "dolmen: the image is loaded at {start:#x}: the instruction is at {:#x} in its file",
            frame.rip.wrapping_sub(start)
        );
    }
    report::at_exit();
    leave(STATUS_ABORTED)
}

/// Ends the run because of an exception while the processor that boots has no data of its own yet.
pub(crate) fn report_early(name: &str, address: Option<u64>, frame: &TrapFrame) -> ! {
    if !FAILED.swap(true, Ordering::Relaxed) {
        let mut console = ReportConsole;
        let _ = write!(console, "dolmen: fatal: {name} while booting");
        if let Some(address) = address {
            let _ = write!(console, " at address {address:#x}");
        }
        let _ = writeln!(
            console,
            " (error code {:#x}, instruction at {:#x})",
            frame.error, frame.rip
        );
        leave(STATUS_ABORTED);
    }
    exit_machine(STATUS_ABORTED)
}

fn page_sentence(
    console: &mut ReportConsole,
    address: u64,
    access: Access,
    error: FaultError,
) -> core::fmt::Result {
    let verb = match access {
        Access::Read => "read from",
        Access::Write => "write to",
        Access::Execute => "jump to",
    };
    write!(console, "dolmen: fatal: {Whereabouts}: ")?;
    match error {
        FaultError::Guard => {
            let owner = sched::owner_of_guard(address, sched::spawn::GUARD_BYTES);
            match owner {
                Some(owner) => writeln!(
                    console,
                    "stack overflow: {verb} {address:#x} in the guard below the {} KiB stack of thread {}",
                    owner.stack_bytes >> 10,
                    owner.id
                ),
                None => writeln!(console, "{verb} {address:#x}, which is a guard page"),
            }
        }
        FaultError::OutOfMemory => writeln!(
            console,
            "out of memory: no free frame for the {verb} {address:#x}"
        ),
        FaultError::Protection => writeln!(
            console,
            "{verb} {address:#x}, which the page's protection forbids"
        ),
        _ if address < NULL_BYTES => {
            writeln!(console, "null pointer dereference: {verb} {address:#x}")
        }
        _ => {
            let image = crate::boot::image_range();
            if image.is_some_and(|(start, end)| (start..end).contains(&address)) {
                writeln!(
                    console,
                    "{verb} {address:#x}, which the protection of the image forbids"
                )
            } else {
                writeln!(console, "{verb} {address:#x}, which is not mapped")
            }
        }
    }
}

/// Says which thread and which processor this is.
struct Whereabouts;

impl core::fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let cpu = local::this().cpu.get();
        match sched::current_for_report() {
            Some(thread) if !thread.is_idle() => write!(f, "thread {} on CPU {cpu}", thread.id),
            _ => write!(f, "the kernel on CPU {cpu}"),
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    x86_64::instructions::interrupts::disable();
    let mut console = ReportConsole;
    if !local::is_installed() {
        let _ = writeln!(
            console,
            "dolmen: fatal: the kernel panicked while booting: {info}"
        );
        leave(STATUS_ABORTED);
    }
    if claim_end().is_err() {
        // A panic of the processor that ends the run, or one that is too late to be told.
        let _ = writeln!(
            console,
            "dolmen: fatal: the kernel panicked at the end: {info}"
        );
        if local::this().stopped.load(Ordering::Relaxed) {
            halt_forever();
        }
        leave(STATUS_ABORTED);
    }
    stop_others();
    let _ = writeln!(
        console,
        "dolmen: fatal: {Whereabouts}: the kernel panicked: {info}"
    );
    leave(STATUS_ABORTED)
}
