//! The frames of one node.

use alloc::boxed::Box;

use super::FrameKind;
use super::block::{Block, Change, Class, Entry};
use super::cpu::{Cpu, Event, Use};
use super::hints::{Hints, bits};
use super::layout::{FrameRange, Span};
use crate::ids::{FRAMES_PER_BLOCK, FrameId, NodeId, Order};

/// The frames of one node.
pub(super) struct Node {
    id: NodeId,
    spans: Box<[Span]>,
    blocks: Box<[Block]>,
    hints: Hints,
    /// Frames that are RAM.
    pub(super) total_frames: u64,
}

/// Broken blocks for `kind`, those of the other kind.
fn broken(kind: FrameKind) -> (Class, Class) {
    match kind {
        FrameKind::Movable => (Class::Movable, Class::Unmovable),
        FrameKind::Unmovable => (Class::Unmovable, Class::Movable),
    }
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
            node.follow(block);
        }
        node
    }

    /// Which blocks have a class.
    #[cfg(test)]
    pub(super) fn hints(&self) -> &Hints {
        &self.hints
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

    fn frame(&self, block: usize, offset: usize) -> FrameId {
        let mut spans = self.spans.iter();
        let first = spans.find_map(|span| span.frame_of(block));
        first
            .expect("every index lies in one of the node's spans")
            .add(offset)
    }

    fn follow(&self, block: usize) {
        self.follow_all(block / 64, 1 << (block % 64));
    }

    /// The same for several blocks of one group of 64.
    fn follow_all(&self, group: usize, mask: u64) {
        self.hints
            .follow(group, mask, |block| self.blocks[block].entry().class());
    }

    fn changed(&self, block: usize, change: Change) -> Entry {
        if change.old.class() != change.new.class() {
            self.follow(block);
        }
        change.new
    }

    /// Takes up to `want` single frames from one block and passes them on, lowest first. Returns
    /// whether there were any.
    pub(super) fn take_singles(
        &self,
        me: &Cpu,
        kind: FrameKind,
        want: usize,
        mut taken: impl FnMut(FrameId),
    ) -> bool {
        let reservation = me.reservation(self.id, Use::of(Order::BASE, kind));
        let (own, other) = broken(kind);
        let fresh = [own, Class::Whole, other]
            .into_iter()
            .flat_map(|class| self.hints.candidates(class, me.start(self.id)))
            .map(|block| (block, None));
        let reserved = reservation.get().map(|block| (block, Some(me.id)));
        for (index, owner) in reserved.into_iter().chain(fresh) {
            let block = &self.blocks[index];
            let mut got = 0;
            let change = block.update(me, |entry| {
                got = want.min(entry.free());
                let usable = entry.owner() == owner && got > 0;
                usable.then(|| entry.take(got, kind).with_owner(Some(me.id)))
            });
            let Some(change) = change else {
                continue;
            };
            let entry = self.changed(index, change);
            if owner.is_none() {
                me.count(Event::Reserved);
            }
            reservation.set(entry.owner().map(|_| index));
            let first = self.frame(index, 0);
            block.take_frames(me, got, |offset| taken(first.add(offset)));
            return true;
        }
        reservation.set(None);
        false
    }

    /// Takes an aligned run of 2 to 256 frames.
    pub(super) fn take_run(&self, me: &Cpu, order: Order, kind: FrameKind) -> Option<FrameId> {
        let reservation = me.reservation(self.id, Use::of(order, kind));
        let start = me.start(self.id);
        let (own, other) = broken(kind);
        let in_broken = |block: usize| self.take_run_of(me, block, order, kind, false);
        let in_whole = |block: usize| {
            let frame = self.take_run_of(me, block, order, kind, true)?;
            if let Some(old) = reservation.get().filter(|&old| old != block) {
                self.release(me, old, me);
            }
            me.count(Event::Reserved);
            reservation.set(Some(block));
            Some(frame)
        };
        let reserved = reservation.get().into_iter();
        let broken = |class| self.hints.candidates(class, start);
        // All broken blocks are searched before a whole one is broken, and before the one that was
        // broken last. Where the search stops early, mixed orders use up every whole block in
        // time; where it begins with the emptiest block, that one never gets whole again.
        broken(own)
            .chain(reserved)
            .find_map(in_broken)
            .or_else(|| broken(Class::Whole).find_map(in_whole))
            .or_else(|| broken(other).find_map(in_broken))
    }

    /// Takes a run from a block that nobody else has reserved, and reserves it if told so.
    fn take_run_of(
        &self,
        me: &Cpu,
        index: usize,
        order: Order,
        kind: FrameKind,
        reserve: bool,
    ) -> Option<FrameId> {
        let block = &self.blocks[index];
        let frames = order.frames();
        // Look before taking the right: frames to which somebody holds a right that he cannot
        // use look allocated to everybody else.
        if !block.has_run(order) {
            return None;
        }
        let change = block.update(me, |entry| {
            let available = entry.owner().is_none_or(|owner| owner == me.id);
            (available && entry.free() >= frames).then(|| {
                let taken = entry.take(frames, kind);
                if reserve {
                    taken.with_owner(Some(me.id))
                } else {
                    taken
                }
            })
        })?;
        self.changed(index, change);
        if let Some(offset) = block.take_run(me, order) {
            return Some(self.frame(index, offset));
        }
        self.changed(index, block.give_back(frames));
        if reserve {
            self.release(me, index, me);
        }
        None
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
        let mut group = None;
        let mut claimed = 0u64;
        for index in self.hints.candidates(Class::Whole, me.start(self.id)) {
            if group.is_some_and(|group| group != index / 64) {
                break;
            }
            if self.claim_block(me, index, kind).is_some() {
                group = Some(index / 64);
                claimed |= 1 << (index % 64);
                if claimed.count_ones() as usize == want {
                    break;
                }
            }
        }
        let Some(group) = group else { return };
        self.follow_all(group, claimed);
        for bit in bits(claimed) {
            let index = 64 * group + bit;
            self.blocks[index].fill();
            taken(self.frame(index, 0));
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
            if self.hints.all(Class::Whole, at, count) && self.claim_blocks(me, at, count, kind) {
                return Some(self.frame(at, 0));
            }
            // On to the run that the next whole block is in.
            let next = self.hints.next(Class::Whole, at + count)?;
            at = next - (next - at) % count;
        }
        None
    }

    /// Takes `count` whole blocks, or none.
    fn claim_blocks(&self, me: &Cpu, first: usize, count: usize, kind: FrameKind) -> bool {
        for index in first..first + count {
            let Some(change) = self.claim_block(me, index, kind) else {
                for index in first..index {
                    self.changed(index, self.blocks[index].give_back(FRAMES_PER_BLOCK));
                }
                return false;
            };
            self.changed(index, change);
        }
        for block in &self.blocks[first..first + count] {
            block.fill();
        }
        true
    }

    /// Takes the right to all frames of a block that nobody has reserved. The caller brings the
    /// hints up to date.
    fn claim_block(&self, me: &Cpu, index: usize, kind: FrameKind) -> Option<Change> {
        self.blocks[index].update(me, |entry| {
            let whole = entry.class() == Some(Class::Whole);
            whole.then(|| entry.take(FRAMES_PER_BLOCK, kind))
        })
    }

    /// Takes a block's reservation by `owner` away, if it has it; whether it had.
    fn release(&self, me: &Cpu, index: usize, owner: &Cpu) -> bool {
        let change = self.blocks[index].update(me, |entry| {
            let reserved = entry.owner() == Some(owner.id);
            reserved.then(|| entry.with_owner(None))
        });
        change.is_some_and(|change| {
            self.changed(index, change);
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

    fn count_back(&self, me: &Cpu, index: usize, frames: usize) {
        let change = self.blocks[index].give_back(frames);
        if change.old.owner().is_some_and(|owner| owner != me.id) {
            me.count(Event::RemoteFree);
        }
        self.changed(index, change);
    }

    /// Gives a run back, of any order.
    pub(super) fn put(&self, me: &Cpu, frame: FrameId, order: Order) {
        let index = self.index_of(frame);
        let blocks = order.frames().div_ceil(FRAMES_PER_BLOCK);
        let order = order.min(Order::HUGE);
        for index in index..index + blocks {
            self.blocks[index].clear_run(frame.offset_in_block(), order);
            self.count_back(me, index, order.frames());
        }
    }

    /// Gives whole blocks back, by their first frames. Those of one group of 64 that are neighbours
    /// in the list share the change of the hints.
    pub(super) fn put_whole(&self, frames: &[FrameId]) {
        let mut group = None;
        let mut given = 0u64;
        for &frame in frames {
            let index = self.index_of(frame);
            self.blocks[index].clear_run(0, Order::HUGE);
            let change = self.blocks[index].give_back(FRAMES_PER_BLOCK);
            debug_assert!(change.old.owner().is_none(), "a full block has no owner");
            if let Some(before) = group.filter(|&group| group != index / 64) {
                self.follow_all(before, given);
                given = 0;
            }
            group = Some(index / 64);
            given |= 1 << (index % 64);
        }
        if let Some(group) = group {
            self.follow_all(group, given);
        }
    }

    /// Gives single frames back. Neighbours in the list that are neighbours in memory share their
    /// atomic operations.
    pub(super) fn put_singles(&self, me: &Cpu, frames: &[FrameId]) {
        for block in frames.chunk_by(|a, b| a.block() == b.block()) {
            let index = self.index_of(block[0]);
            for word in block.chunk_by(|a, b| a.get() / 64 == b.get() / 64) {
                let bits = word
                    .iter()
                    .fold(0, |bits, frame| bits | 1 << (frame.get() % 64));
                self.blocks[index].clear_word(word[0].offset_in_block() / 64, bits);
            }
            self.count_back(me, index, block.len());
        }
    }
}
