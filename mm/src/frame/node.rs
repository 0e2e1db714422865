//! The frames of one node.

use alloc::boxed::Box;

use super::FrameKind;
use super::block::{Block, bits};
use super::cpu::{Cpu, Event, Nearby};
use super::entry::{Change, Class};
use super::hints::{GROUP, Hints};
use super::layout::{FrameRange, Span};
use crate::ids::{FRAMES_PER_BLOCK, FrameId, NodeId, Order};

/// The frames of one node.
pub(super) struct Node {
    pub(super) id: NodeId,
    spans: Box<[Span]>,
    blocks: Box<[Block]>,
    pub(super) hints: Hints,
    /// Frames that are RAM.
    pub(super) total_frames: u64,
}

impl Node {
    /// The node `id`, given the frames and spans of all nodes.
    pub(super) fn new(id: NodeId, frames: &[FrameRange], spans: &[Span]) -> Self {
        let of_node = spans.iter().copied().filter(|span| span.node == id);
        let spans: Box<[Span]> = of_node.collect();
        let count = spans.iter().map(Span::count).sum();
        let mut node = Self {
            id,
            spans,
            blocks: (0..count).map(|_| Block::absent()).collect(),
            hints: Hints::new(count),
            total_frames: 0,
        };
        for range in frames.iter().filter(|range| range.node == id) {
            let mut at = range.first;
            while at < range.end {
                let frame = FrameId::new(at);
                let offset = frame.offset_in_block();
                let count = (FRAMES_PER_BLOCK - offset).min((range.end - at) as usize);
                let block = node.index_of(frame);
                node.blocks[block].add_frames(offset, count);
                at += count as u64;
            }
            node.total_frames += range.end - range.first;
        }
        for block in 0..count {
            let class = node.blocks[block].entry().class();
            node.move_hints(block / GROUP, 1 << (block % GROUP), (None, class));
        }
        node
    }

    /// The blocks' metadata.
    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The index of the block that holds `frame`, a frame of this node.
    fn index_of(&self, frame: FrameId) -> usize {
        let mut spans = self.spans.iter();
        let index = spans.find_map(|span| span.index_of(frame));
        index.expect("the frame belongs to another node")
    }

    /// The first frame of a block.
    fn first_frame(&self, block: usize) -> FrameId {
        let mut spans = self.spans.iter();
        let first = spans.find_map(|span| span.frame_of(block));
        first.expect("every index lies in one of the node's spans")
    }

    fn move_hints(&self, group: usize, mask: u64, classes: (Option<Class>, Option<Class>)) -> u64 {
        let class = |block: usize| self.blocks[block].entry().class();
        self.hints.moved(group, mask, classes, class)
    }

    /// Brings the hints up to date after blocks of one group went from one class to another.
    fn moved(&self, me: &Cpu, group: usize, mask: u64, classes: (Option<Class>, Option<Class>)) {
        for _ in 0..self.move_hints(group, mask, classes) {
            me.count(Event::HintContended);
        }
        if me.home == self.id && classes.1.is_some() {
            me.note_group(Nearby::Room, group, false);
            if classes.1 == Some(Class::WHOLE) {
                me.note_group(Nearby::Whole, group, false);
            }
        }
    }

    fn changed(&self, me: &Cpu, block: usize, change: Change) {
        let classes = (change.old.class(), change.new.class());
        if classes.0 != classes.1 {
            self.moved(me, block / GROUP, 1 << (block % GROUP), classes);
        }
    }

    fn lower_bound(&self, me: &Cpu, block: usize) {
        if let Some(change) = self.blocks[block].lower_bound(me) {
            self.changed(me, block, change);
        }
    }

    /// Takes up to `want` single frames from one block and passes them on, lowest first.
    pub(super) fn take_singles(
        &self,
        me: &Cpu,
        kind: FrameKind,
        want: usize,
        mut taken: impl FnMut(FrameId),
    ) {
        let reservation = me.reservation(self.id, kind);
        let mut take = |index: usize, owner| {
            let block = &self.blocks[index];
            let mut got = 0;
            let change = block.update(me, |entry| {
                got = want.min(entry.free());
                let usable = entry.owner() == owner && got > 0;
                usable.then(|| entry.take(got, kind).with_owner(Some(me.id)))
            })?;
            self.changed(me, index, change);
            if owner.is_none() {
                me.count(Event::Reserved);
            }
            reservation.set(change.new.owner().map(|_| index));
            let first = self.first_frame(index);
            block.take_frames(me, change.new, got, |offset| taken(first.add(offset)));
            Some(())
        };
        let reserved = reservation.get();
        if reserved
            .and_then(|block| take(block, Some(me.id)))
            .is_none()
        {
            reservation.set(None);
            self.search(me, Order::BASE, kind, |block| take(block, None));
        }
    }

