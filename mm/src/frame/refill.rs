//! Between the caches of processors and the maps.

use super::cpu::{BATCH, BLOCK_BATCH, Cpu, Event};
use super::sync::wait;
use super::{FrameAllocator, FrameKind, Reach};
use crate::ids::{FrameId, MAX_NODES, NodeId, Order};

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
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_from_maps(
        &self,
        me: &Cpu,
        node: NodeId,
        order: Order,
        kind: FrameKind,
        reach: Reach,
        fence_others: &dyn Fn(),
    ) -> Option<FrameId> {
        let nodes = match reach {
            Reach::ThisNode => 1,
            Reach::AnyNode => MAX_NODES,
        };
        let search = || {
            let mut near = self.topology.fallback_order(node).take(nodes);
            near.find_map(|near| Some((self.alloc_on(me, near, order, kind, fence_others)?, near)))
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
            wait();
            found = search();
        }
        match found {
            Some((_, found)) if found != node => me.count(Event::OtherNode),
            Some(_) => {}
            None => me.count(Event::Failed),
        }
        found.map(|(frame, _)| frame)
    }

    /// Allocates on one node; when that fails, once more with everything that processors keep.
    fn alloc_on(
        &self,
        me: &Cpu,
        node: NodeId,
        order: Order,
        kind: FrameKind,
        fence_others: &dyn Fn(),
    ) -> Option<FrameId> {
        let home = &self.nodes[node.index()];
        let attempt = || match order {
            Order::BASE => self.single(me, node, kind),
            Order::HUGE => self.whole(me, node, kind),
            order if order < Order::HUGE => home.take_run(me, order, kind),
            order => home.take_blocks(me, order, kind),
        };
        if let Some(frame) = attempt() {
            self.drains.refilled();
            return Some(frame);
        }
        let mut released = false;
        for owner in &self.cpus {
            released |= home.release_all(me, owner);
        }
        if released
            && order == Order::BASE
            && let Some(frame) = attempt()
        {
            return Some(frame);
        }
        let _drain = self.drains.begin(me, &self.cpus, fence_others);
        if order == Order::BASE {
            // One cached frame will do; the caches stay as they are.
            let found = self.cached(me, node).next();
            if found.is_some() {
                return found;
            }
        } else {
            for frame in self.cached(me, node) {
                home.put(me, frame, Order::BASE);
            }
        }
        for frame in self.cached_blocks(me, node) {
            home.put_whole(me, &[frame]);
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
        lifos.flat_map(|lifo| lifo.drain()).inspect(|_| {
            me.count(Event::Drained);
        })
    }

    /// Takes whole blocks out of the caches of a node's processors.
    fn cached_blocks(&self, me: &Cpu, node: NodeId) -> impl Iterator<Item = FrameId> {
        let blocks = self.cpus_of(node).flat_map(|cpu| cpu.blocks().drain());
        blocks.inspect(|_| {
            me.count(Event::Drained);
        })
    }

    /// Puts a whole block of the processor's own node into its cache.
    #[inline]
    pub(super) fn cache_block(&self, me: &Cpu, frame: FrameId) {
        if !me.own(&self.drains, |me, _| me.blocks().push(frame)) {
            self.make_room_for_block(me);
            let pushed = me.own(&self.drains, |me, _| me.blocks().push(frame));
            assert!(pushed, "two calls for {:?} at the same time", me.id);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room_for_block(&self, me: &Cpu) {
        let mut batch = Batch::new();
        me.own(&self.drains, |me, taking| {
            me.blocks().take_oldest(taking, |frame| batch.push(frame));
        });
        self.nodes[me.home.index()].put_whole(me, batch.frames());
    }

    /// Puts a frame of the processor's own node into its cache.
    #[inline]
    pub(super) fn cache(&self, me: &Cpu, frame: FrameId, kind: FrameKind) {
        if !me.own(&self.drains, |me, _| me.lifo(kind).push(frame)) {
            self.make_room(me, kind);
            let pushed = me.own(&self.drains, |me, _| me.lifo(kind).push(frame));
            assert!(pushed, "two calls for {:?} at the same time", me.id);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&self, me: &Cpu, kind: FrameKind) {
        let mut batch = Batch::new();
        me.own(&self.drains, |me, taking| {
            me.lifo(kind).take_oldest(taking, |frame| batch.push(frame));
        });
        self.nodes[me.home.index()].put_singles(me, batch.frames());
    }
}
