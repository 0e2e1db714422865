//! Flushing translations: the gather, and the shootdown protocol.
//!
//! **Gather.** An operation that takes translations away does so under the locks of the page
//! tables and notes in its [`Gather`] what it took. It flushes after it has released every lock:
//! first all processors forget the translations ([`Tlb::shoot`]), then frames and page-table
//! pages go back. So between the moment when an entry is emptied and the moment when its frame is
//! free, stale translations reach a frame that still belongs to the operation (rule 6), and nobody
//! waits for an acknowledgement while others wait for a lock of his (rule 5).
//!
//! **Every online processor is asked**, whether or not its TLB can hold the translations. A processor
//! with interrupts off may look pages up and use their frames by physical address, such as for a
//! hypervisor that reads into them: they stay in place until it acknowledges.
//!
//! **Batches.** A gather that is full ([`Gather::is_full`]) is flushed before it takes more: at least
//! [`BATCH_FRAMES`] pages per round of interrupts. Its lists stand in per-processor storage, so that
//! nothing is allocated or cleared per call. The frames are not used to link lists: until the flush
//! somebody may still write to them.
//!
//! **Pending flushes balance** (a count that is never taken down again cost Linux 19 % of brk1 in 2017): the life of the gather is the life of the count. It is a
//! word of the processor's own, odd while it has a gather and larger by 2 after each flush. Two
//! gathers of one processor at a time mean that one was never finished, and a debug build panics.
//! Who is about to use addresses again waits until the gathers that were open have flushed or ended
//! ([`Tlb::wait_for_gathers`]).

#![forbid(unsafe_code)]

mod shootdown;

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::frame::{FrameAllocator, FrameKind};
use crate::ids::{CpuId, FrameId, Order, PAGE_BYTES, PageSize, VirtAddr};
use crate::machine::Machine;
use crate::manager::MemoryManager;
use crate::space::TABLE_ORDER;
use crate::stats::Counter;
use shootdown::{Inbox, Request};

/// Pages that a batch can hold before they must be flushed.
pub const BATCH_FRAMES: usize = 512;
/// Above this number of pages, a processor flushes its whole TLB: beyond, the misses that follow cost
/// less than the flushes.
pub const FULL_FLUSH_ABOVE_PAGES: u64 = 33;

/// Page-table pages that a batch can hold.
const BATCH_TABLES: usize = 64;
/// The most page-table pages that one unit adds: a table of each level below the root.
const TABLES_PER_UNIT: usize = 3;

/// What one processor has gathered.
#[repr(align(128))]
struct Batch {
    /// Odd while a gather is open.
    pending: AtomicU64,
    /// Frames to free: the first frame's number and, in the low byte, the order.
    frames: [AtomicU64; BATCH_FRAMES],
    tables: [AtomicU64; BATCH_TABLES],
}

/// A step of flushing a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// All processors forget the translations.
    Shoot,
    /// All processors leave the page-table pages that were unlinked.
    WaitForWalks,
    /// Frames and page-table pages go back.
    Free,
}

/// The order that rule 6 demands.
const STEPS: &[Step] = &[Step::Shoot, Step::WaitForWalks, Step::Free];

/// The state of flushes on all processors.
pub(crate) struct Tlb {
    /// Wrong orders, for the tests of the checks.
    #[cfg(test)]
    pub(crate) mutation: std::sync::OnceLock<&'static [Step]>,
    batches: Box<[Batch]>,
    requests: Box<[Request]>,
    inboxes: Box<[Inbox]>,
}

impl Tlb {
    pub(crate) fn new(cpus: usize) -> Self {
        let batch = || Batch {
            pending: AtomicU64::new(0),
            frames: [const { AtomicU64::new(0) }; BATCH_FRAMES],
            tables: [const { AtomicU64::new(0) }; BATCH_TABLES],
        };
        Self {
            #[cfg(test)]
            mutation: std::sync::OnceLock::new(),
            batches: (0..cpus).map(|_| batch()).collect(),
            requests: (0..cpus).map(|_| Request::new(cpus)).collect(),
            inboxes: (0..cpus).map(|_| Inbox::new()).collect(),
        }
    }

