//! Time: the time stamp counter, calibrated once, and the real-time clock at boot.

use core::sync::atomic::{AtomicU64, Ordering};

use raw_cpuid::CpuId;
use x86_64::instructions::port::Port;

use crate::dev::rtc;
use crate::fatal::refuse;

/// Frequency of the time stamp counter in kHz.
static FREQUENCY_KHZ: AtomicU64 = AtomicU64::new(0);
/// The counter when the kernel was entered.
static AT_ENTRY: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds since 1970 when the counter read `AT_REALTIME`: good until the year 2554.
static REALTIME: AtomicU64 = AtomicU64::new(0);
static AT_REALTIME: AtomicU64 = AtomicU64::new(0);

const PIT_HZ: u64 = 1_193_182;
/// Looks at the gate, of a microsecond each on real machines, within which 10 ms have passed.
const PIT_LOOKS: u32 = 10_000_000;
const PIT_COMMAND: u16 = 0x43;
const PIT_CHANNEL_2: u16 = 0x42;
const PIT_GATE: u16 = 0x61;

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and ring 0 may always use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Notes the start of the run.
pub(crate) fn mark_entry() {
    AT_ENTRY.store(ticks(), Ordering::Relaxed);
}

/// Finds the counter's frequency: from the boot information if it has one, else from CPUID leaf
/// 0x15, else by measuring against the PIT. `boot_time`, in nanoseconds since 1970, is the time at
/// the kernel's entry if the boot information tells it; else the real-time clock is read.
pub(crate) fn calibrate(told_khz: Option<u64>, boot_time: Option<u64>) {
    let khz = told_khz
        .filter(|&khz| khz > 0)
        .or_else(frequency_from_cpuid)
        .unwrap_or_else(measure_against_pit);
    FREQUENCY_KHZ.store(khz, Ordering::Relaxed);
    let (time, at) = match boot_time {
        Some(nanos) => (nanos, entry_ticks()),
        None => (rtc::seconds_since_1970() * 1_000_000_000, ticks()),
    };
    REALTIME.store(time, Ordering::Relaxed);
    AT_REALTIME.store(at, Ordering::Relaxed);
}

fn frequency_from_cpuid() -> Option<u64> {
    let hertz = CpuId::new().get_tsc_info()?.tsc_frequency()?;
    (hertz > 0).then_some(hertz / 1000)
}

/// Counts ticks while the PIT counts down 10 ms. Every disturbance makes the count larger, so the
/// smallest of several is the best.
fn measure_against_pit() -> u64 {
    const COUNT: u16 = 11_932;
    let mut best = u64::MAX;
    for _ in 0..5 {
        // SAFETY: channel 2 of the PIT drives the speaker and nothing else; the gate port's other
        // bits are kept but for the speaker, which is switched off.
        let elapsed = unsafe {
            let mut gate = Port::<u8>::new(PIT_GATE);
            let before = gate.read();
            gate.write((before & !0b11) | 0b01);
            Port::<u8>::new(PIT_COMMAND).write(0b1011_0000);
            let mut channel = Port::<u8>::new(PIT_CHANNEL_2);
            channel.write(COUNT as u8);
            channel.write((COUNT >> 8) as u8);
            let start = ticks();
            let mut looks = 0;
            while gate.read() & 0x20 == 0 {
                looks += 1;
                if looks == PIT_LOOKS {
                    refuse(format_args!(
                        "the time stamp counter cannot be calibrated: neither CPUID nor the boot information tells its frequency, and there is no PIT to measure it with"
                    ));
                }
            }
            let elapsed = ticks() - start;
            gate.write(before & !0b11);
            elapsed
        };
        best = best.min(elapsed);
    }
    // ticks / (COUNT / PIT_HZ) in kHz
    ((u128::from(best) * u128::from(PIT_HZ)) / (u128::from(COUNT) * 1000)) as u64
}

/// Nanoseconds that `ticks` ticks take.
pub(crate) fn nanos_from_ticks(ticks: u64) -> u64 {
    let khz = FREQUENCY_KHZ.load(Ordering::Relaxed).max(1);
    ((u128::from(ticks) * 1_000_000) / u128::from(khz)) as u64
}

/// Ticks in `nanos` nanoseconds, rounded up.
pub(crate) fn ticks_from_nanos(nanos: u64) -> u64 {
    let khz = FREQUENCY_KHZ.load(Ordering::Relaxed);
    ((u128::from(nanos) * u128::from(khz)).div_ceil(1_000_000)).min(u128::from(u64::MAX / 2)) as u64
}

/// Nanoseconds since the kernel was entered.
pub(crate) fn monotonic_nanos() -> u64 {
    nanos_from_ticks(ticks().saturating_sub(AT_ENTRY.load(Ordering::Relaxed)))
}

/// The counter at [`mark_entry`].
pub(crate) fn entry_ticks() -> u64 {
    AT_ENTRY.load(Ordering::Relaxed)
}

/// Seconds and nanoseconds since 1970.
pub(crate) fn realtime() -> (i64, u32) {
    let since = nanos_from_ticks(ticks().saturating_sub(AT_REALTIME.load(Ordering::Relaxed)));
    let nanos = REALTIME.load(Ordering::Relaxed).saturating_add(since);
    (
        (nanos / 1_000_000_000) as i64,
        (nanos % 1_000_000_000) as u32,
    )
}

/// Waits without giving the processor up. For set-up only.
pub(crate) fn spin_nanos(nanos: u64) {
    let start = ticks();
    let wait = ticks_from_nanos(nanos);
    while ticks() - start < wait {
        core::hint::spin_loop();
    }
}
