//! What a block says about itself in one word.

use core::fmt;

use super::FrameKind;
use crate::ids::{CpuId, FRAMES_PER_BLOCK, Order};

/// A block's entry: the free frames, the processor that has reserved it, and where to look for it.
///
/// | bits | |
/// |---|---|
/// | 0–9 | frames that may be taken, 0 to 512 |
/// | 10–18 | the owner's number plus one, or 0; a block without a frame to take has no owner |
/// | 19 | the block may hold unmovable frames |
/// | 20 | the phase: what the map's bit of a free frame is |
/// | 21–24 | no run of free frames has a higher order than this, 0 to 8 |
/// | 32–63 | the version: how often frames were given back, modulo 2³² |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u64);

/// How a block that nobody has reserved can serve: broken with movable frames, broken with
/// unmovable ones, each with a bound on its runs; or whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class(u8);

/// Orders of the runs inside a block.
const ORDERS: u8 = Order::HUGE.get();

impl Class {
    /// The number of classes.
    pub(super) const COUNT: usize = 2 * ORDERS as usize + 1;
    /// All frames are free.
    pub(super) const WHOLE: Self = Self(2 * ORDERS);

    /// A broken block of a kind whose free runs have at most the order `bound`, 0 to 8.
    pub(super) const fn broken(kind: FrameKind, bound: u8) -> Self {
        Self(kind as u8 * ORDERS + bound)
    }

    /// Broken blocks of a kind that may have a run of `order`. Those that can do no more come
    /// first, so that long runs stay long.
    pub(super) fn with_run(kind: FrameKind, order: Order) -> impl Iterator<Item = Self> {
        (order.get()..ORDERS).map(move |bound| Self::broken(kind, bound))
    }

    /// All classes.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// Its number, below [`Class::COUNT`].
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Entry {
    const FREE: u64 = (1 << 10) - 1;
    const OWNER_SHIFT: u32 = 10;
    const OWNER: u64 = 0x1ff << Self::OWNER_SHIFT;
    const UNMOVABLE: u64 = 1 << 19;
    const PHASE: u64 = 1 << 20;
    const BOUND_SHIFT: u32 = 21;
    const BOUND: u64 = 0xf << Self::BOUND_SHIFT;
    const VERSION: u64 = 1 << 32;
    /// Bits 25–31 are never set, so the version above them counts undisturbed.
    const USED: u64 = !(0x7f << 25);
    const HIGHEST: u8 = ORDERS - 1;

    /// An entry with `free` frames, of no owner, in phase 0.
    pub(super) const fn new(free: usize) -> Self {
        Self(free as u64 | (Self::HIGHEST as u64) << Self::BOUND_SHIFT)
    }

    /// From the word that holds it.
    pub(super) const fn from_word(word: u64) -> Self {
        debug_assert!(word & !Self::USED == 0, "a count has overflowed");
        Self(word)
    }

    /// The word that holds it.
    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// The frames that may be taken.
    pub(super) const fn free(self) -> usize {
        (self.0 & Self::FREE) as usize
    }

    /// Whether all frames may be taken.
    pub(super) const fn is_whole(self) -> bool {
        self.free() == FRAMES_PER_BLOCK
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

    /// The map's word of 64 free frames. It changes only when the block is taken or given back as a
    /// whole, while nobody else has a right to any of its frames.
    pub(super) const fn free_word(self) -> u64 {
        if self.0 & Self::PHASE == 0 {
            0
        } else {
            u64::MAX
        }
    }

    /// The highest order that a run of free frames may have.
    pub(super) const fn bound(self) -> u8 {
        ((self.0 & Self::BOUND) >> Self::BOUND_SHIFT) as u8
    }

    /// The class under which the block can be found, unless it is full or reserved.
    pub(super) fn class(self) -> Option<Class> {
        match (self.owner(), self.free()) {
            (Some(_), _) | (None, 0) => None,
            (None, FRAMES_PER_BLOCK) => Some(Class::WHOLE),
            (None, _) => Some(Class::broken(self.kind(), self.bound())),
        }
    }

    /// The entry after `frames` were taken for `kind`. Unmovable frames mark the block, and the
    /// mark stays until the block has been whole.
    pub(super) fn take(self, frames: usize, kind: FrameKind) -> Self {
        let free = self.free() - frames;
        let kind = match (kind, self.kind()) {
            (FrameKind::Movable, FrameKind::Unmovable) if !self.is_whole() => Self::UNMOVABLE,
            (FrameKind::Movable, _) => 0,
            (FrameKind::Unmovable, _) => Self::UNMOVABLE,
        };
        let owner = if free == 0 { 0 } else { self.0 & Self::OWNER };
        let kept = self.0 & !(Self::FREE | Self::OWNER | Self::UNMOVABLE);
        let taken = Self(kept | free as u64 | owner | kind);
        if self.is_whole() {
            taken.with_bound(Self::HIGHEST)
        } else {
            taken
        }
    }

    /// The entry of a whole block after all its frames were taken at once: the other phase makes
    /// every bit of the map say so.
    pub(super) fn take_whole(self, kind: FrameKind) -> Self {
        Self(self.take(FRAMES_PER_BLOCK, kind).0 ^ Self::PHASE)
    }

    /// The entry of a full block after all its frames were given back at once.
    pub(super) const fn give_back_whole(self) -> Self {
        let counted = self.0.wrapping_add(Self::counted(FRAMES_PER_BLOCK));
        Self(counted ^ Self::PHASE)
    }

    /// What to add to the word when `frames` are given back.
    pub(super) const fn counted(frames: usize) -> u64 {
        Self::VERSION + frames as u64
    }

    /// The entry with another owner.
    pub(super) fn with_owner(self, owner: Option<CpuId>) -> Self {
        let owner = match owner {
            Some(cpu) if self.free() > 0 => (u64::from(cpu.get()) + 1) << Self::OWNER_SHIFT,
            _ => 0,
        };
        Self(self.0 & !Self::OWNER | owner)
    }

    /// The entry with another bound, 0 to 8.
    pub(super) const fn with_bound(self, bound: u8) -> Self {
        Self(self.0 & !Self::BOUND | (bound as u64) << Self::BOUND_SHIFT)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("free", &self.free())
            .field("owner", &self.owner())
            .field("kind", &self.kind())
            .field("phase", &(self.free_word() & 1))
            .field("bound", &self.bound())
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
