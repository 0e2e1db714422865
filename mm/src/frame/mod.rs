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
//! * A block to reserve is looked for among the broken ones of the kind first, then a whole one is
//!   broken, then blocks of the other kind serve: whole blocks stay for huge pages, and unmovable
//!   frames stay together.
//! * Orders 1 to 8 are aligned runs inside a block, order 9 is a whole block taken by one
//!   compare-exchange, orders 10 to 18 are aligned runs of whole blocks. Movable whole blocks of
//!   the processor's own node go through a LIFO, too.
//! * A free that does not go into the LIFO is one atomic operation on the map and one on the
//!   count, whoever has reserved the block.
//! * When a node has no block left, reservations of all processors are taken away and their caches
//!   drained. So an allocation fails only if no such run exists on any node within reach. (What
//!   others hold between two steps of theirs counts as allocated.)
//!
//! No operation waits for another processor: everything is a compare-exchange that somebody wins,
//! or cannot fail. Metadata is 128 bytes per block and 128 per 64 blocks, 0.006 % of memory.
//!
//! **Contract.** `cpu` is the processor that executes the caller, and preemption is off: at most
//! one call per processor is under way. Interrupt handlers do not allocate or free, except the
//! page-fault handler, which never interrupts this module. A run may be given back in parts, or
//! parts that make up an aligned run as one. RAM that was not in the list given to
//! [`FrameAllocator::new`] (what was used at boot, reserved ranges, holes) is never handed out.
//! Freeing a frame that is free already, or that was never managed, panics (a debug build notices
//! every such case at once, a release build most of them).

#![forbid(unsafe_code)]

mod block;
mod cpu;
mod hints;
mod layout;
mod node;
mod sync;
mod types;

use alloc::boxed::Box;

use crate::ids::{
    CpuId, FRAMES_PER_BLOCK, FrameId, HUGE_BYTES, MAX_CPUS, MAX_NODES, NodeId, Order,
};
use crate::numa::Topology;
use crate::stats::{Counter, LockClass, Snapshot};
use cpu::{BATCH, BLOCK_BATCH, Cpu, Event};
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
}

/// How often a single frame is searched again while not all frames are allocated.
const FURTHER_LOOKS: usize = 16;

/// Frames on their way between the maps and a cache.
struct Batch {
    frames: [FrameId; BATCH],
    len: usize,
}

impl Batch {
    const fn new() -> Self {
        Self {
            frames: [FrameId::new(0); BATCH],
            len: 0,
        }
    }

    fn push(&mut self, frame: FrameId) {
        self.frames[self.len] = frame;
        self.len += 1;
    }