    /// Takes an aligned run of 2 to 256 frames.
    pub(super) fn take_run(&self, me: &Cpu, order: Order, kind: FrameKind) -> Option<FrameId> {
        let mut take = |block| self.take_run_of(me, block, order, kind);
        // Unmovable frames stay together; movable runs stay out of blocks used for single frames.
        let reserved = match kind {
            FrameKind::Unmovable => me.reservation(self.id, kind).get().and_then(&mut take),
            FrameKind::Movable => None,
        };
        reserved.or_else(|| self.search(me, order, kind, take))
    }

    /// Takes a run from a block that nobody else has reserved. A whole block that is broken for
    /// unmovable frames is reserved for more of them.
    fn take_run_of(
        &self,
        me: &Cpu,
        index: usize,
        order: Order,
        kind: FrameKind,
    ) -> Option<FrameId> {
        let block = &self.blocks[index];
        let frames = order.frames();
        // Look before taking the right: frames to which somebody holds a right that he cannot
        // use look allocated to everybody else.
        if !block.has_run(block.entry(), order.get()) {
            self.lower_bound(me, index);
            return None;
        }
        let reserve = |whole: bool| (whole && kind == FrameKind::Unmovable).then_some(me.id);
        let change = block.update(me, |entry| {
            let available = entry.owner().is_none_or(|owner| owner == me.id);
            (available && entry.free() >= frames).then(|| {
                let owner = reserve(entry.is_whole()).or(entry.owner());
                entry.take(frames, kind).with_owner(owner)
            })
        })?;
        self.changed(me, index, change);
        if change.old.owner().is_none() && change.new.owner().is_some() {
            me.count(Event::Reserved);
            let reservation = me.reservation(self.id, kind);
            if let Some(old) = reservation.get() {
                self.release(me, old, me);
            }
            reservation.set(Some(index));
        }
        let found = block.take_run(me, change.new, order);
        if found.is_none() {
            self.came_back(me, index, block.count_back(frames), order.get());
        }
        self.lower_bound(me, index);
        Some(self.first_frame(index).add(found?))
    }

    /// Takes up to `want` whole blocks that are close to each other and passes their first frames
    /// on, lowest first.
    pub(super) fn take_whole(
        &self,
        me: &Cpu,
        kind: FrameKind,
        want: usize,
        mut taken: impl FnMut(FrameId),
    ) {
        let Some((group, claimed)) = self.search_whole(me, |group, candidates| {
            let claimed = bits(candidates)
                .filter(|bit| {
                    self.blocks[GROUP * group + bit]
                        .take_whole(me, kind)
                        .is_some()
                })
                .take(want)
                .fold(0u64, |claimed, bit| claimed | 1 << bit);
            (claimed != 0).then_some((group, claimed))
        }) else {
            return;
        };
        self.moved(me, group, claimed, (Some(Class::WHOLE), None));
        for bit in bits(claimed) {
            taken(self.first_frame(GROUP * group + bit));
        }
    }

    /// Takes an aligned run of whole blocks.
    pub(super) fn take_blocks(&self, me: &Cpu, order: Order, kind: FrameKind) -> Option<FrameId> {
        let count = order.frames() / FRAMES_PER_BLOCK;
        self.spans
            .iter()
            .find_map(|span| self.take_blocks_of(me, span, count, kind))
    }

    fn take_blocks_of(
        &self,
        me: &Cpu,
        span: &Span,
        count: usize,
        kind: FrameKind,
    ) -> Option<FrameId> {
        let first = span.first().get() as usize;
        let end = span.base() + span.count();
        let mut at = span.base() + (first.next_multiple_of(count) - first);
        while at + count <= end {
            if self.hints.all(Class::WHOLE, at, count) && self.claim_blocks(me, at, count, kind) {
                return Some(self.first_frame(at));
            }
            // On to the run that the next whole block is in.
            let next = self.hints.next(Class::WHOLE, at + count)?;
            at = next - (next - at) % count;
        }
        None
    }

