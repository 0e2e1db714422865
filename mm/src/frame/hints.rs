//! Which blocks are worth a look.
//!
//! For each [`Class`] a bit per block, and above it two levels with a bit per 64 of the level below,
//! so that a block of a class is found in a few steps in any amount of memory. The truth is in the
//! blocks' entries.
//!
//! **The lowest level is exact.** A bit is changed after the entry, by whoever changed the entry's
//! class, who looks at the entry again afterwards and repairs the bits until both agree. The last
//! one to change a bit has thus seen the entry that belongs to it: when nobody is in the middle of a
//! change, the bits are right.
//!
//! **The levels above say "perhaps".** A bit there is set when the first bit below is, and cleared by
//! nobody but a search that found nothing below. Such a search looks once more after clearing, and
//! who sets a bit looks above after setting it, so one of the two sees the other. Processors that
//! take and give back the same blocks again and again therefore only read these levels, which they
//! share with others.

use alloc::boxed::Box;

use super::block::bits;
use super::entry::Class;
use super::sync::{AtomicU64, Ordering};

/// Blocks, or groups, below one word.
pub(super) const GROUP: usize = 64;
const LEVELS: usize = 3;

/// A word per class.
#[repr(align(128))]
struct Group([AtomicU64; Class::COUNT]);

impl Group {
    fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; Class::COUNT])
    }
}

/// The classes of a number of blocks.
pub(super) struct Hints {
    levels: [Box<[Group]>; LEVELS],
}

/// Makes the bits of `word` in `mask` be those of `wanted`; whether any was not.
fn assign(word: &AtomicU64, mask: u64, wanted: u64) -> bool {
    let differ = (word.load(Ordering::SeqCst) ^ wanted) & mask;
    if differ & wanted != 0 {
        word.fetch_or(differ & wanted, Ordering::SeqCst);
    }
    if differ & !wanted != 0 {
        word.fetch_and(!(differ & !wanted), Ordering::SeqCst);
    }
    differ != 0
}

impl Hints {
    /// Bytes of hints for each block, and for any number of blocks besides, at most.
    pub(super) const BYTES: (u64, u64) = {
        let group = size_of::<Group>() as u64;
        (group / 64 + 1, LEVELS as u64 * group)
    };

    /// Hints for `blocks` blocks, none of which has a class yet.
    pub(super) fn new(blocks: usize) -> Self {
        let mut count = blocks;
        let levels = core::array::from_fn(|_| {
            count = count.div_ceil(GROUP);
            (0..count).map(|_| Group::empty()).collect()
        });
        Self { levels }
    }

    fn word(&self, level: usize, group: usize, class: Class) -> &AtomicU64 {
        &self.levels[level][group].0[class.index()]
    }

    /// Notes that the blocks `64 * group + n`, n the bits of `mask`, went from one class to another,
    /// which `class` confirms. Returns how often another processor interfered.
    pub(super) fn moved(
        &self,
        group: usize,
        mask: u64,
        (old, new): (Option<Class>, Option<Class>),
        class: impl Fn(usize) -> Option<Class>,
    ) -> u64 {
        if let Some(old) = old {
            self.word(0, group, old).fetch_and(!mask, Ordering::SeqCst);
        }
        if let Some(new) = new {
            let word = self.word(0, group, new);
            if word.fetch_or(mask, Ordering::SeqCst) == 0 {
                self.tell_above(group, new);
            }
        }
        if bits(mask).all(|bit| class(GROUP * group + bit) == new) {
            return 0;
        }
        self.follow(group, mask, class)
    }

    /// Makes the bits of those blocks agree with `class`, whatever they were.
    fn follow(&self, group: usize, mask: u64, class: impl Fn(usize) -> Option<Class>) -> u64 {
        let mut turns = 0;
        loop {
            turns += 1;
            let mut changed = false;
            for each in Class::all() {
                let of_class = |&bit: &usize| class(GROUP * group + bit) == Some(each);
                let wanted = bits(mask)
                    .filter(of_class)
                    .fold(0, |all, bit| all | 1 << bit);
                if assign(self.word(0, group, each), mask, wanted) {
                    changed = true;
                    if wanted != 0 {
                        self.tell_above(group, each);
                    }
                }
            }
            if !changed {
                return turns;
            }
        }
    }

    /// Sets the bits above a group that is no longer empty.
    fn tell_above(&self, group: usize, class: Class) {
        let mut below = group;
        for level in 1..LEVELS {
            let word = self.word(level, below / GROUP, class);
            let bit = 1 << (below % GROUP);
            if word.load(Ordering::SeqCst) & bit == 0 {
                word.fetch_or(bit, Ordering::SeqCst);
            }
            below /= GROUP;
        }
    }

    /// Clears the bit above a group in which a search found nothing.
    fn nothing_below(&self, level: usize, group: usize, class: Class) {
        let word = self.word(level, group / GROUP, class);
        let bit = 1 << (group % GROUP);
        word.fetch_and(!bit, Ordering::SeqCst);
        if self.word(level - 1, group, class).load(Ordering::SeqCst) != 0 {
            word.fetch_or(bit, Ordering::SeqCst);
            // Somebody who cleared a level above meanwhile found this one empty.
            if level + 1 < LEVELS {
                let above = self.word(level + 1, group / GROUP / GROUP, class);
                above.fetch_or(1 << (group / GROUP % GROUP), Ordering::SeqCst);
            }
        }
    }

