//! A block of 512 frames: its map and its entry.
//!
//! The map has a bit per frame, set while the frame is out of the map (allocated, in a processor's
//! cache, or no RAM at all). The entry counts the frames that may still be taken.
//!
//! Taking is in two steps: first the count goes down, which gives the *right* to that many frames,
//! then bits are set. Giving back is the reverse: first bits are cleared, then the count goes up.
//! So at every moment
//!
//! ```text
//! clear bits = count + rights not yet used + frames not yet counted
//! ```
//!
//! Whoever holds a right therefore always finds a clear bit, without waiting for anybody; and a
//! count of 512 means that nobody is between the two steps, so one compare-exchange from 512 to 0
//! takes the whole block.

use core::fmt;

use super::FrameKind;
use super::cpu::{Cpu, Event};
use super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::ids::{CpuId, FRAMES_PER_BLOCK, Order};

const WORDS: usize = FRAMES_PER_BLOCK / 64;

/// What a block's entry says: the free frames, the processor that has reserved it, the kind.
///
/// Bits 0–9: frames that may be taken, 0 to 512. Bits 10–18: the owner's number plus one, or 0.
/// Bit 19: the block holds unmovable frames. A block without a frame to take has no owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u32);

/// How a block that nobody has reserved can serve. Blocks of a class are found by [`Hints`].
///
/// [`Hints`]: super::hints::Hints
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Broken, with room, and all its allocated frames are movable.
    Movable,
    /// Broken, with room, and some of its allocated frames may be unmovable.
    Unmovable,
    /// All its frames are free.
    Whole,
}

impl Class {
    /// All classes.
    pub(super) const ALL: [Self; 3] = [Self::Movable, Self::Unmovable, Self::Whole];
}

impl From<FrameKind> for Class {
    fn from(kind: FrameKind) -> Self {
        match kind {
            FrameKind::Movable => Self::Movable,
            FrameKind::Unmovable => Self::Unmovable,
        }
    }
}

impl Entry {
    const FREE: u32 = (1 << 10) - 1;
    const OWNER_SHIFT: u32 = 10;
    const OWNER: u32 = 0x1ff << Self::OWNER_SHIFT;
    const UNMOVABLE: u32 = 1 << 19;

    /// An entry with `free` frames, of no owner.
    pub(super) const fn new(free: usize) -> Self {
        Self(free as u32)
    }

    /// The frames that may be taken.
    pub(super) const fn free(self) -> usize {
        (self.0 & Self::FREE) as usize
    }

    /// The processor that has reserved the block.
    pub(super) fn owner(self) -> Option<CpuId> {
        let owner = (self.0 & Self::OWNER) >> Self::OWNER_SHIFT;
        owner.checked_sub(1).map(|cpu| CpuId::new(cpu as u16))
    }

    /// The kind of frames that the block is used for.
    pub(super) const fn kind(self) -> FrameKind {
        if self.0 & Self::UNMOVABLE == 0 {
            FrameKind::Movable
        } else {
            FrameKind::Unmovable
        }
    }

    /// The class under which the block can be found, unless it is full or reserved.
    pub(super) fn class(self) -> Option<Class> {
        match (self.owner(), self.free()) {
            (Some(_), _) | (None, 0) => None,
            (None, FRAMES_PER_BLOCK) => Some(Class::Whole),
            (None, _) => Some(self.kind().into()),
        }
    }

    /// The entry after `frames` were taken for `kind`. Unmovable frames mark the block, and the
    /// mark stays until the block has been whole.
    pub(super) fn take(self, frames: usize, kind: FrameKind) -> Self {
        let free = self.free() - frames;
        let was_whole = self.free() == FRAMES_PER_BLOCK;
        let kind = match (kind, self.kind()) {
            (FrameKind::Movable, FrameKind::Unmovable) if !was_whole => Self::UNMOVABLE,
            (FrameKind::Movable, _) => 0,
            (FrameKind::Unmovable, _) => Self::UNMOVABLE,
        };
        let owner = if free == 0 { 0 } else { self.0 & Self::OWNER };
        Self(free as u32 | owner | kind)
    }

    /// The entry with another owner.
    pub(super) fn with_owner(self, owner: Option<CpuId>) -> Self {
        let owner = match owner {
            Some(cpu) if self.free() > 0 => (u32::from(cpu.get()) + 1) << Self::OWNER_SHIFT,
            _ => 0,
        };
        Self(self.0 & !Self::OWNER | owner)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("free", &self.free())
            .field("owner", &self.owner())
            .field("kind", &self.kind())
            .finish()
    }
}

