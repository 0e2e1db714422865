//! The frame allocator.
//!
//! **Model.** RAM is managed in blocks of 2 MiB, each on one NUMA node, each with a map of its 512
//! frames and a count of those that may be taken ([`block`] has the protocol between the two).
//! Nothing is ever merged: a block whose count reads 512 is a huge page again.
//!
//! * A processor *reserves* a block for single frames of a kind and takes them there, a batch at a
//!   time, with two uncontended atomic operations per batch. They go into a small LIFO, from which
//!   an allocation takes one with one exchange and to which a free gives one back with a store, so
//!   the frame freed last is the next to be used. Only frames of the processor's own node are
//!   cached; frames of other nodes are taken and given back one by one.
//! * Orders 1 to 8 are aligned runs inside a block, order 9 is a whole block taken and given back by
//!   one compare-exchange each, orders 10 to 18 are aligned runs of whole blocks. Movable whole
//!   blocks of the processor's own node go through a LIFO, too.
//! * Each block has a bound on its longest free run, and blocks are found by it ([`hints`]): the
//!   shortest that will do comes first, and whole blocks stay for huge pages ([`search`] has the
//!   order). No search is linear in memory.
//! * A free that does not go into the LIFO is one atomic operation on the map and one on the
//!   count, whoever has reserved the block; a third where the block's longest run has grown.
//! * When a node has no block left, reservations of all processors are taken away and their caches
//!   drained. So an allocation fails only if no such run exists on any node within reach. (What
//!   others hold between two steps of theirs counts as allocated.)
//!
//! No operation waits for another processor: everything is a compare-exchange that somebody wins,
//! or cannot fail. Processors that take and give back memory of their own share no line that is
//! written. Metadata is 128 bytes per block and 256 per 64 blocks, 0.007 % of memory.
//!
//! **Contract.** `cpu` is the processor that executes the caller, and preemption is off: at most
//! one call per processor is under way. Interrupt handlers do not allocate or free, except the
//! page-fault handler, which never interrupts this module. A run may be given back in parts, or
//! parts that make up an aligned run as one. RAM that was not in the list given to
//! [`FrameAllocator::new`] (what was used at boot, reserved ranges, holes) is never handed out.
//! Freeing a frame that is free already, or that was never managed, panics (with
//! [`FrameAllocator::with_debug`] every such case is noticed at once, otherwise most of them).

#![forbid(unsafe_code)]

mod block;
mod cpu;
mod debug;
mod drains;
mod entry;
mod hints;
mod layout;
mod lifo;
mod node;
mod refill;
mod search;
mod sync;
mod types;

use alloc::boxed::Box;
use core::ops::Range;

use crate::ids::{
    CpuId, FRAMES_PER_BLOCK, FrameId, HUGE_BYTES, MAX_CPUS, MAX_NODES, NodeId, Order,
};
use crate::numa::Topology;
use crate::stats::{Counter, LockClass, Snapshot};
use cpu::{Cpu, Event};
use debug::Debug;
pub use debug::{FrameMemory, POISON};
use drains::Drains;
use hints::{GROUP, Hints};
use layout::{FrameRange, Span};
use node::Node;
pub use types::{FrameKind, InitError, NodeMemory, RamRange, Reach};

/// Allocates page frames by node. See the [module](self) for model and contract.
pub struct FrameAllocator {
    topology: Topology,
    cpus: Box<[Cpu]>,
    nodes: Box<[Node]>,
    spans: Box<[Span]>,
    frames: Box<[FrameRange]>,
    debug: Option<Debug>,
    drains: Drains,
}

impl FrameAllocator {
    /// An allocator of the frames in `ram` for processors 0 to `cpus - 1`.
    pub fn new(ram: &[RamRange], topology: &Topology, cpus: usize) -> Result<Self, InitError> {
        if cpus == 0 || cpus > MAX_CPUS || cpus > topology.cpu_count() {
            return Err(InitError::CpuCount(cpus));
        }
        let frames = layout::frames(ram, topology)?;
        let spans = layout::spans(&frames, topology.node_count());
        let nodes: Box<[Node]> = topology
            .nodes()
            .map(|id| Node::new(id, &frames, &spans))
            .collect();
        let cpus = (0..cpus)
            .map(|cpu| {
                let id = CpuId::new(cpu as u16);
                let mut starts = [0; MAX_NODES];
                let mut territory = 0..0;
                for (start, node) in starts.iter_mut().zip(topology.nodes()) {
                    let blocks = nodes[node.index()].blocks().len();
                    let part = part_of(topology, id, node, blocks, cpus);
                    *start = part.start as u32;
                    if node == topology.node_of_cpu(id) && part.len() >= GROUP {
                        territory = (part.start / GROUP) as u32..(part.end / GROUP) as u32;
                    }
                }
                Cpu::new(id, topology.node_of_cpu(id), starts, territory)
            })
            .collect();
        let allocator = Self {
            topology: topology.clone(),
            cpus,
            nodes,
            spans: spans.into(),
            frames: frames.into(),
            debug: None,
            drains: Drains::new(),
        };
        Ok(if cfg!(debug_assertions) {
            allocator.with_debug(None)
        } else {
            allocator
        })
    }

