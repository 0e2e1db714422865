//! Memory of the application for those who work with physical addresses.

use dolmen_fs::Errno;
use dolmen_fs::runs::{self, Attempt, Direction, Run, Translation};
use dolmen_mm::ids::{PAGE_BYTES, VirtAddr, VirtRange};
use dolmen_mm::{FaultError, Prot};

use super::{ARENA, Manager, direct};
use crate::cpu::InterruptsOff;

/// Hands the `bytes` bytes at `start`, any memory of the application or the kernel, to `hand_over`,
/// piece by piece: each is physically contiguous and no longer than 1 MiB. `hand_over` returns how
/// many bytes went over; less than the piece, or an error, ends the transfer. Returns how many
/// went over in all. Memory that does not allow the access, or is not there, is −EFAULT; an error
/// counts only where nothing went over before it.
///
/// **The frames of a piece stay its frames while `hand_over` runs.** It is called with interrupts off,
/// and they have been off since the piece was looked up. Who unmaps a page gives its frame back
/// only when every processor has acknowledged that it flushed, and who takes rights away returns
/// only then; this processor acknowledges when its interrupts are on again. So what is unmapped
/// meanwhile is not yet anybody else's. That holds because a shootdown asks *every* processor that
/// is online: one that left out processors which cannot have the translation in their TLBs would
/// leave out this one.
///
/// `hand_over` must not touch pageable memory or wait for another processor.
pub(crate) fn transfer(
    start: *const u8,
    bytes: usize,
    direction: Direction,
    mut hand_over: impl FnMut(Run) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let attempt = |at, left| {
        let _interrupts = InterruptsOff::new();
        let run = super::enter(|manager| {
            runs::first_run(at, left, direction, |address| translate(manager, address))
        });
        match run {
            Ok(run) => Attempt::Tried {
                tried: run.bytes,
                done: hand_over(run),
            },
            Err(no_run) => Attempt::NoRun(no_run),
        }
    };
    runs::transfer(start.expose_provenance() as u64, bytes, attempt, populate)
}

/// Where an address leads now.
fn translate(manager: &Manager, address: u64) -> Option<Translation> {
    if !ARENA.contains(VirtAddr(address)) {
        return direct::translate(address);
    }
    let mapping = manager.lookup(VirtAddr(address))?;
    let Prot { read, write, .. } = mapping.prot.effective();
    let bytes = mapping.size.bytes();
    let offset = address % bytes as u64;
    Some(Translation {
        physical: mapping.frame.address().0 + offset,
        bytes: bytes - offset as usize,
        readable: read,
        writable: write,
    })
}

/// Maps the missing pages of a range as if this processor had read them; what they hold otherwise
/// stays.
fn populate(start: u64, bytes: usize) -> Result<(), Errno> {
    let first = VirtAddr(start).align_down(PAGE_BYTES);
    let range = VirtRange::new(first, bytes + (start - first.0) as usize);
    super::enter(|manager| manager.populate(range)).map_err(|error| match error {
        FaultError::OutOfMemory => Errno::NOMEM,
        FaultError::Unmapped | FaultError::Protection | FaultError::Guard => Errno::FAULT,
    })
}