/// The old and the new entry of a change.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct Change {
    /// Before.
    pub(super) old: Entry,
    /// After.
    pub(super) new: Entry,
}

/// A block of frames. Two neighbours share no pair of cache lines, since each may be reserved by
/// another processor; the map and the entry are one pair, which the prefetcher fetches together.
#[repr(C, align(128))]
pub(super) struct Block {
    map: [AtomicU64; WORDS],
    entry: AtomicU32,
    /// Which of the set bits are frames in a processor's cache, to detect that a frame is freed
    /// twice before it has left the cache.
    #[cfg(debug_assertions)]
    cached: [core::sync::atomic::AtomicU64; WORDS],
}

#[cfg(not(any(debug_assertions, feature = "shuttle")))]
const _: () = assert!(size_of::<Block>() == 128);
const _: () = assert!(align_of::<Block>() == 128);

/// The frames `first..first + frames` of a word.
const fn word_mask(first: usize, frames: usize) -> u64 {
    (u64::MAX >> (64 - frames)) << first
}

/// The bits at which an aligned run of `2^order` clear bits of `word` starts, for orders up to 6.
fn runs_in_word(word: u64, order: u32) -> u64 {
    let mut starts = !word;
    for step in 0..order {
        starts &= starts >> (1 << step);
    }
    // A bit at every multiple of 2^order.
    starts & (u64::MAX / (u64::MAX >> (64 - (1 << order))))
}

impl Block {
    /// A block without any RAM.
    pub(super) const fn absent() -> Self {
        Self {
            map: [const { AtomicU64::new(u64::MAX) }; WORDS],
            entry: AtomicU32::new(Entry::new(0).0),
            #[cfg(debug_assertions)]
            cached: [const { core::sync::atomic::AtomicU64::new(0) }; WORDS],
        }
    }

    /// Adds frames that are RAM, while the block is not in use yet.
    pub(super) fn add_frames(&mut self, first: usize, frames: usize) {
        for frame in first..first + frames {
            *self.map[frame / 64].get_mut() &= !(1 << (frame % 64));
        }
        *self.entry.get_mut() += frames as u32;
    }

    /// The clear bits of the map.
    #[cfg(test)]
    pub(super) fn clear_bits(&self) -> usize {
        let zeros = |word: &AtomicU64| word.load(Ordering::Relaxed).count_zeros() as usize;
        self.map.iter().map(zeros).sum()
    }

