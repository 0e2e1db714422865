//! Where a processor looks for a block.

use super::FrameKind;
use super::cpu::{Cpu, Nearby};
use super::entry::Class;
use super::hints::GROUP;
use super::node::Node;
use crate::ids::Order;

/// Groups that are looked at nearby for room: 512 MiB.
const NEARBY: usize = 4;
/// Groups that are looked at nearby for whole blocks: 8 GiB.
const NEARBY_WHOLE: usize = 64;
/// A processor keeps to itself while at least one in so many of the blocks nearby is whole.
const PLENTY: u32 = 4;

impl Node {
    /// Offers blocks that may have an aligned run of `order` and that nobody has reserved, orders up
    /// to 8, until `attempt` is content with one.
    ///
    /// While the processor's part of the node has plenty of whole blocks, it breaks one of those
    /// rather than look further, so that processors do not meet. Otherwise whole blocks are worth
    /// more: those come first, in all of the node, whose longest run is the shortest that will do,
    /// those of the kind before whole ones, and of equals the one with the lowest address; then whole
    /// ones; then those of the other kind. Unmovable frames are few and pin blocks, so for them that
    /// is so from the start.
    pub(super) fn search<T>(
        &self,
        me: &Cpu,
        order: Order,
        kind: FrameKind,
        mut attempt: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        if kind == FrameKind::Movable && me.home == self.id {
            let found = self.search_nearby(me, order, kind, &mut attempt);
            if found.is_some() {
                return found;
            }
        }
        let other = match kind {
            FrameKind::Movable => FrameKind::Unmovable,
            FrameKind::Unmovable => FrameKind::Movable,
        };
        let start = me.start(self.id);
        Class::with_run(kind, order)
            .chain([Class::WHOLE])
            .chain(Class::with_run(other, order))
            .flat_map(|class| self.hints.candidates(class, start))
            .find_map(|block| {
                let found = attempt(block)?;
                self.note_found(me, Nearby::Room, block / GROUP);
                Some(found)
            })
    }

    fn search_nearby<T>(
        &self,
        me: &Cpu,
        order: Order,
        kind: FrameKind,
        attempt: &mut impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        let groups = || me.nearby(Nearby::Room, NEARBY);
        let (whole, all) = groups().fold((0, 0), |(whole, all), group| {
            let word = self.hints.in_group(group, Class::WHOLE);
            (whole + word.count_ones(), all + GROUP as u32)
        });
        if whole * PLENTY < all {
            return None;
        }
        groups().find_map(|group| {
            let classes = Class::with_run(kind, order).chain([Class::WHOLE]);
            let found = classes
                .flat_map(|class| super::block::bits(self.hints.in_group(group, class)))
                .find_map(|bit| attempt(GROUP * group + bit))?;
            self.note_found(me, Nearby::Room, group);
            Some(found)
        })
    }

    /// Offers groups that have whole blocks, with those blocks as bits, until `attempt` is content.
    pub(super) fn search_whole<T>(
        &self,
        me: &Cpu,
        mut attempt: impl FnMut(usize, u64) -> Option<T>,
    ) -> Option<T> {
        let mut in_group = |group: usize| match self.hints.in_group(group, Class::WHOLE) {
            0 => None,
            blocks => {
                let found = attempt(group, blocks)?;
                self.note_found(me, Nearby::Whole, group);
                Some(found)
            }
        };
        if me.home == self.id {
            let found = me
                .nearby(Nearby::Whole, NEARBY_WHOLE)
                .find_map(&mut in_group);
            if found.is_some() {
                return found;
            }
        }
        let mut seen = None;
        self.hints
            .candidates(Class::WHOLE, me.start(self.id))
            .map(|block| block / GROUP)
            .filter(|&group| seen.replace(group) != Some(group))
            .find_map(in_group)
    }

    fn note_found(&self, me: &Cpu, what: Nearby, group: usize) {
        if me.home == self.id {
            me.note_group(what, group, true);
        }
    }
}
