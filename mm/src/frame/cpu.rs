//! What a processor keeps for itself: its cache of frames, its reserved blocks, its counters.

use core::sync::atomic::{AtomicU32, AtomicU64 as Counter, Ordering};

use super::FrameKind;
use super::sync::AtomicU64;
use crate::ids::{CpuId, FrameId, MAX_NODES, NodeId, Order};

/// Frames that move between a processor's cache and the maps at a time.
pub(super) const BATCH: usize = 32;
/// Single frames that a processor keeps of each kind.
const SINGLES: usize = 2 * BATCH;
/// Whole blocks that move between a processor's cache and the maps at a time.
pub(super) const BLOCK_BATCH: usize = 4;
/// Whole blocks that a processor keeps: 16 MiB.
const BLOCKS: usize = 2 * BLOCK_BATCH;
const EMPTY: u64 = u64::MAX;

/// Frames freed last, to be allocated first.
///
/// Only the owner puts frames in, and only it moves `oldest` and `next`, so both are ordinary
/// variables of its own. Taking a frame out is an exchange with "empty", which anybody may do: the
/// owner when it allocates, and any other processor when memory is low. Nobody ever waits.
pub(super) struct Lifo<const CAPACITY: usize> {
    oldest: AtomicU32,
    next: AtomicU32,
    slots: [AtomicU64; CAPACITY],
}

impl<const CAPACITY: usize> Lifo<CAPACITY> {
    const fn new() -> Self {
        Self {
            oldest: AtomicU32::new(0),
            next: AtomicU32::new(0),
            slots: [const { AtomicU64::new(EMPTY) }; CAPACITY],
        }
    }

    fn slot(&self, position: u32) -> &AtomicU64 {
        &self.slots[position as usize % CAPACITY]
    }

    fn take(slot: &AtomicU64) -> Option<FrameId> {
        match slot.swap(EMPTY, Ordering::AcqRel) {
            EMPTY => None,
            frame => Some(FrameId::new(frame)),
        }
    }

    /// Owner only: the frame put in last.
    pub(super) fn pop(&self) -> Option<FrameId> {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let mut next = self.next.load(Ordering::Relaxed);
        let mut found = None;
        while next != oldest && found.is_none() {
            next = next.wrapping_sub(1);
            found = Self::take(self.slot(next));
        }
        self.next.store(next, Ordering::Relaxed);
        found
    }

    /// Owner only: puts a frame in, unless there is no room.
    pub(super) fn push(&self, frame: FrameId) -> bool {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        if next.wrapping_sub(oldest) as usize == CAPACITY {
            return false;
        }
        self.slot(next).store(frame.get(), Ordering::Release);
        self.next.store(next.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// Owner only: takes out up to half of its capacity of the frames that were put in first.
    pub(super) fn take_oldest(&self, mut taken: impl FnMut(FrameId)) {
        let mut oldest = self.oldest.load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        for _ in 0..(next.wrapping_sub(oldest) as usize).min(CAPACITY / 2) {
            if let Some(frame) = Self::take(self.slot(oldest)) {
                taken(frame);
            }
            oldest = oldest.wrapping_add(1);
        }
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    /// Anybody: takes frames out, as many as there are while they are asked for.
    pub(super) fn drain(&self) -> impl Iterator<Item = FrameId> {
        let used = self.next.load(Ordering::Relaxed) != self.oldest.load(Ordering::Relaxed);
        let slots = if used { &self.slots[..] } else { &[] };
        slots
            .iter()
            .filter(|slot| slot.load(Ordering::Relaxed) != EMPTY)
            .filter_map(Self::take)
    }

    /// Anybody: the frames it holds.
    pub(super) fn len(&self) -> usize {
        let full = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) != EMPTY;
        self.slots.iter().filter(full).count()
    }
}

/// What a block is reserved for.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// Movable single frames.
    Movable,
    /// Unmovable frames of all orders in a block.
    Unmovable,
    /// Movable runs of 2 to 256 frames.
    Runs,
}

impl Use {
    const COUNT: usize = 3;

    /// The reservation that serves a request.
    pub(super) fn of(order: Order, kind: FrameKind) -> Self {
        match kind {
            FrameKind::Unmovable => Self::Unmovable,
            FrameKind::Movable if order == Order::BASE => Self::Movable,
            FrameKind::Movable => Self::Runs,
        }
    }
}

/// The index of a reserved block in its node, or nothing.
///
/// Only the owner writes it. It is a claim that the block's entry confirms or not: whoever takes
/// the reservation away changes the entry alone.
pub(super) struct Reservation(AtomicU32);

impl Reservation {
    /// The block.
    pub(super) fn get(&self) -> Option<usize> {
        let block = self.0.load(Ordering::Relaxed);
        block.checked_sub(1).map(|block| block as usize)
    }

