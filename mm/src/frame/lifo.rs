//! A processor's cache of frames.

use super::drains::Taking;
use super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::ids::FrameId;

const EMPTY: u64 = u64::MAX;

/// Frames freed last, to be allocated first.
///
/// Only the owner puts frames in, and only it moves `oldest` and `next`, so both are ordinary
/// variables of its own. Others may take frames out while a [drain](super::drains) is under way; then
/// taking is an exchange with "empty" for everybody, and at other times two ordinary accesses of the
/// owner.
pub(super) struct Lifo<const CAPACITY: usize> {
    oldest: AtomicU32,
    next: AtomicU32,
    slots: [AtomicU64; CAPACITY],
}

impl<const CAPACITY: usize> Lifo<CAPACITY> {
    /// An empty one.
    pub(super) const fn new() -> Self {
        Self {
            oldest: AtomicU32::new(0),
            next: AtomicU32::new(0),
            slots: [const { AtomicU64::new(EMPTY) }; CAPACITY],
        }
    }

    #[inline]
    fn slot(&self, position: u32) -> &AtomicU64 {
        &self.slots[position as usize % CAPACITY]
    }

    #[inline]
    fn take(slot: &AtomicU64, taking: Taking) -> Option<FrameId> {
        let frame = match taking {
            Taking::Alone => {
                let frame = slot.load(Ordering::Relaxed);
                slot.store(EMPTY, Ordering::Relaxed);
                frame
            }
            Taking::Shared => slot.swap(EMPTY, Ordering::AcqRel),
        };
        (frame != EMPTY).then(|| FrameId::new(frame))
    }

    /// Owner only: the frame put in last.
    #[inline]
    pub(super) fn pop(&self, taking: Taking) -> Option<FrameId> {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let mut next = self.next.load(Ordering::Relaxed);
        let mut found = None;
        while next != oldest && found.is_none() {
            next = next.wrapping_sub(1);
            found = Self::take(self.slot(next), taking);
        }
        self.next.store(next, Ordering::Relaxed);
        found
    }

    /// Owner only: puts a frame in, unless there is no room.
    #[inline]
    pub(super) fn push(&self, frame: FrameId) -> bool {
        let oldest = self.oldest.load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        if next.wrapping_sub(oldest) as usize == CAPACITY {
            return false;
        }
        self.slot(next).store(frame.get(), Ordering::Release);
        self.next.store(next.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// Owner only: takes out up to half of its capacity of the frames that were put in first.
    pub(super) fn take_oldest(&self, taking: Taking, mut taken: impl FnMut(FrameId)) {
        let mut oldest = self.oldest.load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        for _ in 0..(next.wrapping_sub(oldest) as usize).min(CAPACITY / 2) {
            if let Some(frame) = Self::take(self.slot(oldest), taking) {
                taken(frame);
            }
            oldest = oldest.wrapping_add(1);
        }
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    /// Anybody, in a drain: takes frames out, as many as there are while they are asked for.
    pub(super) fn drain(&self) -> impl Iterator<Item = FrameId> {
        let used = self.next.load(Ordering::Relaxed) != self.oldest.load(Ordering::Relaxed);
        let slots = if used { &self.slots[..] } else { &[] };
        slots
            .iter()
            .filter(|slot| slot.load(Ordering::Relaxed) != EMPTY)
            .filter_map(|slot| Self::take(slot, Taking::Shared))
    }

    /// Anybody: the frames it holds.
    pub(super) fn len(&self) -> usize {
        let full = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) != EMPTY;
        self.slots.iter().filter(full).count()
    }
}
