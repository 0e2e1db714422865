//! Clocks and sleep.

use hermit_abi::errno::EINVAL;
use hermit_abi::{CLOCK_MONOTONIC, CLOCK_REALTIME, timespec};

use crate::cpu::clock;
use crate::sched;

/// Nanoseconds in `time`, or `None` if it is not a time.
pub(super) fn nanos_of(time: &timespec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u64::try_from(time.tv_nsec).ok()?;
    (nanos < 1_000_000_000).then(|| seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Reads clock `id` into `time`.
///
/// # Safety
///
/// `time` is null or points to a writable time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_clock_gettime(id: i32, time: *mut timespec) -> i32 {
    // SAFETY: by the contract.
    let Some(time) = (unsafe { time.as_mut() }) else {
        return -EINVAL;
    };
    *time = match id {
        CLOCK_MONOTONIC => {
            let nanos = clock::monotonic_nanos();
            timespec {
                tv_sec: (nanos / 1_000_000_000) as i64,
                tv_nsec: (nanos % 1_000_000_000) as i32,
            }
        }
        CLOCK_REALTIME => {
            let (seconds, nanos) = clock::realtime();
            timespec {
                tv_sec: seconds,
                tv_nsec: nanos as i32,
            }
        }
        _ => return -EINVAL,
    };
    0
}

/// Sleeps for at least `micros` microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn sys_usleep(micros: u64) {
    sched::sleep(micros.saturating_mul(1000));
}

/// Sleeps for at least the time that `request` gives.
///
/// # Safety
///
/// `request` is null or points to a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sys_nanosleep(request: *const timespec) -> i32 {
    // SAFETY: by the contract.
    let Some(nanos) = (unsafe { request.as_ref() }).and_then(nanos_of) else {
        return -EINVAL;
    };
    sched::sleep(nanos);
    0
}
