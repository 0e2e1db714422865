//! How one processor makes the others flush.
//!
//! Each processor has one [`Request`], which it alone writes and which stays as it is until every
//! target has acknowledged, and one [`Inbox`], in which others leave word that they have a request.
//!
//! * **Asking**: set one's own bit in the target's inbox, raise `asked` and keep the result as the
//!   ticket, then interrupt the target unless an interrupt is on its way already. Work is thereby
//!   added to an interrupt that is outstanding: there is at most one per target.
//! * **Serving**: read `asked`, take all bits, flush what their owners' requests say, and only then
//!   write what `asked` was to `served`. A ticket up to `served` is acknowledged: its bit was set
//!   before its ticket was drawn. An acknowledgement is one store of the target to its own line.
//! * Serving may interrupt serving (a poll with interrupts on). The inner one returns at once; the
//!   outer one looks again before it leaves. So nothing here waits, and nothing takes a lock.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::{FULL_FLUSH_ABOVE_PAGES, Tlb};
use crate::ids::{CpuId, MAX_CPUS, PAGE_BYTES, PageSize, VirtAddr};
use crate::machine::Machine;
use crate::manager::MemoryManager;
use crate::stats::{Counter, LockClass};

const RANGES: usize = 16;
const COUNT_BITS: u64 = 0x3ff;
const SIZE_SHIFT: u32 = 10;
const MAP_WORDS: usize = MAX_CPUS / 64;

// A range and its number of pages fit in one word beside the address of a page.
const _: () = assert!(FULL_FLUSH_ABOVE_PAGES < COUNT_BITS && PAGE_BYTES == 1 << 12);

/// What one processor wants the others to flush. Written by its owner while nobody reads it.
#[repr(align(128))]
pub(super) struct Request {
    /// Pages in all ranges.
    pages: AtomicU64,
    /// Ranges that are listed; more than [`RANGES`] means that not all of them are.
    used: AtomicU64,
    /// The first page's address, the size in bits 10 and 11, the number of pages below.
    ranges: [AtomicU64; RANGES],
    /// Tickets of the targets that have not acknowledged; 0 is none.
    tickets: Box<[AtomicU64]>,
}

impl Request {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            pages: AtomicU64::new(0),
            used: AtomicU64::new(0),
            ranges: [const { AtomicU64::new(0) }; RANGES],
            tickets: (0..cpus).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn clear(&self) {
        self.pages.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.load(Ordering::Relaxed) == 0
    }

    fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Whether the list is too long, or not complete.
    fn wants_full_flush(&self) -> bool {
        self.pages() > FULL_FLUSH_ABOVE_PAGES || self.used.load(Ordering::Relaxed) > RANGES as u64
    }

    /// Adds one page, to the last range if it follows on it.
    pub(super) fn add(&self, page: VirtAddr, size: PageSize) {
        let pages = self.pages() + 1;
        self.pages.store(pages, Ordering::Relaxed);
        if self.wants_full_flush() {
            return;
        }
        let used = self.used.load(Ordering::Relaxed) as usize;
        if let Some(last) = used.checked_sub(1) {
            let word = self.ranges[last].load(Ordering::Relaxed);
            let (start, last_size, count) = unpack(word);
            if last_size == size && start.0 + count * size.bytes() as u64 == page.0 {
                self.ranges[last].store(word + 1, Ordering::Relaxed);
                return;
            }
        }
        if let Some(range) = self.ranges.get(used) {
            range.store(pack(page, size, 1), Ordering::Relaxed);
        }
        self.used.store(used as u64 + 1, Ordering::Relaxed);
    }

    fn flush<M: Machine>(&self, machine: &M) {
        let used = self.used.load(Ordering::Relaxed) as usize;
        for range in &self.ranges[..used] {
            let (start, size, count) = unpack(range.load(Ordering::Relaxed));
            for page in 0..count {
                machine.flush_page(VirtAddr(start.0 + page * size.bytes() as u64), size);
            }
        }
    }
}

fn pack(start: VirtAddr, size: PageSize, count: u64) -> u64 {
    let size = match size {
        PageSize::Base => 0,
        PageSize::Huge => 1,
        PageSize::Giant => 2,
    };
    start.0 | size << SIZE_SHIFT | count
}

fn unpack(word: u64) -> (VirtAddr, PageSize, u64) {
    let size = match word >> SIZE_SHIFT & 0b11 {
        0 => PageSize::Base,
        1 => PageSize::Huge,
        _ => PageSize::Giant,
    };
    (
        VirtAddr(word).align_down(PAGE_BYTES),
        size,
        word & COUNT_BITS,
    )
}

/// Where others leave word for one processor.
#[repr(align(128))]
pub(super) struct Inbox {
    /// The processors whose requests are to be served.
    from: [AtomicU64; MAP_WORDS],
    /// Tickets drawn.
    asked: AtomicU64,
    /// An interrupt is on its way.
    interrupt: AtomicBool,
    own: Served,
}

/// The part of an inbox that its owner writes and others only read.
#[repr(align(128))]
struct Served {
    /// Tickets acknowledged.
    served: AtomicU64,
    /// The owner is in the middle of serving.
    serving: AtomicBool,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            from: [const { AtomicU64::new(0) }; MAP_WORDS],
            asked: AtomicU64::new(0),
            interrupt: AtomicBool::new(false),
            own: Served {
                served: AtomicU64::new(0),
                serving: AtomicBool::new(false),
            },
        }
    }

    /// Leaves word from `cpu`, or from nobody that wants anything but the acknowledgement. Returns
    /// the ticket, and whether an interrupt is needed.
    fn ask(&self, cpu: Option<CpuId>) -> (u64, bool) {
        if let Some(cpu) = cpu {
            let bit = 1 << (cpu.index() % 64);
            self.from[cpu.index() / 64].fetch_or(bit, Ordering::SeqCst);
        }
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        (ticket, !self.interrupt.swap(true, Ordering::SeqCst))
    }
}