    /// The blocks of `class` in one group, as bits.
    pub(super) fn in_group(&self, group: usize, class: Class) -> u64 {
        self.word(0, group, class).load(Ordering::SeqCst)
    }

    /// The first block of `class` from `from` on.
    pub(super) fn next(&self, class: Class, from: usize) -> Option<usize> {
        self.next_on(0, class, from)
    }

    /// The first bit that is set on a level, from `from` on.
    fn next_on(&self, level: usize, class: Class, mut from: usize) -> Option<usize> {
        loop {
            let group = from / GROUP;
            if group >= self.levels[level].len() {
                return None;
            }
            let word = self.word(level, group, class).load(Ordering::SeqCst);
            let left = word & (u64::MAX << (from % GROUP));
            if left != 0 {
                return Some(group * GROUP + left.trailing_zeros() as usize);
            }
            from = if level + 1 == LEVELS {
                group + 1
            } else {
                let next = self.next_on(level + 1, class, group + 1)?;
                if self.word(level, next, class).load(Ordering::SeqCst) == 0 {
                    self.nothing_below(level + 1, next, class);
                }
                next
            } * GROUP;
        }
    }

    /// The blocks of `class`: those from `start` on, then those before it.
    pub(super) fn candidates(&self, class: Class, start: usize) -> impl Iterator<Item = usize> {
        let mut from = start;
        let mut wrapped = false;
        core::iter::from_fn(move || {
            loop {
                match self.next(class, from) {
                    Some(found) if !(wrapped && found >= start) => {
                        from = found + 1;
                        return Some(found);
                    }
                    _ if wrapped => return None,
                    _ => {
                        wrapped = true;
                        from = 0;
                    }
                }
            }
        })
    }

    /// Whether all of the `count` blocks from `first` on are of `class`.
    pub(super) fn all(&self, class: Class, first: usize, count: usize) -> bool {
        let mut at = first;
        while at < first + count {
            let bits = (GROUP - at % GROUP).min(first + count - at);
            let mask = (u64::MAX >> (GROUP - bits)) << (at % GROUP);
            if self.in_group(at / GROUP, class) & mask != mask {
                return false;
            }
            at += bits;
        }
        true
    }

    /// Checks that no level misses what is below it, while nobody changes them.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for level in 1..LEVELS {
            for below in 0..self.levels[level - 1].len() {
                for class in Class::all() {
                    let some = self.word(level - 1, below, class).load(Ordering::SeqCst) != 0;
                    let above = self.word(level, below / GROUP, class);
                    let told = above.load(Ordering::SeqCst) >> (below % GROUP) & 1 != 0;
                    assert!(told || !some, "level {level}, {below} of {class:?}");
                }
            }
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::frame::FrameKind;

    const MOVABLE: Class = Class::broken(FrameKind::Movable, 3);
    const UNMOVABLE: Class = Class::broken(FrameKind::Unmovable, 0);

    fn follow(hints: &Hints, block: usize, class: Option<Class>) {
        hints.follow(block / GROUP, 1 << (block % GROUP), |_| class);
    }

    #[test]
    fn candidates_come_from_the_start_and_wrap_once() {
        let hints = Hints::new(600_000);
        let set = [0, 63, 64, 4095, 4096, 9000, 262_143, 262_144, 599_999];
        for block in set {
            follow(&hints, block, Some(Class::WHOLE));
        }
        follow(&hints, 5000, Some(MOVABLE));
        let found: alloc::vec::Vec<_> = hints.candidates(Class::WHOLE, 4096).collect();
        assert_eq!(
            found,
            [4096, 9000, 262_143, 262_144, 599_999, 0, 63, 64, 4095]
        );
        let found: alloc::vec::Vec<_> = hints.candidates(Class::WHOLE, 0).collect();
        assert_eq!(found, set);
        assert_eq!(hints.candidates(UNMOVABLE, 77).next(), None);
        hints.check();
    }

    #[test]
    fn a_search_forgets_what_is_gone_and_finds_what_comes_back() {
        let hints = Hints::new(300_000);
        for _ in 0..3 {
            follow(&hints, 290_000, Some(Class::WHOLE));
            follow(&hints, 290_000, Some(UNMOVABLE));
            assert_eq!(hints.next(Class::WHOLE, 0), None);
            assert_eq!(hints.next(UNMOVABLE, 0), Some(290_000));
            follow(&hints, 290_000, None);
            assert_eq!(hints.next(UNMOVABLE, 0), None);
            // The level above is forgotten when the one below has been.
            assert_eq!(hints.next(UNMOVABLE, 0), None);
            assert_eq!(hints.next(Class::WHOLE, 0), None);
            let of_level = |level: &Group| level.0.iter().all(|w| w.load(Ordering::SeqCst) == 0);
            assert!(hints.levels.iter().all(|level| level.iter().all(of_level)));
        }
    }

    #[test]
    fn runs_are_checked_across_words() {
        let hints = Hints::new(300);
        for block in 60..200 {
            follow(&hints, block, Some(Class::WHOLE));
        }
        assert!(hints.all(Class::WHOLE, 60, 140));
        assert!(!hints.all(Class::WHOLE, 59, 10));
        assert!(!hints.all(Class::WHOLE, 150, 51));
        follow(&hints, 128, None);
        assert!(!hints.all(Class::WHOLE, 60, 140));
        assert!(hints.all(Class::WHOLE, 129, 71));
    }
}