    /// Bytes of metadata that [`FrameAllocator::new`] allocates at most, so that a caller without
    /// another allocator can set memory aside.
    pub fn metadata_bytes(ram: &[RamRange], cpus: usize) -> u64 {
        let huge = HUGE_BYTES as u64;
        let blocks: u64 = ram.iter().map(|range| range.bytes / huge + 2).sum();
        // Holes add up to a quarter; hints and their rounding, per node; the processors.
        let (per_block, per_node) = Hints::BYTES;
        let per_block = size_of::<block::Block>() as u64 + per_block;
        let blocks = (blocks + blocks / 4) * per_block + MAX_NODES as u64 * per_node;
        let lists = ram.len() as u64 * 4 * size_of::<Span>().max(size_of::<FrameRange>()) as u64;
        blocks + lists + (cpus * size_of::<Cpu>()) as u64 + (16 << 10)
    }

    /// Turns the debug mode on, before anything is allocated: frames that are freed twice, by who
    /// does not have them, or that were never managed, end in a panic at once; with access to the
    /// memory, freed frames are filled with [`POISON`] and looked at when they are allocated again. A
    /// build with debug assertions has it always, without access to the memory.
    #[must_use]
    pub fn with_debug(self, memory: Option<&'static dyn FrameMemory>) -> Self {
        let blocks = self.nodes.iter().map(|node| node.blocks().len());
        Self {
            debug: Some(Debug::new(blocks, memory)),
            ..self
        }
    }

    /// Takes `2^order` contiguous, naturally aligned frames from `node`, or from the nearest node
    /// that has them if `reach` allows it. `cpu` is the processor that executes the caller.
    #[inline]
    pub fn alloc(
        &self,
        cpu: CpuId,
        node: NodeId,
        order: Order,
        kind: FrameKind,
        reach: Reach,
        fence_others: &dyn Fn(),
    ) -> Option<FrameId> {
        let me = &self.cpus[cpu.index()];
        let cached = match (order, kind) {
            _ if me.home != node => None,
            (Order::BASE, _) => me.own(&self.drains, |me, taking| me.lifo(kind).pop(taking)),
            (Order::HUGE, FrameKind::Movable) => {
                me.own(&self.drains, |me, taking| me.blocks().pop(taking))
            }
            _ => None,
        };
        let frame = match cached {
            Some(frame) => frame,
            None => self.alloc_from_maps(me, node, order, kind, reach, fence_others)?,
        };
        me.count_alloc(order);
        if let Some(debug) = &self.debug {
            debug.allocated(self.locate(frame), frame, order, kind);
        }
        Some(frame)
    }

    /// Gives back a run of frames. `cpu` is the processor that executes the caller; the frames may
    /// come from any node and any processor.
    #[inline]
    pub fn free(&self, cpu: CpuId, frame: FrameId, order: Order, kind: FrameKind) {
        let me = &self.cpus[cpu.index()];
        self.check_managed(frame, order);
        let (node, block) = self.locate(frame);
        if let Some(debug) = &self.debug {
            debug.freed((node, block), frame, order, kind);
        }
        me.count_free(order);
        if me.home == node {
            match (order, kind) {
                (Order::BASE, _) => return self.cache(me, frame, kind),
                (Order::HUGE, FrameKind::Movable) => return self.cache_block(me, frame),
                _ => {}
            }
        }
        self.nodes[node.index()].put(me, frame, order);
    }

    /// The node of a frame, if the allocator manages it.
    pub fn node_of(&self, frame: FrameId) -> Option<NodeId> {
        self.node_of_run(frame, Order::BASE)
    }

    /// The node of a run of frames that the allocator manages, all of them.
    fn node_of_run(&self, frame: FrameId, order: Order) -> Option<NodeId> {
        let starts_before = |range: &FrameRange| range.first <= frame.get();
        let after = self.frames.partition_point(starts_before);
        let range = &self.frames[after.checked_sub(1)?];
        (frame.add(order.frames()).get() <= range.end).then_some(range.node)
    }