    fn frames(&self) -> &[FrameId] {
        &self.frames[..self.len]
    }
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
                for (start, node) in starts.iter_mut().zip(topology.nodes()) {
                    let blocks = nodes[node.index()].blocks().len();
                    *start = first_block(topology, id, node, blocks, cpus) as u32;
                }
                Cpu::new(id, topology.node_of_cpu(id), starts)
            })
            .collect();
        Ok(Self {
            topology: topology.clone(),
            cpus,
            nodes,
            spans: spans.into(),
            frames: frames.into(),
        })
    }

    /// Bytes of metadata that [`FrameAllocator::new`] allocates at most, so that a caller without
    /// another allocator can set memory aside.
    pub fn metadata_bytes(ram: &[RamRange], cpus: usize) -> u64 {
        let huge = HUGE_BYTES as u64;
        let blocks: u64 = ram.iter().map(|range| range.bytes / huge + 2).sum();
        // Holes add up to a quarter; hints and their rounding, per node; the processors.
        let per_block = size_of::<block::Block>() as u64 + 3;
        let blocks = (blocks + blocks / 4) * per_block + MAX_NODES as u64 * 512;
        let lists = ram.len() as u64 * 4 * size_of::<Span>().max(size_of::<FrameRange>()) as u64;
        blocks + lists + (cpus * size_of::<Cpu>()) as u64 + (16 << 10)
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
    ) -> Option<FrameId> {
        let me = &self.cpus[cpu.index()];
        if me.home == node {
            let cached = match (order, kind) {
                (Order::BASE, _) => me.lifo(kind).pop(),
                (Order::HUGE, FrameKind::Movable) => me.blocks().pop(),
                _ => None,
            };
            if let Some(frame) = cached {
                self.left_cache(frame, order);
                me.count_alloc(order);
                return Some(frame);
            }
        }
        self.alloc_from_maps(me, node, order, kind, reach)
    }

    /// Gives back a run of frames. `cpu` is the processor that executes the caller; the frames may
    /// come from any node and any processor.
    #[inline]
    pub fn free(&self, cpu: CpuId, frame: FrameId, order: Order) {
        let me = &self.cpus[cpu.index()];
        let (node, block) = self.locate(frame);
        self.check_managed(frame, order);
        me.count_free(order);
        if me.home == node && (order == Order::BASE || order == Order::HUGE) {
            let entry = self.nodes[node.index()].blocks()[block].entry();
            if order == Order::BASE {
                return self.cache(me, frame, entry.kind());
            }
            assert!(entry.free() == 0, "{frame:?} was freed twice");
            if entry.kind() == FrameKind::Movable {
                return self.cache_block(me, frame);
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
                (
                    Counter::LockWait(LockClass::FrameBlock),
                    cpu.events(Event::Contended),
                ),
            ] {
                snapshot.add(counter, value);
            }
        }
    }

    /// The node of a frame and the index of its block there.
    fn locate(&self, frame: FrameId) -> (NodeId, usize) {
        for span in &self.spans {
            if let Some(index) = span.index_of(frame) {
                return (span.node, index);
            }
        }
        panic!("{frame:?} was freed, which is not managed memory");
    }

    fn check_managed(&self, frame: FrameId, order: Order) {
        assert!(
            frame.is_aligned(order),
            "{frame:?} was freed, which does not start a run of {order:?}"
        );
        if cfg!(debug_assertions) || order > Order::HUGE {
            assert!(
                self.node_of_run(frame, order).is_some(),
                "{frame:?} was freed with {order:?}, which is not managed memory"
            );
        }
    }

    fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(move |cpu| cpu.home == node)
    }

    #[cold]
    #[inline(never)]
    fn alloc_from_maps(
        &self,
        me: &Cpu,
        node: NodeId,
        order: Order,
        kind: FrameKind,
        reach: Reach,
    ) -> Option<FrameId> {
        let nodes = match reach {
            Reach::ThisNode => 1,
            Reach::AnyNode => MAX_NODES,
        };
        let search = || {
            let mut near = self.topology.fallback_order(node).take(nodes);
            near.find_map(|near| Some((self.alloc_on(me, near, order, kind)?, near)))
        };
        let mut found = search();
        // The last free frames may be on their way into or out of a cache just now.
        let mut looks = FURTHER_LOOKS;
        while found.is_none()
            && looks > 0
            && order == Order::BASE
            && reach == Reach::AnyNode
            && self.allocated_frames() < self.total_frames()
        {
            looks -= 1;
            core::hint::spin_loop();
            found = search();
        }
        match found {
            Some((_, found)) => {
                me.count_alloc(order);
                if found != node {
                    me.count(Event::OtherNode);
                }
            }
            None => me.count(Event::Failed),
        }
        found.map(|(frame, _)| frame)
    }

    /// Allocates on one node; when that fails, once more with everything that processors keep.
    fn alloc_on(&self, me: &Cpu, node: NodeId, order: Order, kind: FrameKind) -> Option<FrameId> {
        let home = &self.nodes[node.index()];
        let attempt = || match order {
            Order::BASE => self.single(me, node, kind),
            Order::HUGE => self.whole(me, node, kind),
            order if order < Order::HUGE => home.take_run(me, order, kind),
            order => home.take_blocks(me, order, kind),
        };
        if let Some(frame) = attempt() {
            return Some(frame);
        }
        let mut released = false;
        for owner in &self.cpus {
            released |= home.release_all(me, owner);
        }
        if order == Order::BASE {
            // One cached frame will do; the caches stay as they are.
            let reserved = if released { attempt() } else { None };
            let found = reserved.or_else(|| self.cached(me, node).next());
            if found.is_some() {
                return found;
            }
        } else {
            for frame in self.cached(me, node) {
                home.put(me, frame, Order::BASE);
            }
        }
        for frame in self.cached_blocks(me, node) {
            home.put_whole(&[frame]);
        }
        attempt()
    }

    /// A whole block from the maps; a batch of them if they can be cached.
    fn whole(&self, me: &Cpu, node: NodeId, kind: FrameKind) -> Option<FrameId> {
        let cacheable = node == me.home && kind == FrameKind::Movable;
        let want = if cacheable { BLOCK_BATCH } else { 1 };
        let mut batch = Batch::new();
        self.nodes[node.index()].take_whole(me, kind, want, |frame| batch.push(frame));
        let (&first, rest) = batch.frames().split_first()?;
        for &frame in rest.iter().rev() {
            self.cache_block(me, frame);
        }
        Some(first)
    }

    /// A single frame from the maps; a batch of them if they can be cached.
    fn single(&self, me: &Cpu, node: NodeId, kind: FrameKind) -> Option<FrameId> {
        let want = if node == me.home { BATCH } else { 1 };
        let mut batch = Batch::new();
        self.nodes[node.index()].take_singles(me, kind, want, |frame| batch.push(frame));
        let (&first, rest) = batch.frames().split_first()?;
        for &frame in rest.iter().rev() {
            self.cache(me, frame, kind);
        }
        Some(first)
    }

    /// Takes frames out of the caches of a node's processors.
    fn cached(&self, me: &Cpu, node: NodeId) -> impl Iterator<Item = FrameId> {
        let lifos = self.cpus_of(node).flat_map(Cpu::lifos);
        lifos.flat_map(|lifo| lifo.drain()).inspect(|&frame| {
            self.left_cache(frame, Order::BASE);
            me.count(Event::Drained);
        })
    }

    /// Takes whole blocks out of the caches of a node's processors.
    fn cached_blocks(&self, me: &Cpu, node: NodeId) -> impl Iterator<Item = FrameId> {
        let blocks = self.cpus_of(node).flat_map(|cpu| cpu.blocks().drain());
        blocks.inspect(|&frame| {
            self.left_cache(frame, Order::HUGE);
            me.count(Event::Drained);
        })
    }

    /// Puts a whole block of the processor's own node into its cache.
    fn cache_block(&self, me: &Cpu, frame: FrameId) {
        self.enters_cache(frame, Order::HUGE);
        if !me.blocks().push(frame) {
            let mut batch = Batch::new();
            me.blocks().take_oldest(|frame| {
                self.left_cache(frame, Order::HUGE);
                batch.push(frame);
            });
            self.nodes[me.home.index()].put_whole(batch.frames());
            let pushed = me.blocks().push(frame);
            assert!(pushed, "two calls for {:?} at the same time", me.id);
        }
    }

    /// Puts a frame of the processor's own node into its cache.
    fn cache(&self, me: &Cpu, frame: FrameId, kind: FrameKind) {
        self.enters_cache(frame, Order::BASE);
        if !me.lifo(kind).push(frame) {
            self.make_room(me, kind);
            let pushed = me.lifo(kind).push(frame);
            assert!(pushed, "two calls for {:?} at the same time", me.id);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&self, me: &Cpu, kind: FrameKind) {
        let mut batch = Batch::new();
        me.lifo(kind).take_oldest(|frame| {
            self.left_cache(frame, Order::BASE);
            batch.push(frame);
        });
        self.nodes[me.home.index()].put_singles(me, batch.frames());
    }

    #[cfg(debug_assertions)]
    fn enters_cache(&self, frame: FrameId, order: Order) {
        let (node, block) = self.locate(frame);
        let block = &self.nodes[node.index()].blocks()[block];
        let first = frame.offset_in_block();
        (first..first + order.frames()).for_each(|frame| block.enter_cache(frame));
    }

    #[cfg(debug_assertions)]
    fn left_cache(&self, frame: FrameId, order: Order) {
        let (node, block) = self.locate(frame);
        let block = &self.nodes[node.index()].blocks()[block];
        let first = frame.offset_in_block();
        (first..first + order.frames()).for_each(|frame| block.leave_cache(frame));
    }

    #[cfg(not(debug_assertions))]
    fn enters_cache(&self, _frame: FrameId, _order: Order) {}

    #[cfg(not(debug_assertions))]
    fn left_cache(&self, _frame: FrameId, _order: Order) {}
}

/// Where `cpu` starts to look for blocks on `node`: processors spread out evenly, those of the node
/// among themselves, and at words of the hints of their own where there are enough.
fn first_block(topology: &Topology, cpu: CpuId, node: NodeId, blocks: usize, cpus: usize) -> usize {
    let at_home = |cpu: usize| topology.node_of_cpu(CpuId::new(cpu as u16)) == node;
    let (rank, of) = if at_home(cpu.index()) {
        let rank = (0..cpu.index()).filter(|&cpu| at_home(cpu)).count();
        (rank, (0..cpus).filter(|&cpu| at_home(cpu)).count())
    } else {
        (cpu.index(), cpus)
    };
    let start = blocks * rank / of;
    if blocks >= 64 * of {
        start & !63
    } else {
        start
    }
}

#[cfg(test)]
mod tests;