    /// The entry as it is now.
    pub(super) fn entry(&self) -> Entry {
        Entry(self.entry.load(Ordering::SeqCst))
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
            match self
                .entry
                .compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return Some(Change { old, new }),
                Err(now) => {
                    me.count(Event::Contended);
                    old = Entry(now);
                }
            }
        }
    }

    /// Adds frames whose bits were cleared to the count.
    pub(super) fn give_back(&self, frames: usize) -> Change {
        let old = Entry(self.entry.fetch_add(frames as u32, Ordering::SeqCst));
        assert!(
            old.free() + frames <= FRAMES_PER_BLOCK,
            "frames were freed twice"
        );
        Change {
            old,
            new: Entry(old.0 + frames as u32),
        }
    }

    /// Takes `frames` single frames, for which the caller holds the right, lowest first as far as
    /// nobody interferes, and passes their positions on.
    pub(super) fn take_frames(&self, me: &Cpu, frames: usize, mut taken: impl FnMut(usize)) {
        let mut missing = frames;
        loop {
            for (index, word) in self.map.iter().enumerate() {
                let mut clear = !word.load(Ordering::Relaxed);
                let mut wanted = 0u64;
                while clear != 0 && (wanted.count_ones() as usize) < missing {
                    let lowest = clear & clear.wrapping_neg();
                    wanted |= lowest;
                    clear ^= lowest;
                }
                if wanted == 0 {
                    continue;
                }
                // Bits that another processor has set meanwhile stay its own.
                let mut got = wanted & !word.fetch_or(wanted, Ordering::AcqRel);
                if got != wanted {
                    me.count(Event::Contended);
                }
                missing -= got.count_ones() as usize;
                while got != 0 {
                    taken(index * 64 + got.trailing_zeros() as usize);
                    got &= got - 1;
                }
                if missing == 0 {
                    return;
                }
            }
        }
    }

    /// Whether the map has an aligned run of `2^order` clear bits, for orders up to 8.
    pub(super) fn has_run(&self, order: Order) -> bool {
        let order = u32::from(order.get());
        let words = |words: &[AtomicU64]| words.iter().all(|w| w.load(Ordering::Relaxed) == 0);
        match order {
            0..=6 => self
                .map
                .iter()
                .any(|word| runs_in_word(word.load(Ordering::Relaxed), order) != 0),
            _ => self.map.chunks(1 << (order - 6)).any(words),
        }
    }

    /// Takes an aligned run of `2^order` frames, orders up to 8, for which the caller holds the
    /// right, and returns the position of the first. There may be none although the count was
    /// high enough; then the caller must give the right back.
    pub(super) fn take_run(&self, me: &Cpu, order: Order) -> Option<usize> {
        let frames = order.frames();
        if frames > 64 {
            let per_run = frames / 64;
            return (0..WORDS / per_run)
                .map(|run| run * per_run)
                .find(|&first| self.take_words(me, first, per_run))
                .map(|first| first * 64);
        }
        for (index, word) in self.map.iter().enumerate() {
            let mut old = word.load(Ordering::Relaxed);
            loop {
                let starts = runs_in_word(old, u32::from(order.get()));
                if starts == 0 {
                    break;
                }
                let first = starts.trailing_zeros() as usize;
                let new = old | word_mask(first, frames);
                match word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => return Some(index * 64 + first),
                    Err(now) => {
                        me.count(Event::Contended);
                        old = now;
                    }
                }
            }
        }
        None
    }

    /// Takes all frames of some words, or none.
    fn take_words(&self, me: &Cpu, first: usize, words: usize) -> bool {
        let words = &self.map[first..first + words];
        if words.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            return false;
        }
        for (index, word) in words.iter().enumerate() {
            let claim = word.compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed);
            if claim.is_err() {
                me.count(Event::Contended);
                for word in &words[..index] {
                    word.store(0, Ordering::Release);
                }
                return false;
            }
        }
        true
    }

    /// Sets all bits of a block that the caller took as a whole.
    pub(super) fn fill(&self) {
        for word in &self.map {
            word.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Clears the bits of frames in one word. The caller counts them with [`Block::give_back`].
    pub(super) fn clear_word(&self, word: usize, mask: u64) {
        let old = self.map[word].fetch_and(!mask, Ordering::AcqRel);
        assert!(old & mask == mask, "a frame was freed twice");
    }

    /// Clears the bits of an aligned run of frames, orders up to 9.
    pub(super) fn clear_run(&self, first: usize, order: Order) {
        self.check_not_cached(first, order.frames());
        if order.frames() < 64 {
            self.clear_word(first / 64, word_mask(first % 64, order.frames()));
            return;
        }
        let words = &self.map[first / 64..][..order.frames() / 64];
        for word in words {
            // The caller owns every frame of the word, so nobody else changes it.
            assert!(
                word.load(Ordering::Relaxed) == u64::MAX,
                "frames were freed twice"
            );
            word.store(0, Ordering::Release);
        }
    }

    /// Notes that a frame enters a processor's cache.
    #[cfg(debug_assertions)]
    pub(super) fn enter_cache(&self, frame: usize) {
        let bit = 1 << (frame % 64);
        let allocated = self.map[frame / 64].load(Ordering::Relaxed);
        let cached = self.cached[frame / 64].fetch_or(bit, Ordering::Relaxed);
        assert!(
            allocated & bit != 0 && cached & bit == 0,
            "a frame was freed twice"
        );
    }

    /// Notes that a frame leaves a processor's cache.
    #[cfg(debug_assertions)]
    pub(super) fn leave_cache(&self, frame: usize) {
        self.cached[frame / 64].fetch_and(!(1 << (frame % 64)), Ordering::Relaxed);
    }

    #[cfg(debug_assertions)]
    fn check_not_cached(&self, first: usize, frames: usize) {
        let cached = |frame: usize| self.cached[frame / 64].load(Ordering::Relaxed) >> (frame % 64);
        assert!(
            (first..first + frames).all(|frame| cached(frame) & 1 == 0),
            "a frame was freed twice"
        );
    }

    #[cfg(not(debug_assertions))]
    fn check_not_cached(&self, _first: usize, _frames: usize) {}
}
