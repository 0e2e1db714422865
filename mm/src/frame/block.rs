//! A block of 512 frames: its map and its entry.
//!
//! The map has a bit per frame that says whether the frame is in the map or out of it (allocated, in
//! a processor's cache, or no RAM at all); the entry's *phase* says which value means which. The
//! entry counts the frames that may still be taken.
//!
//! **Rights.** Taking is in two steps: first the count goes down, which gives the *right* to that
//! many frames, then bits are changed. Giving back is the reverse: first bits are changed, then the
//! count goes up. So at every moment
//!
//! ```text
//! free bits = count + rights not yet used + frames not yet counted
//! ```
//!
//! Whoever holds a right therefore always finds a free bit, without waiting for anybody; and a count
//! of 512 means that nobody is between the two steps. So a whole block is taken by one
//! compare-exchange of the entry, which turns the phase over instead of writing 512 bits. The phase
//! is constant as long as anybody holds a frame of the block, or the right to one.
//!
//! **The bound.** The entry also says how long a run of free frames can be. Taking leaves it alone.
//! Who gives frames back looks, after changing the bits, how long a run they are part of now, and
//! raises the bound after counting them. It is lowered by who has searched the whole map, with a
//! compare-exchange that fails if frames were counted since the search began; who counts later finds
//! the low bound and raises it. So the bound is too low only while somebody is on his way to raise it.

use super::FrameKind;
use super::cpu::{Cpu, Event};
use super::entry::{Change, Entry};
use super::sync::{AtomicU64, Ordering};
use crate::ids::{FRAMES_PER_BLOCK, Order};
use crate::prefetch::prefetch_for_write;

const WORDS: usize = FRAMES_PER_BLOCK / 64;

/// A block of frames. Two neighbours share no pair of cache lines, since each may be reserved by
/// another processor; the map and the entry are one pair, which the prefetcher fetches together.
#[repr(C, align(128))]
pub(super) struct Block {
    map: [AtomicU64; WORDS],
    entry: AtomicU64,
}

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Block>() == 128);
const _: () = assert!(align_of::<Block>() == 128);

/// The frames `first..first + frames` of a word.
const fn word_mask(first: usize, frames: usize) -> u64 {
    (u64::MAX >> (64 - frames)) << first
}

/// By order, up to 6: a bit at every multiple of `2^order`.
const MULTIPLES: [u64; 7] = {
    let mut multiples = [u64::MAX; 7];
    let mut order = 1;
    while order < 7 {
        multiples[order] = u64::MAX / (u64::MAX >> (64 - (1u32 << order)));
        order += 1;
    }
    multiples
};

/// The bits at which an aligned run of `2^order` set bits of `free` starts, for orders up to 6.
const fn runs_in_word(free: u64, order: u8) -> u64 {
    let mut starts = free;
    let mut step = 0;
    while step < order {
        starts &= starts >> (1 << step);
        step += 1;
    }
    starts & MULTIPLES[order as usize]
}

/// The order of the longest aligned run of set bits of `free`, which has some but not all: 0 to 5. It
/// has no branches, since nobody could guess them.
const fn longest_in_word(free: u64) -> u8 {
    let mut runs = free;
    let mut longest = 0;
    let mut order = 1;
    while order < 6 {
        runs &= runs >> (1 << (order - 1));
        longest += (runs & MULTIPLES[order] != 0) as u8;
        order += 1;
    }
    longest
}

/// The positions of the set bits, lowest first.
pub(super) fn bits(word: u64) -> impl Iterator<Item = usize> {
    let mut left = word;
    core::iter::from_fn(move || {
        let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(bit)
    })
}

impl Block {
    /// A block without any RAM.
    pub(super) const fn absent() -> Self {
        Self {
            map: [const { AtomicU64::new(u64::MAX) }; WORDS],
            entry: AtomicU64::new(Entry::new(0).word()),
        }
    }

    /// Adds frames that are RAM, while the block is not in use yet.
    pub(super) fn add_frames(&mut self, first: usize, frames: usize) {
        for frame in first..first + frames {
            *self.map[frame / 64].get_mut() &= !(1 << (frame % 64));
        }
        *self.entry.get_mut() += frames as u64;
    }

    /// The frames of one word that are in the map, as set bits.
    fn free_in(&self, word: usize, entry: Entry) -> u64 {
        !(self.map[word].load(Ordering::SeqCst) ^ entry.free_word())
    }

    /// The frames that are in the map.
    #[cfg(test)]
    pub(super) fn free_bits(&self) -> usize {
        let entry = self.entry();
        let ones = |word| self.free_in(word, entry).count_ones() as usize;
        (0..WORDS).map(ones).sum()
    }

