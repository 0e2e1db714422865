//! The CMOS real-time clock, read once at boot.

use x86_64::instructions::port::Port;

const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const UPDATE_IN_PROGRESS: u8 = 0x80;
const BINARY: u8 = 0x04;
const HOURS_24: u8 = 0x02;
/// The NMI-disable bit shares the index port; NMIs stay enabled.
const INDEX_PORT: u16 = 0x70;
const DATA_PORT: u16 = 0x71;

fn register(index: u8) -> u8 {
    // SAFETY: reading CMOS registers has no side effect that matters here.
    unsafe {
        Port::<u8>::new(INDEX_PORT).write(index);
        Port::<u8>::new(DATA_PORT).read()
    }
}

/// Second, minute, hour, day, month, year.
fn raw() -> [u8; 6] {
    [0x00, 0x02, 0x04, 0x07, 0x08, 0x09].map(register)
}

/// A reading that did not change under us, or whatever was read last if the clock is broken.
fn stable() -> [u8; 6] {
    let mut last = raw();
    for _ in 0..10_000 {
        if register(STATUS_A) & UPDATE_IN_PROGRESS != 0 {
            continue;
        }
        let now = raw();
        if now == last {
            break;
        }
        last = now;
    }
    last
}

/// Seconds since 1970-01-01, 00:00:00 UTC, by the real-time clock, which is taken to run in UTC.
pub(crate) fn seconds_since_1970() -> u64 {
    let mut time = stable();
    let status = register(STATUS_B);
    let afternoon = status & HOURS_24 == 0 && time[2] & 0x80 != 0;
    time[2] &= 0x7f;
    if status & BINARY == 0 {
        for value in &mut time {
            *value = (*value >> 4) * 10 + (*value & 0x0f);
        }
    }
    if status & HOURS_24 == 0 {
        time[2] = time[2] % 12 + if afternoon { 12 } else { 0 };
    }
    let [second, minute, hour, day, month, year] = time.map(i64::from);
    let days = days_since_1970(2000 + year, month, day);
    // A broken clock shows any month and hour, but the year lies in this century.
    (days * 86_400 + hour * 3600 + minute * 60 + second).unsigned_abs()
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar (H. Hinnant, "chrono-compatible
/// low-level date algorithms", `days_from_civil`).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
