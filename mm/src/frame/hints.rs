//! Which blocks are worth a look.
//!
//! For each [`Class`] a bit per block, and above it a bit per 64 blocks, so that a block of a class
//! is found in a few steps in any amount of memory. The truth is in the blocks' entries. A bit is
//! changed after the entry, by whoever changed the entry's class, who looks at the entry again
//! afterwards and repairs the bit until both agree. The last one to change a bit has thus seen the
//! entry that belongs to it: when nobody is in the middle of a change, the bits are exact. The same
//! holds between the two levels.

use alloc::boxed::Box;

use super::block::Class;
use super::sync::{AtomicU64, Ordering};

/// A word per class; 64 blocks or 64 groups of 64 blocks.
#[repr(align(128))]
struct Group([AtomicU64; Class::ALL.len()]);

impl Group {
    fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; Class::ALL.len()])
    }
}

/// The classes of a number of blocks.
pub(super) struct Hints {
    blocks: Box<[Group]>,
    groups: Box<[Group]>,
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

/// The bits that are set in `mask`, lowest first.
pub(super) fn bits(mask: u64) -> impl Iterator<Item = usize> {
    let mut left = mask;
    core::iter::from_fn(move || {
        let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(bit)
    })
}

impl Hints {
    /// Hints for `blocks` blocks, none of which has a class yet.
    pub(super) fn new(blocks: usize) -> Self {
        let groups = blocks.div_ceil(64);
        let make = |count: usize| (0..count).map(|_| Group::empty()).collect();
        Self {
            blocks: make(groups),
            groups: make(groups.div_ceil(64)),
        }
    }

    /// Makes the bits of the blocks `64 * group + n`, n the bits of `mask`, agree with `class`,
    /// which is evaluated until it stays the same.
    pub(super) fn follow(&self, group: usize, mask: u64, class: impl Fn(usize) -> Option<Class>) {
        loop {
            let mut wanted = [0; Class::ALL.len()];
            for bit in bits(mask) {
                if let Some(class) = class(64 * group + bit) {
                    wanted[class as usize] |= 1 << bit;
                }
            }
            let mut changed = false;
            for each in Class::ALL {
                let word = &self.blocks[group].0[each as usize];
                if assign(word, mask, wanted[each as usize]) {
                    changed = true;
                    self.follow_group(group, each);
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn follow_group(&self, group: usize, class: Class) {
        let below = &self.blocks[group].0[class as usize];
        let above = &self.groups[group / 64].0[class as usize];
        let bit = 1 << (group % 64);
        let wanted = || {
            if below.load(Ordering::SeqCst) != 0 {
                bit
            } else {
                0
            }
        };
        while assign(above, bit, wanted()) {}
    }

    /// Checks that the two levels agree, while nobody changes them.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (index, group) in self.blocks.iter().enumerate() {
            for (below, above) in group.0.iter().zip(&self.groups[index / 64].0) {
                let some = below.load(Ordering::SeqCst) != 0;
                let hinted = above.load(Ordering::SeqCst) >> (index % 64) & 1 != 0;
                assert_eq!(some, hinted, "group {index}");
            }
        }
    }

    /// The first block of `class` from `from` on.
    pub(super) fn next(&self, class: Class, from: usize) -> Option<usize> {
        let class = class as usize;
        let mut group = from / 64;
        let mut within = from % 64;
        loop {
            let word = self.blocks.get(group)?.0[class].load(Ordering::SeqCst);
            let word = word & (u64::MAX << within);
            if word != 0 {
                return Some(group * 64 + word.trailing_zeros() as usize);
            }
            group = self.next_group(class, group + 1)?;
            within = 0;
        }
    }

    fn next_group(&self, class: usize, from: usize) -> Option<usize> {
        let mut within = from % 64;
        for (index, word) in self.groups.iter().enumerate().skip(from / 64) {
            let word = word.0[class].load(Ordering::SeqCst) & (u64::MAX << within);
            if word != 0 {
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
            within = 0;
        }
        None
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
            let bits = (64 - at % 64).min(first + count - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            let word = self.blocks[at / 64].0[class as usize].load(Ordering::SeqCst);
            if word & mask != mask {
                return false;
            }
            at += bits;
        }
        true
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn follow(hints: &Hints, block: usize, class: Option<Class>) {
        hints.follow(block / 64, 1 << (block % 64), |_| class);
    }

    #[test]
    fn candidates_come_from_the_start_and_wrap_once() {
        let hints = Hints::new(20_000);
        let set = [0, 63, 64, 4095, 4096, 9000, 19_999];
        for block in set {
            follow(&hints, block, Some(Class::Whole));
        }
        follow(&hints, 5000, Some(Class::Movable));
        let found: alloc::vec::Vec<_> = hints.candidates(Class::Whole, 4096).collect();
        assert_eq!(found, [4096, 9000, 19_999, 0, 63, 64, 4095]);
        let found: alloc::vec::Vec<_> = hints.candidates(Class::Whole, 0).collect();
        assert_eq!(found, set);
        assert_eq!(hints.candidates(Class::Unmovable, 77).next(), None);
    }

    #[test]
    fn a_class_that_changes_leaves_no_trace() {
        let hints = Hints::new(300);
        follow(&hints, 299, Some(Class::Whole));
        follow(&hints, 299, Some(Class::Unmovable));
        assert_eq!(hints.next(Class::Whole, 0), None);
        assert_eq!(hints.next(Class::Unmovable, 0), Some(299));
        follow(&hints, 299, None);
        assert_eq!(hints.next(Class::Unmovable, 0), None);
        assert!(
            hints
                .groups
                .iter()
                .all(|group| { group.0.iter().all(|word| word.load(Ordering::Relaxed) == 0) })
        );
    }

    #[test]
    fn runs_are_checked_across_words() {
        let hints = Hints::new(300);
        for block in 60..200 {
            follow(&hints, block, Some(Class::Whole));
        }
        assert!(hints.all(Class::Whole, 60, 140));
        assert!(!hints.all(Class::Whole, 59, 10));
        assert!(!hints.all(Class::Whole, 150, 51));
        follow(&hints, 128, None);
        assert!(!hints.all(Class::Whole, 60, 140));
        assert!(hints.all(Class::Whole, 129, 71));
    }
}