    /// Takes the frames in `mask` out of one word of the map, those that are still in it. Returns
    /// which those were.
    fn take_out(&self, word: usize, mask: u64, entry: Entry) -> u64 {
        let old = if entry.free_word() == 0 {
            self.map[word].fetch_or(mask, Ordering::SeqCst)
        } else {
            self.map[word].fetch_and(!mask, Ordering::SeqCst)
        };
        !(old ^ entry.free_word()) & mask
    }

    /// The entry as it is now.
    pub(super) fn entry(&self) -> Entry {
        Entry::from_word(self.entry.load(Ordering::SeqCst))
    }

    /// Changes the entry to what `change` makes of it, unless that is nothing. Compare-exchanges
    /// that failed because of another processor are counted.
    pub(super) fn update(
        &self,
        me: &Cpu,
        mut change: impl FnMut(Entry) -> Option<Entry>,
    ) -> Option<Change> {
        let mut old = self.entry();
        loop {
            let new = change(old)?;
            let (was, wanted) = (old.word(), new.word());
            let swap = self
                .entry
                .compare_exchange(was, wanted, Ordering::SeqCst, Ordering::SeqCst);
            match swap {
                Ok(_) => return Some(Change { old, new }),
                Err(now) => {
                    me.count(Event::EntryContended);
                    old = Entry::from_word(now);
                }
            }
        }
    }

    /// Takes `frames` single frames, for which the caller holds the right, lowest first as far as
    /// nobody interferes, and passes their positions on. `entry` is the block's, at any time since.
    pub(super) fn take_frames(
        &self,
        me: &Cpu,
        entry: Entry,
        frames: usize,
        mut taken: impl FnMut(usize),
    ) {
        let mut missing = frames;
        loop {
            for word in 0..WORDS {
                let mut wanted = 0u64;
                let free = bits(self.free_in(word, entry));
                free.take(missing).for_each(|bit| wanted |= 1 << bit);
                if wanted == 0 {
                    continue;
                }
                // Those that another processor has taken meanwhile stay its own.
                let got = self.take_out(word, wanted, entry);
                if got != wanted {
                    me.count(Event::MapContended);
                }
                missing -= got.count_ones() as usize;
                bits(got).for_each(|bit| taken(word * 64 + bit));
                if missing == 0 {
                    return;
                }
            }
        }
    }

    /// Whether the map has an aligned run of `2^order` free frames, for orders up to 8.
    pub(super) fn has_run(&self, entry: Entry, order: u8) -> bool {
        if order <= 6 {
            let has = |word| runs_in_word(self.free_in(word, entry), order) != 0;
            return (0..WORDS).any(has);
        }
        let all_free = |run: &[AtomicU64]| {
            run.iter()
                .all(|word| word.load(Ordering::SeqCst) == entry.free_word())
        };
        self.map.chunks(1 << (order - 6)).any(all_free)
    }

    /// Lowers the bound to what the map has, unless frames were given back meanwhile.
    pub(super) fn lower_bound(&self, me: &Cpu) -> Option<Change> {
        let mut first = None;
        self.update(me, |entry| {
            // A second look would have to search anew.
            if entry.free() == 0 || entry.is_whole() || first.replace(entry).is_some() {
                return None;
            }
            let highest = (0..=entry.bound())
                .rev()
                .find(|&order| self.has_run(entry, order));
            let bound = highest.unwrap_or(0);
            (bound < entry.bound()).then(|| entry.with_bound(bound))
        })
    }

    /// Takes an aligned run of `2^order` frames, orders up to 8, for which the caller holds the
    /// right, and returns the position of the first. There may be none although the count was high
    /// enough; then the caller counts the right back, and raises the bound to `order`: the search may
    /// have hidden a run for a moment.
    pub(super) fn take_run(&self, me: &Cpu, entry: Entry, order: Order) -> Option<usize> {
        let frames = order.frames();
        if frames > 64 {
            let per_run = frames / 64;
            return (0..WORDS / per_run)
                .map(|run| run * per_run)
                .find(|&first| self.take_words(me, entry, first, per_run))
                .map(|first| first * 64);
        }
        for word in 0..WORDS {
            let mut free = self.free_in(word, entry);
            loop {
                let starts = runs_in_word(free, order.get());
                if starts == 0 {
                    break;
                }
                let first = starts.trailing_zeros() as usize;
                let raw = |free: u64| !(free ^ entry.free_word());
                let (old, new) = (raw(free), raw(free & !word_mask(first, frames)));
                let swap =
                    self.map[word].compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
                match swap {
                    Ok(_) => return Some(word * 64 + first),
                    Err(now) => {
                        me.count(Event::MapContended);
                        free = raw(now);
                    }
                }
            }
        }
        None
    }

