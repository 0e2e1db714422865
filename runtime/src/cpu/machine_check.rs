//! Machine checks: what the processor tells of hardware that has failed.
//!
//! Each bank of registers reports errors of one part of the machine. Those that cannot be corrected
//! raise an exception, which ends the run: whatever the failed part has touched is not to be trusted.

use core::fmt;

use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::model_specific::Msr;

use crate::console;
use crate::cpu::features::Features;
use crate::cpu::local;

const MSR_CAPABILITIES: u32 = 0x179;
const MSR_CONTROL: u32 = 0x17b;
/// First register of bank 0; each bank has four.
const MSR_BANKS: u32 = 0x400;
const CONTROL: u32 = 0;
const STATUS: u32 = 1;
const ADDRESS: u32 = 2;

const CAPABILITIES_BANKS: u64 = 0xff;
const CAPABILITIES_CONTROL: u64 = 1 << 8;

const STATUS_VALID: u64 = 1 << 63;
const STATUS_UNCORRECTED: u64 = 1 << 61;
const STATUS_ADDRESS_VALID: u64 = 1 << 58;
const STATUS_CONTEXT_CORRUPT: u64 = 1 << 57;

/// An error that a bank holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Error {
    bank: u32,
    status: u64,
    /// Physical in most cases; the status says of what kind.
    address: Option<u64>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bank {} reports status {:#x}", self.bank, self.status)?;
        match self.address {
            Some(address) => write!(f, " at address {address:#x}"),
            None => Ok(()),
        }
    }
}

/// Lets the executing processor report all errors that it can tell. Its exceptions are set up.
pub(crate) fn enable(features: &Features) {
    if !features.machine_check {
        return;
    }
    if let Some(error) = reported() {
        let cpu = local::this().cpu.get();
        console::line(format_args!(
            "CPU {cpu} had a machine check before this boot: {error}"
        ));
    }
    // SAFETY: the processor has these registers, as CPUID and the capabilities say. All ones in a
    // control register enable what there is; zero in a status register clears it.
    unsafe {
        let capabilities = Msr::new(MSR_CAPABILITIES).read();
        if capabilities & CAPABILITIES_CONTROL != 0 {
            Msr::new(MSR_CONTROL).write(u64::MAX);
        }
        for bank in 0..banks() {
            // The control register of bank 0 is the firmware's on Intel's processors before Nehalem.
            if bank > 0 || !features.firmware_owns_bank_0 {
                register(bank, CONTROL).write(u64::MAX);
            }
            register(bank, STATUS).write(0);
        }
        Cr4::update(|cr4| cr4.insert(Cr4Flags::MACHINE_CHECK_EXCEPTION));
    }
}

/// The worst error that the executing processor's banks hold; `None` also where there are no banks.
pub(crate) fn reported() -> Option<Error> {
    (0..banks())
        .filter_map(error_of)
        .max_by_key(|error| error.status & (STATUS_UNCORRECTED | STATUS_CONTEXT_CORRUPT))
}

fn error_of(bank: u32) -> Option<Error> {
    // SAFETY: there is such a bank; a status with a valid address has an address register.
    unsafe {
        let status = register(bank, STATUS).read();
        let address = (status & STATUS_ADDRESS_VALID != 0).then(|| register(bank, ADDRESS).read());
        (status & STATUS_VALID != 0).then_some(Error {
            bank,
            status,
            address,
        })
    }
}

/// How many banks the executing processor has.
fn banks() -> u32 {
    if !Features::detect().machine_check {
        return 0;
    }
    // SAFETY: CPUID says that the register is there.
    let capabilities = unsafe { Msr::new(MSR_CAPABILITIES).read() };
    (capabilities & CAPABILITIES_BANKS) as u32
}

fn register(bank: u32, which: u32) -> Msr {
    Msr::new(MSR_BANKS + 4 * bank + which)
}