impl Tlb {
    /// Makes all processors flush what the request of `cpu`, which executes the caller, lists.
    /// Returns when they have.
    pub(super) fn shoot<M: Machine>(&self, mm: &MemoryManager<M>, cpu: CpuId) {
        let request = &self.requests[cpu.index()];
        // A processor that is seen offline below will find the entries already changed.
        fence(Ordering::SeqCst);
        for (number, inbox) in self.inboxes.iter().enumerate() {
            let target = CpuId::new(number as u16);
            let mut ticket = 0;
            if target != cpu && mm.machine.is_online(target) {
                let interrupt;
                (ticket, interrupt) = inbox.ask(Some(cpu));
                mm.count(cpu, Counter::TlbRemoteFlushPages, request.pages());
                if interrupt {
                    mm.count(cpu, Counter::TlbRemoteFlush, 1);
                    mm.machine.send_shootdown(target);
                }
            }
            request.tickets[number].store(ticket, Ordering::Relaxed);
        }
        if request.wants_full_flush() {
            self.flush_all(mm, cpu);
        } else {
            self.flush_ranges(mm, cpu, request);
        }
        self.wait_for_tickets(mm, request);
    }

    /// Makes all other processors execute a barrier: what they had stored before it is visible to
    /// `cpu`, which executes the caller, and what they load after it is not older than this call.
    pub(crate) fn fence_others<M: Machine>(&self, mm: &MemoryManager<M>, cpu: CpuId) {
        let request = &self.requests[cpu.index()];
        fence(Ordering::SeqCst);
        for (number, inbox) in self.inboxes.iter().enumerate() {
            let target = CpuId::new(number as u16);
            let mut ticket = 0;
            if target != cpu && mm.machine.is_online(target) {
                let interrupt;
                (ticket, interrupt) = inbox.ask(None);
                if interrupt {
                    mm.machine.send_shootdown(target);
                }
            }
            request.tickets[number].store(ticket, Ordering::Relaxed);
        }
        self.wait_for_tickets(mm, request);
    }

    fn wait_for_tickets<M: Machine>(&self, mm: &MemoryManager<M>, request: &Request) {
        for (inbox, ticket) in self.inboxes.iter().zip(&request.tickets) {
            let ticket = ticket.load(Ordering::Relaxed);
            while inbox.own.served.load(Ordering::SeqCst) < ticket {
                mm.spin();
            }
        }
    }

    /// Serves what others ask of `cpu`, which executes the caller. `interrupted` says that this is
    /// the interrupt they sent.
    pub(crate) fn serve<M: Machine>(&self, mm: &MemoryManager<M>, cpu: CpuId, interrupted: bool) {
        let inbox = &self.inboxes[cpu.index()];
        if interrupted {
            inbox.interrupt.swap(false, Ordering::SeqCst);
        }
        let own = &inbox.own;
        let idle = || own.served.load(Ordering::Relaxed) == inbox.asked.load(Ordering::SeqCst);
        while !idle() {
            if own.serving.swap(true, Ordering::SeqCst) {
                // Whoever was interrupted in the middle looks again before he leaves.
                mm.count(cpu, Counter::LockWait(LockClass::Shootdown), 1);
                return;
            }
            while !idle() {
                let asked = inbox.asked.load(Ordering::SeqCst);
                self.serve_requests(mm, cpu, inbox);
                own.served.store(asked, Ordering::SeqCst);
            }
            own.serving.store(false, Ordering::SeqCst);
        }
    }

    fn serve_requests<M: Machine>(&self, mm: &MemoryManager<M>, cpu: CpuId, inbox: &Inbox) {
        let mut from = [0; MAP_WORDS];
        for (taken, word) in from.iter_mut().zip(&inbox.from) {
            if word.load(Ordering::Relaxed) != 0 {
                *taken = word.swap(0, Ordering::SeqCst);
            }
        }
        let askers = || {
            self.requests
                .iter()
                .enumerate()
                .filter(|(number, _)| from[number / 64] >> (number % 64) & 1 == 1)
                .map(|(_, request)| request)
        };
        let requests = askers().count() as u64;
        mm.count(cpu, Counter::TlbRemoteFlushReceived, requests);
        let pages: u64 = askers().map(Request::pages).sum();
        if pages > FULL_FLUSH_ABOVE_PAGES || askers().any(Request::wants_full_flush) {
            self.flush_all(mm, cpu);
        } else {
            askers().for_each(|request| self.flush_ranges(mm, cpu, request));
        }
    }

    fn flush_all<M: Machine>(&self, mm: &MemoryManager<M>, cpu: CpuId) {
        mm.count(cpu, Counter::TlbLocalFlushAll, 1);
        mm.machine.flush_all();
    }

    fn flush_ranges<M: Machine>(&self, mm: &MemoryManager<M>, cpu: CpuId, request: &Request) {
        mm.count(cpu, Counter::TlbLocalFlushOne, request.pages());
        request.flush(&mm.machine);
    }
}