    /// Takes `count` whole blocks, or none.
    fn claim_blocks(&self, me: &Cpu, first: usize, count: usize, kind: FrameKind) -> bool {
        for index in first..first + count {
            let Some(change) = self.blocks[index].take_whole(me, kind) else {
                (first..index).for_each(|index| self.put_block(me, index));
                return false;
            };
            self.changed(me, index, change);
        }
        true
    }

    /// Takes a block's reservation by `owner` away, if it has it; whether it had.
    fn release(&self, me: &Cpu, index: usize, owner: &Cpu) -> bool {
        let change = self.blocks[index].update(me, |entry| {
            let reserved = entry.owner() == Some(owner.id);
            reserved.then(|| entry.with_owner(None))
        });
        change.is_some_and(|change| {
            self.changed(me, index, change);
            self.lower_bound(me, index);
            true
        })
    }

    /// Takes all reservations of `owner` on this node away; whether there were any.
    pub(super) fn release_all(&self, me: &Cpu, owner: &Cpu) -> bool {
        let mut any = false;
        for block in owner.reservations(self.id).iter().filter_map(|r| r.get()) {
            if self.release(me, block, owner) {
                any = true;
                if me.id != owner.id {
                    me.count(Event::Stolen);
                }
            }
        }
        any
    }

    /// After `counted` frames of a block came back, in runs of `order` at most: brings its bound and
    /// the hints up to date.
    fn came_back(&self, me: &Cpu, index: usize, counted: Change, order: u8) {
        let block = &self.blocks[index];
        let mut change = counted;
        if order > counted.old.bound() {
            change = self.and_then(me, index, change, block.raise_bound(me, order));
        }
        // What a full block says about its runs is out of date.
        if counted.old.free() == 0 {
            change = self.and_then(me, index, change, block.lower_bound(me));
        }
        self.changed(me, index, change);
    }

    /// The same after a free.
    fn freed(&self, me: &Cpu, index: usize, (change, order): (Change, u8)) {
        if change.old.owner().is_some_and(|owner| owner != me.id) {
            me.count(Event::RemoteFree);
        }
        self.came_back(me, index, change, order);
    }

    /// The change that the hints do not know yet after two of them. They are one only if no other
    /// processor came between: its change of the hints says nothing about what we skip.
    fn and_then(&self, me: &Cpu, index: usize, first: Change, second: Option<Change>) -> Change {
        match second {
            None => first,
            Some(second) if second.old == first.new => Change {
                old: first.old,
                new: second.new,
            },
            Some(second) => {
                self.changed(me, index, first);
                second
            }
        }
    }

    /// Gives a run back, of any order.
    pub(super) fn put(&self, me: &Cpu, frame: FrameId, order: Order) {
        let index = self.index_of(frame);
        if order < Order::HUGE {
            let back = self.blocks[index].give_back_run(frame.offset_in_block(), order);
            return self.freed(me, index, back);
        }
        let blocks = order.frames() / FRAMES_PER_BLOCK;
        (index..index + blocks).for_each(|index| self.put_block(me, index));
    }

    fn put_block(&self, me: &Cpu, index: usize) {
        let change = self.blocks[index].put_whole(me);
        self.changed(me, index, change);
    }

    /// Gives whole blocks back, by their first frames. Those of one group that are neighbours in
    /// the list share the change of the hints.
    pub(super) fn put_whole(&self, me: &Cpu, frames: &[FrameId]) {
        let mut at = 0;
        while at < frames.len() {
            let group = self.index_of(frames[at]) / GROUP;
            let mut given = 0u64;
            while let Some(&frame) = frames.get(at) {
                let index = self.index_of(frame);
                if index / GROUP != group {
                    break;
                }
                let _ = self.blocks[index].put_whole(me);
                given |= 1 << (index % GROUP);
                at += 1;
            }
            self.moved(me, group, given, (None, Some(Class::WHOLE)));
        }
    }

    /// Gives single frames back. Neighbours in the list that are neighbours in memory share their
    /// atomic operations.
    pub(super) fn put_singles(&self, me: &Cpu, frames: &[FrameId]) {
        for &frame in frames {
            self.blocks[self.index_of(frame)].prefetch(frame.offset_in_block() / 64);
        }
        for frames in frames.chunk_by(|a, b| a.get() / 64 == b.get() / 64) {
            let mask = frames
                .iter()
                .fold(0, |mask, frame| mask | 1 << (frame.get() % 64));
            let index = self.index_of(frames[0]);
            let back = self.blocks[index].give_back(frames[0].offset_in_block() / 64, mask);
            self.freed(me, index, back);
        }
    }
}
