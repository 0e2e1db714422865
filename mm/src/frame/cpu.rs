//! What a processor keeps for itself: its cache of frames, its reserved blocks, its counters.

use core::ops::Range;

use super::FrameKind;
use super::drains::{Drains, Taking};
use super::lifo::Lifo;
use super::sync::{AtomicU32, Counter, Ordering, order_for_fences};
use crate::ids::{CpuId, MAX_NODES, NodeId, Order};

/// Frames that move between a processor's cache and the maps at a time.
pub(super) const BATCH: usize = 32;
/// Single frames that a processor keeps of each kind.
const SINGLES: usize = 2 * BATCH;
/// Whole blocks that move between a processor's cache and the maps at a time.
pub(super) const BLOCK_BATCH: usize = 4;
/// Whole blocks that a processor keeps: 16 MiB.
const BLOCKS: usize = 2 * BLOCK_BATCH;

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

/// What a processor looks for nearby.
#[derive(Clone, Copy)]
pub(super) enum Nearby {
    /// Room for small orders.
    Room,
    /// Whole blocks.
    Whole,
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
    /// All processors had to execute a barrier before caches could be drained.
    Fenced,
    /// A block's entry was changed by another processor in the middle of a change.
    EntryContended,
    /// Frames in a block's map were taken by another processor in the middle of a search.
    MapContended,
    /// A block changed its class again while the hints were brought up to date.
    HintContended,
}

const EVENTS: usize = Event::HintContended as usize + 1;
/// Reservations on a node: one for each kind of frames.
const KINDS: usize = 2;
const ORDERS: usize = Order::GIANT.get() as usize + 1;

/// The state of one processor. Others look into it only when memory is low.
#[repr(align(128))]
pub(super) struct Cpu {
    /// The processor.
    pub(super) id: CpuId,
    /// The node it is on: the only one whose frames it caches.
    pub(super) home: NodeId,
    /// Not 0 while the processor uses its caches.
    busy: AtomicU32,
    lifos: [Lifo<SINGLES>; 2],
    /// The first frames of whole blocks, for movable memory.
    blocks: Lifo<BLOCKS>,
    /// By node: where this processor starts to look for blocks, so that processors spread out.
    starts: [u32; MAX_NODES],
    /// The groups of 64 blocks of its own node that it looks at before all others, if there are
    /// enough for everybody.
    territory: Range<u32>,
    rovers: [AtomicU32; 2],
    reservations: [[Reservation; KINDS]; MAX_NODES],
    allocs: [Counter; ORDERS],
    frees: [Counter; ORDERS],
    events: [Counter; EVENTS],
}

const _: () = assert!(align_of::<Cpu>() == 128 && size_of::<Cpu>().is_multiple_of(128));

/// Adds to a variable that only the caller's processor writes.
#[inline]
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
    pub(super) fn new(
        id: CpuId,
        home: NodeId,
        starts: [u32; MAX_NODES],
        territory: Range<u32>,
    ) -> Self {
        Self {
            id,
            home,
            busy: AtomicU32::new(0),
            lifos: [const { Lifo::new() }; 2],
            blocks: Lifo::new(),
            starts,
            rovers: [const { AtomicU32::new(0) }; 2],
            territory,
            reservations: [const { [const { Reservation(AtomicU32::new(0)) }; KINDS] }; MAX_NODES],
            allocs: [const { Counter::new(0) }; ORDERS],
            frees: [const { Counter::new(0) }; ORDERS],
            events: [const { Counter::new(0) }; EVENTS],
        }
    }

    /// Owner only: does something to its caches, in a few steps that wait for nobody.
    #[inline]
    pub(super) fn own<T>(&self, drains: &Drains, work: impl FnOnce(&Self, Taking) -> T) -> T {
        self.busy.store(1, Ordering::Relaxed);
        order_for_fences();
        let result = work(self, drains.taking());
        self.busy.store(0, Ordering::Release);
        result
    }

    /// Whether the processor uses its caches just now.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) != 0
    }

    /// The cached frames of blocks of a kind.
    #[inline]
    pub(super) fn lifo(&self, kind: FrameKind) -> &Lifo<SINGLES> {
        &self.lifos[kind as usize]
    }

    /// The cached frames of both kinds.
    pub(super) fn lifos(&self) -> &[Lifo<SINGLES>] {
        &self.lifos
    }

    /// The cached whole blocks.
    #[inline]
    pub(super) fn blocks(&self) -> &Lifo<BLOCKS> {
        &self.blocks
    }

    /// The block where this processor starts to look on a node.
    pub(super) fn start(&self, node: NodeId) -> usize {
        self.starts[node.index()] as usize
    }

    /// The first groups that it looks at for something, `count` of them at most, the one where it
    /// was lucky last before the others.
    pub(super) fn nearby(&self, what: Nearby, count: usize) -> impl Iterator<Item = usize> {
        let Range { start, end } = self.territory;
        let length = end - start;
        let rover = self.rovers[what as usize].load(Ordering::Relaxed);
        let groups = 0..length.min(count as u32);
        groups.map(move |turn| (start + (rover + turn) % length) as usize)
    }

    /// Owner only: there is something in a group of its own node. `found`: it was looked for.
    pub(super) fn note_group(&self, what: Nearby, group: usize, found: bool) {
        if self.territory.contains(&(group as u32)) {
            let rover = &self.rovers[what as usize];
            let offset = group as u32 - self.territory.start;
            if found || offset < rover.load(Ordering::Relaxed) {
                rover.store(offset, Ordering::Relaxed);
            }
        }
    }

    /// The reservation on a node for single frames of a kind, and for unmovable runs.
    pub(super) fn reservation(&self, node: NodeId, kind: FrameKind) -> &Reservation {
        &self.reservations[node.index()][kind as usize]
    }

    /// The reservations on a node.
    pub(super) fn reservations(&self, node: NodeId) -> &[Reservation] {
        &self.reservations[node.index()]
    }

    /// Counts an allocation.
    #[inline]
    pub(super) fn count_alloc(&self, order: Order) {
        add(&self.allocs[usize::from(order.get())], 1);
    }

    /// Counts a free.
    #[inline]
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