    /// The memory of one node, as far as it can be known while others allocate.
    pub fn node_memory(&self, node: NodeId) -> NodeMemory {
        let blocks = self.nodes[node.index()].blocks();
        let lifos = self.cpus_of(node).flat_map(Cpu::lifos);
        let singles: usize = lifos.map(|lifo| lifo.len()).sum();
        let whole_cached: usize = self.cpus_of(node).map(|cpu| cpu.blocks().len()).sum();
        let cached = singles + whole_cached * FRAMES_PER_BLOCK;
        let free: usize = blocks.iter().map(|block| block.entry().free()).sum();
        let whole = |block: &&block::Block| block.entry().free() == FRAMES_PER_BLOCK;
        NodeMemory {
            total_frames: self.nodes[node.index()].total_frames,
            free_frames: (free + cached) as u64,
            cached_frames: cached as u64,
            free_blocks: (blocks.iter().filter(whole).count() + whole_cached) as u64,
        }
    }

    /// Frames that are allocated, on all nodes.
    pub fn allocated_frames(&self) -> u64 {
        let allocated: u64 = self.cpus.iter().map(Cpu::frames_allocated).sum();
        let freed: u64 = self.cpus.iter().map(Cpu::frames_freed).sum();
        allocated.saturating_sub(freed)
    }

    fn total_frames(&self) -> u64 {
        self.nodes.iter().map(|node| node.total_frames).sum()
    }

    /// Adds what was counted here to a snapshot.
    pub fn count_into(&self, snapshot: &mut Snapshot) {
        for cpu in &self.cpus {
            let missed = cpu.events(Event::OtherNode);
            for (counter, value) in [
                (Counter::PgAlloc, cpu.frames_allocated()),
                (Counter::PgFree, cpu.frames_freed()),
                (Counter::NumaHit, cpu.allocs().saturating_sub(missed)),
                (Counter::NumaMiss, missed),
                (Counter::AllocFail, cpu.events(Event::Failed)),
                (Counter::RemoteFree, cpu.events(Event::RemoteFree)),
                (Counter::BlockReserve, cpu.events(Event::Reserved)),
                (Counter::BlockSteal, cpu.events(Event::Stolen)),
                (Counter::CacheDrain, cpu.events(Event::Drained)),
                (Counter::CacheFence, cpu.events(Event::Fenced)),
                (
                    Counter::LockWait(LockClass::FrameEntry),
                    cpu.events(Event::EntryContended),
                ),
                (
                    Counter::LockWait(LockClass::FrameMap),
                    cpu.events(Event::MapContended),
                ),
                (
                    Counter::LockWait(LockClass::FrameHint),
                    cpu.events(Event::HintContended),
                ),
            ] {
                snapshot.add(counter, value);
            }
        }
    }

    /// The node of a frame and the index of its block there.
    #[inline]
    fn locate(&self, frame: FrameId) -> (NodeId, usize) {
        for span in &self.spans {
            if let Some(index) = span.index_of(frame) {
                return (span.node, index);
            }
        }
        panic!("{frame:?} was freed, which is not managed memory");
    }

    #[inline]
    fn check_managed(&self, frame: FrameId, order: Order) {
        assert!(
            frame.is_aligned(order),
            "{frame:?} was freed, which does not start a run of {order:?}"
        );
        if self.debug.is_some() || order > Order::HUGE {
            assert!(
                self.node_of_run(frame, order).is_some(),
                "{frame:?} was freed with {order:?}, which is not managed memory"
            );
        }
    }

    fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(move |cpu| cpu.home == node)
    }
}

/// The blocks of `node` where `cpu` looks first: processors spread out evenly, those of the node among
/// themselves, and have groups of 64 of their own where there are enough.
fn part_of(
    topology: &Topology,
    cpu: CpuId,
    node: NodeId,
    blocks: usize,
    cpus: usize,
) -> Range<usize> {
    let at_home = |cpu: usize| topology.node_of_cpu(CpuId::new(cpu as u16)) == node;
    let (rank, of) = if at_home(cpu.index()) {
        let rank = (0..cpu.index()).filter(|&cpu| at_home(cpu)).count();
        (rank, (0..cpus).filter(|&cpu| at_home(cpu)).count())
    } else {
        (cpu.index(), cpus)
    };
    let unit = if blocks >= GROUP * of { GROUP } else { 1 };
    let border = |rank: usize| blocks * rank / of / unit * unit;
    border(rank)..border(rank + 1)
}

#[cfg(test)]
mod tests;