    /// Owner only: changes it.
    pub(super) fn set(&self, block: Option<usize>) {
        let block = block.map_or(0, |block| block as u32 + 1);
        self.0.store(block, Ordering::Relaxed);
    }
}

/// Events that a processor counts, besides allocations and frees.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// An allocation fell back to another node.
    OtherNode,
    /// An allocation failed.
    Failed,
    /// A free went to a block that another processor has reserved.
    RemoteFree,
    /// A block was reserved.
    Reserved,
    /// A reservation of another processor was taken away.
    Stolen,
    /// A frame was taken out of a cache because memory was low.
    Drained,
    /// An atomic operation failed, or got less than it wanted, because of another processor.
    Contended,
}

const EVENTS: usize = Event::Contended as usize + 1;
const ORDERS: usize = Order::GIANT.get() as usize + 1;

/// The state of one processor. Others look into it only when memory is low.
#[repr(align(128))]
pub(super) struct Cpu {
    /// The processor.
    pub(super) id: CpuId,
    /// The node it is on: the only one whose frames it caches.
    pub(super) home: NodeId,
    lifos: [Lifo<SINGLES>; 2],
    /// The first frames of whole blocks, for movable memory.
    blocks: Lifo<BLOCKS>,
    /// By node: where this processor starts to look for blocks, so that processors spread out.
    starts: [u32; MAX_NODES],
    reservations: [[Reservation; Use::COUNT]; MAX_NODES],
    allocs: [Counter; ORDERS],
    frees: [Counter; ORDERS],
    events: [Counter; EVENTS],
}

const _: () = assert!(align_of::<Cpu>() == 128 && size_of::<Cpu>().is_multiple_of(128));

/// Adds to a variable that only the caller's processor writes.
fn add(counter: &Counter, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

fn frames(by_order: &[Counter; ORDERS]) -> u64 {
    let by_order = by_order.iter().enumerate();
    by_order
        .map(|(order, count)| count.load(Ordering::Relaxed) << order)
        .sum()
}

impl Cpu {
    /// A processor with nothing in its hands.
    pub(super) fn new(id: CpuId, home: NodeId, starts: [u32; MAX_NODES]) -> Self {
        Self {
            id,
            home,
            lifos: [const { Lifo::new() }; 2],
            blocks: Lifo::new(),
            starts,
            reservations: [const { [const { Reservation(AtomicU32::new(0)) }; Use::COUNT] };
                MAX_NODES],
            allocs: [const { Counter::new(0) }; ORDERS],
            frees: [const { Counter::new(0) }; ORDERS],
            events: [const { Counter::new(0) }; EVENTS],
        }
    }

    /// The cached frames of blocks of a kind.
    pub(super) fn lifo(&self, kind: FrameKind) -> &Lifo<SINGLES> {
        &self.lifos[kind as usize]
    }

    /// The cached frames of both kinds.
    pub(super) fn lifos(&self) -> &[Lifo<SINGLES>] {
        &self.lifos
    }

    /// The cached whole blocks.
    pub(super) fn blocks(&self) -> &Lifo<BLOCKS> {
        &self.blocks
    }

    /// The block where this processor starts to look on a node.
    pub(super) fn start(&self, node: NodeId) -> usize {
        self.starts[node.index()] as usize
    }

    /// The reservation on a node for a use.
    pub(super) fn reservation(&self, node: NodeId, usage: Use) -> &Reservation {
        &self.reservations[node.index()][usage as usize]
    }

    /// The reservations on a node.
    pub(super) fn reservations(&self, node: NodeId) -> &[Reservation] {
        &self.reservations[node.index()]
    }

    /// Counts an allocation.
    pub(super) fn count_alloc(&self, order: Order) {
        add(&self.allocs[usize::from(order.get())], 1);
    }

    /// Counts a free.
    pub(super) fn count_free(&self, order: Order) {
        add(&self.frees[usize::from(order.get())], 1);
    }

    /// Counts an event.
    pub(super) fn count(&self, event: Event) {
        add(&self.events[event as usize], 1);
    }

    /// How often an event was counted.
    pub(super) fn events(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// Allocations of all orders.
    pub(super) fn allocs(&self) -> u64 {
        self.allocs.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Frames allocated by this processor.
    pub(super) fn frames_allocated(&self) -> u64 {
        frames(&self.allocs)
    }

    /// Frames freed by this processor.
    pub(super) fn frames_freed(&self) -> u64 {
        frames(&self.frees)
    }
}
