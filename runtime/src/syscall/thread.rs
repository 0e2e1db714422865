//! Threads, futexes, and the end of the run.

use dolmen_mm::ids::CpuId;
use hermit_abi::errno::{EAGAIN, EINVAL, ETIMEDOUT};
use hermit_abi::{FUTEX_RELATIVE_TIMEOUT, timespec};

use super::time::nanos_of;
use super::{buffer_of, negative};
use crate::cpu::{clock, local};
use crate::sched::futex::{self, Outcome};
use crate::sched::spawn::spawn;
use crate::sched::thread::{Entry, Tid};
use crate::{entropy, fatal, sched};

/// Stack size where a call does not name one, in bytes: what std asks for.
const DEFAULT_STACK_BYTES: usize = 1 << 20;

/// Starts a thread that calls `function(argument)`; returns its number, or 0 when memory is short
/// or there is no such core. Core −1 lets the scheduler choose.
#[unsafe(no_mangle)]
pub extern "C" fn sys_spawn2(
    function: extern "C" fn(usize),
    argument: usize,
    _priority: u8,
    stack_bytes: usize,
    core: isize,
) -> Tid {
    let core = match core {
        -1 => None,
        core => match u16::try_from(core) {
            Ok(core) if usize::from(core) < local::count() => Some(CpuId::new(core)),
            _ => return 0,
        },
    };
    spawn(Entry { function, argument }, stack_bytes, core).unwrap_or(0)
}

/// As [`sys_spawn2`], with a stack of 1 MiB; stores the number in `id` if that is not null.
///
/// # Safety
///
/// `id` is null or points to a writable word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_spawn(
    id: *mut Tid,
    function: extern "C" fn(usize),
    argument: usize,
    priority: u8,
    core: isize,
) -> i32 {
    let tid = sys_spawn2(function, argument, priority, DEFAULT_STACK_BYTES, core);
    if tid == 0 {
        return -EAGAIN;
    }
    // SAFETY: by the contract.
    if let Some(id) = unsafe { id.as_mut() } {
        *id = tid;
    }
    0
}

/// Waits until thread `id` has ended.
#[unsafe(no_mangle)]
pub extern "C" fn sys_join(id: Tid) -> i32 {
    sched::join(id);
    0
}

/// Lets another thread run, if one waits for this processor.
#[unsafe(no_mangle)]
pub extern "C" fn sys_yield() {
    sched::yield_now();
}

/// Processors that threads can run on.
#[unsafe(no_mangle)]
pub extern "C" fn sys_available_parallelism() -> usize {
    local::count()
}

/// As [`sys_available_parallelism`].
#[unsafe(no_mangle)]
pub extern "C" fn sys_get_processor_count() -> usize {
    local::count()
}

/// The number of the one process.
#[unsafe(no_mangle)]
pub extern "C" fn sys_getpid() -> i32 {
    1
}

/// Waits while the word at `address` reads `expected`, until woken or timed out. A time-out is
/// relative with [`FUTEX_RELATIVE_TIMEOUT`], otherwise a reading of the monotonic clock.
///
/// # Safety
///
/// `address` points to a live word, `timeout` is null or points to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_futex_wait(
    address: *mut u32,
    expected: u32,
    timeout: *const timespec,
    flags: u32,
) -> i32 {
    if address.is_null() || flags & !FUTEX_RELATIVE_TIMEOUT != 0 {
        return -EINVAL;
    }
    // SAFETY: by the contract.
    let deadline = match unsafe { timeout.as_ref() } {
        None => None,
        Some(timeout) => {
            let Some(nanos) = nanos_of(timeout) else {
                return -EINVAL;
            };
            let start = if flags & FUTEX_RELATIVE_TIMEOUT != 0 {
                clock::ticks()
            } else {
                clock::entry_ticks()
            };
            Some(start.saturating_add(clock::ticks_from_nanos(nanos)))
        }
    };
    match futex::wait(address.expose_provenance() as u64, expected, deadline) {
        Outcome::Woken => 0,
        Outcome::Changed => -EAGAIN,
        Outcome::TimedOut => -ETIMEDOUT,
    }
}

/// Wakes at most `count` threads that wait on the word at `address`; returns how many.
#[unsafe(no_mangle)]
pub extern "C" fn sys_futex_wake(address: *mut u32, count: i32) -> i32 {
    if address.is_null() {
        return -EINVAL;
    }
    futex::wake(address.addr() as u64, count)
}

/// Ends the run with `status`.
#[unsafe(no_mangle)]
pub extern "C" fn sys_exit(status: i32) -> ! {
    fatal::exit(status)
}

/// Ends the run as a failure.
#[unsafe(no_mangle)]
pub extern "C" fn sys_abort() -> ! {
    fatal::abort()
}

/// All threads have the same priority, Hermit's normal one.
#[unsafe(no_mangle)]
pub extern "C" fn sys_get_priority() -> u8 {
    2
}

/// Priorities are accepted and not distinguished.
#[unsafe(no_mangle)]
pub extern "C" fn sys_set_priority(_id: Tid, _priority: u8) {}

/// Errors are returned, not stored: there is none to read.
#[unsafe(no_mangle)]
pub extern "C" fn sys_get_errno() -> i32 {
    0
}

/// As [`sys_get_errno`].
#[unsafe(no_mangle)]
pub extern "C" fn sys_errno() -> i32 {
    0
}

/// Fills the buffer with random bytes; returns how many, which is all of them.
///
/// # Safety
///
/// `buffer` points to `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_read_entropy(buffer: *mut u8, bytes: usize, _flags: u32) -> isize {
    // SAFETY: by the contract.
    match unsafe { buffer_of(buffer, bytes) } {
        Ok(buffer) => {
            entropy::fill(buffer);
            bytes as isize
        }
        Err(errno) => negative(errno),
    }
}
