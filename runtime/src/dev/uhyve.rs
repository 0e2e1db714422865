//! The hypervisor uhyve, as its guest sees it: calls by I/O port, and the console they offer.
//!
//! A call's parameters are handed over by physical address. What lies in the image has the same
//! physical and virtual address, and it is contiguous.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use uhyve_interface::GuestPhysAddr;
use uhyve_interface::v2::HypercallAddress;
use uhyve_interface::v2::parameters::SerialWriteBufferParams;

use crate::sync::SpinLock;

/// Bytes of output that one call hands over.
const BUFFER_BYTES: usize = 4096;

static PRESENT: AtomicBool = AtomicBool::new(false);

/// Output on its way, in the image.
struct Buffer {
    bytes: [u8; BUFFER_BYTES],
    parameters: SerialWriteBufferParams,
}

impl Buffer {
    const fn new() -> Self {
        Self {
            bytes: [0; BUFFER_BYTES],
            parameters: SerialWriteBufferParams {
                len: 0,
                buf: GuestPhysAddr::zero(),
            },
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(BUFFER_BYTES) {
            self.bytes[..chunk.len()].copy_from_slice(chunk);
            self.parameters = SerialWriteBufferParams {
                len: chunk.len() as u64,
                buf: GuestPhysAddr::new(self.bytes.as_ptr().addr() as u64),
            };
            let parameters = (&raw const self.parameters).addr() as u64;
            // SAFETY: buffers are statics, so both addresses are physical ones, and the call only
            // reads what they hold.
            unsafe { hypercall(HypercallAddress::SerialWriteBuffer, parameters) };
        }
    }
}

static OUTPUT: SpinLock<Buffer> = SpinLock::new(Buffer::new());

/// Notes that uhyve started the machine.
pub(crate) fn announce() {
    PRESENT.store(true, Ordering::Relaxed);
}

/// Whether the machine is one of uhyve's.
pub(crate) fn is_present() -> bool {
    PRESENT.load(Ordering::Relaxed)
}

/// Calls the hypervisor.
///
/// # Safety
///
/// The machine is uhyve's. `argument` is what the call at `address` takes: a number, or the
/// physical address of its parameters, which are valid, as is all that they point to, for what the
/// call reads and writes.
pub(crate) unsafe fn hypercall(address: HypercallAddress, argument: u64) {
    // SAFETY: by the contract. The compiler takes all memory to be read and written.
    unsafe {
        asm!(
            "out dx, eax",
            in("dx") address as u16,
            in("eax") argument as u32,
            in("rdi") argument,
            options(nostack, preserves_flags),
        );
    }
}

/// Writes to the console of the host's process.
pub(crate) fn write(bytes: &[u8]) {
    OUTPUT.lock().send(bytes);
}

/// As [`write`], even if another processor never opens the lock again.
pub(crate) fn write_for_report(bytes: &[u8]) {
    if let Some(mut buffer) = OUTPUT.lock_for_report() {
        buffer.send(bytes);
        return;
    }
    for &byte in bytes {
        // SAFETY: the call takes a number.
        unsafe { hypercall(HypercallAddress::SerialWriteByte, u64::from(byte)) };
    }
}

/// Ends the machine; uhyve's process exits with `status`.
pub(crate) fn exit(status: i32) {
    // SAFETY: the call takes a number.
    unsafe { hypercall(HypercallAddress::Exit, u64::from(status as u32)) };
}