    /// Takes all frames of some words, or none.
    fn take_words(&self, me: &Cpu, entry: Entry, first: usize, words: usize) -> bool {
        let (free, taken) = (entry.free_word(), !entry.free_word());
        let words = &self.map[first..first + words];
        if words.iter().any(|w| w.load(Ordering::SeqCst) != free) {
            return false;
        }
        for (index, word) in words.iter().enumerate() {
            let claim = word.compare_exchange(free, taken, Ordering::SeqCst, Ordering::SeqCst);
            if claim.is_err() {
                me.count(Event::MapContended);
                for word in &words[..index] {
                    word.store(free, Ordering::SeqCst);
                }
                return false;
            }
        }
        true
    }

    /// Fetches the lines that [`Block::give_back`] changes.
    pub(super) fn prefetch(&self, word: usize) {
        prefetch_for_write(&self.map[word]);
        prefetch_for_write(&self.entry);
    }

    /// Gives the frames in `mask` of one word back, bits and count. Returns the change of the entry
    /// and the order of the longest run of free frames that they may be part of now, to which the
    /// caller raises the bound.
    ///
    /// The bits turn over in both phases. So the entry need not be read before it is counted up: a
    /// line that another processor has written comes over once and not twice.
    pub(super) fn give_back(&self, word: usize, mask: u64) -> (Change, u8) {
        let old = self.map[word].fetch_xor(mask, Ordering::SeqCst);
        let change = self.count_back(mask.count_ones() as usize);
        let before = !(old ^ change.old.free_word());
        assert!(before & mask == 0, "a frame was freed twice");
        let order = match before | mask {
            u64::MAX => self.order_of_words(word, change.old),
            free => longest_in_word(free),
        };
        (change, order)
    }

    /// The order of the run of free words that `word` is part of.
    fn order_of_words(&self, word: usize, entry: Entry) -> u8 {
        let free = |words: usize| {
            let first = word / words * words;
            let mut run = self.map[first..first + words].iter();
            run.all(|word| word.load(Ordering::SeqCst) == entry.free_word())
        };
        match (free(2), free(4)) {
            (true, true) => 8,
            (true, false) => 7,
            _ => 6,
        }
    }

    /// The same for an aligned run of frames, orders up to 8.
    pub(super) fn give_back_run(&self, first: usize, order: Order) -> (Change, u8) {
        let (frames, word) = (order.frames(), first / 64);
        if frames <= 64 {
            return self.give_back(word, word_mask(first % 64, frames));
        }
        let mut old = [0; WORDS];
        let words = word..word + frames / 64;
        for (old, map) in old.iter_mut().zip(&self.map[words.clone()]) {
            *old = map.fetch_xor(u64::MAX, Ordering::SeqCst);
        }
        let change = self.count_back(frames);
        let none_free = old[..words.len()]
            .iter()
            .all(|old| *old == !change.old.free_word());
        assert!(none_free, "frames were freed twice");
        (change, self.order_of_words(word, change.old))
    }

    /// Adds frames whose bits were put back, or a right that was not used, to the count. The caller
    /// raises the bound afterwards.
    pub(super) fn count_back(&self, frames: usize) -> Change {
        let counted = Entry::counted(frames);
        let old = Entry::from_word(self.entry.fetch_add(counted, Ordering::SeqCst));
        assert!(
            old.free() + frames <= FRAMES_PER_BLOCK,
            "frames were freed twice"
        );
        Change {
            old,
            new: Entry::from_word(old.word().wrapping_add(counted)),
        }
    }

    /// Raises the bound to `order` if it is lower.
    pub(super) fn raise_bound(&self, me: &Cpu, order: u8) -> Option<Change> {
        self.update(me, |entry| {
            (entry.bound() < order).then(|| entry.with_bound(order))
        })
    }

    /// Takes all frames of a whole block that nobody has reserved.
    pub(super) fn take_whole(&self, me: &Cpu, kind: FrameKind) -> Option<Change> {
        self.update(me, |entry| {
            let available = entry.is_whole() && entry.owner().is_none();
            available.then(|| entry.take_whole(kind))
        })
    }

    /// Gives all frames of a block back that nobody has a part of.
    pub(super) fn put_whole(&self, me: &Cpu) -> Change {
        let change = self.update(me, |entry| {
            (entry.free() == 0).then(|| entry.give_back_whole())
        });
        change.expect("a block was freed twice, or with a part that is free")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Random;

    #[test]
    fn the_longest_run_of_a_word_is_found_without_a_search() {
        let random = Random::new(1);
        for round in 0..10_000 {
            // Dense words have long runs.
            let dense = (0..round % 5).fold(random.next(), |free, _| free | random.next());
            if dense == 0 || dense == u64::MAX {
                continue;
            }
            let has = |&order: &u8| runs_in_word(dense, order) != 0;
            let longest = (0..6).rev().find(has).unwrap();
            assert_eq!(longest_in_word(dense), longest, "{dense:#x}");
        }
        assert_eq!(longest_in_word(u64::MAX << 32), 5);
        assert_eq!(longest_in_word(u64::MAX << 33), 4);
        assert_eq!(longest_in_word(0b0110), 0);
    }
}
