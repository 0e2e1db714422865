//! The one trait through which the memory manager sees hardware.

use core::sync::atomic::AtomicU64;

use crate::clear::Cleared;
use crate::ids::{CpuId, FrameId, NodeId, Order, PageSize, VirtAddr};

/// The 512 words of one frame that serves as a page-table page or as its metadata.
pub type Table = [AtomicU64; 512];

/// What the memory manager needs from a machine.
///
/// The runtime implements it for x86-64; [`sim`](crate::sim) implements it for tests, with
/// software TLBs and an adversarial delivery of interrupts.
///
/// Every call of the memory manager runs with preemption off: [`Machine::this_cpu`] cannot change
/// under it. Interrupts may be on.
pub trait Machine: Send + Sync {
    /// The processors that take part, `CpuId` 0 to `cpu_count() - 1`. Constant once the memory
    /// manager exists.
    fn cpu_count(&self) -> usize;

    /// The processor that executes the caller.
    fn this_cpu(&self) -> CpuId;

    /// The node that `cpu` belongs to.
    fn node_of_cpu(&self, cpu: CpuId) -> NodeId;

    /// Whether `cpu` takes part in shootdowns yet. A processor that does not is not interrupted; it
    /// first makes itself online, visible to all, and then flushes everything, before it touches
    /// what the memory manager maps.
    fn is_online(&self, cpu: CpuId) -> bool;

    /// The words of a frame that the caller owns as a page-table page (or its metadata).
    fn table(&self, frame: FrameId) -> &Table;

    /// Clears `2^order` frames. `touched_byte` is the offset of the faulting address from the first
    /// byte: its neighbourhood is the part that should be in the cache afterwards. Returns how the
    /// bytes were cleared, for the counters.
    fn clear(&self, frame: FrameId, order: Order, touched_byte: usize) -> Cleared;

    /// Invalidates this processor's translation of one page of `size` at `page`.
    fn flush_page(&self, page: VirtAddr, size: PageSize);

    /// Invalidates all of this processor's translations.
    fn flush_all(&self);

    /// Interrupts `cpu`, which then calls
    /// [`MemoryManager::serve_shootdowns`](crate::MemoryManager::serve_shootdowns). The call does
    /// not wait.
    fn send_shootdown(&self, cpu: CpuId);

    /// One turn of a busy wait (`pause`). The memory manager itself serves pending shootdowns in
    /// every turn of its loops, so two processors that wait for each other both go on.
    fn relax(&self);
}