    fn steps(&self) -> &'static [Step] {
        #[cfg(test)]
        if let Some(steps) = self.mutation.get() {
            return steps;
        }
        STEPS
    }

    /// Gathers that are open.
    pub(crate) fn pending(&self) -> u64 {
        self.batches
            .iter()
            .map(|batch| batch.pending.load(Ordering::SeqCst) % 2)
            .sum()
    }

    /// Waits until whatever other processors had gathered before the call is flushed. The caller has
    /// no gather, is in no walk and holds no lock.
    pub(crate) fn wait_for_gathers(&self, cpu: CpuId, mut wait: impl FnMut()) {
        for (number, batch) in self.batches.iter().enumerate() {
            let seen = batch.pending.load(Ordering::SeqCst);
            if number == cpu.index() || seen.is_multiple_of(2) {
                continue;
            }
            while batch.pending.load(Ordering::SeqCst) == seen {
                wait();
            }
        }
    }
}

/// What an operation took away and has not flushed yet.
pub(crate) struct Gather<'a, M: Machine> {
    mm: &'a MemoryManager<M>,
    cpu: CpuId,
    batch: &'a Batch,
    frames: usize,
    tables: usize,
}

impl<'a, M: Machine> Gather<'a, M> {
    /// Begins to gather. The processor has no other gather.
    pub(crate) fn new(mm: &'a MemoryManager<M>) -> Self {
        let cpu = mm.machine.this_cpu();
        let batch = &mm.tlb.batches[cpu.index()];
        let before = batch.pending.fetch_add(1, Ordering::SeqCst);
        debug_assert!(
            before.is_multiple_of(2),
            "the pending flushes of {cpu:?} do not balance"
        );
        Self {
            mm,
            cpu,
            batch,
            frames: 0,
            tables: 0,
        }
    }

    /// Whether one more page, and the page-table pages that go with it, might not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.frames == BATCH_FRAMES || self.tables + TABLES_PER_UNIT > BATCH_TABLES
    }

    /// Notes a page that was unmapped and whose frame is to be freed.
    pub(crate) fn add_page(&mut self, page: VirtAddr, size: PageSize, frame: FrameId) {
        self.add_flush(page, size);
        let word = frame.get() << 8 | u64::from(size.order().get());
        self.batch.frames[self.frames].store(word, Ordering::Relaxed);
        self.frames += 1;
        self.mm
            .space
            .count_unmapped(self.cpu, size.order().frames() as u64);
    }

    /// Notes a page that lost rights but keeps its frame.
    pub(crate) fn add_flush(&mut self, page: VirtAddr, size: PageSize) {
        self.mm.tlb.requests[self.cpu.index()].add(page, size);
    }

    /// Notes a page-table page that was unlinked and covered `address`. Flushing any page also
    /// makes a processor forget what it remembers of page-table pages.
    pub(crate) fn add_table(&mut self, address: VirtAddr, frame: FrameId) {
        self.add_flush(address.align_down(PAGE_BYTES), PageSize::Base);
        self.batch.tables[self.tables].store(frame.get(), Ordering::Relaxed);
        self.tables += 1;
    }

    /// Makes every processor forget what was gathered, then frees the frames and page-table pages. The
    /// caller holds no lock and is in no walk.
    pub(crate) fn flush(&mut self) {
        let Self { mm, cpu, .. } = *self;
        let request = &mm.tlb.requests[cpu.index()];
        if !request.is_empty() {
            mm.count(cpu, Counter::TlbBatches, 1);
            for step in mm.tlb.steps() {
                match step {
                    Step::Shoot => mm.tlb.shoot(mm, cpu),
                    Step::WaitForWalks if self.tables == 0 => {}
                    Step::WaitForWalks => mm.space.wait_for_walks(cpu, || mm.spin()),
                    Step::Free => self.free(&mm.frames),
                }
            }
            request.clear();
            self.batch.pending.fetch_add(2, Ordering::SeqCst);
        }
    }

    fn free(&mut self, frames: &FrameAllocator) {
        for slot in &self.batch.frames[..self.frames] {
            let word = slot.load(Ordering::Relaxed);
            let order = Order::new(word as u8).unwrap_or(Order::BASE);
            frames.free(self.cpu, FrameId::new(word >> 8), order, FrameKind::Movable);
        }
        for slot in &self.batch.tables[..self.tables] {
            let frame = FrameId::new(slot.load(Ordering::Relaxed));
            frames.free(self.cpu, frame, TABLE_ORDER, FrameKind::Unmovable);
        }
        let tables = self.tables * TABLE_ORDER.frames();
        self.mm
            .space
            .count_tables(self.cpu, (tables as u64).wrapping_neg());
        self.frames = 0;
        self.tables = 0;
    }
}

impl<M: Machine> Drop for Gather<'_, M> {
    fn drop(&mut self) {
        self.flush();
        let before = self.batch.pending.fetch_add(1, Ordering::SeqCst);
        debug_assert!(
            !before.is_multiple_of(2),
            "the pending flushes of {:?} do not balance",
            self.cpu
        );
    }
}
