//! The debug mode: who frees what he does not have, or writes to what he has freed, is caught.
//!
//! A bit per frame says whether it is allocated, apart from the maps, which do not tell an allocated
//! frame from a cached one, and another one for what kind. Where the memory itself can be reached, freed frames are filled with
//! [`POISON`], and looked at when they are allocated again.

use alloc::boxed::Box;
use core::fmt::Debug as Printable;
use core::sync::atomic::{AtomicU64, Ordering};

use super::FrameKind;
use crate::ids::{FRAMES_PER_BLOCK, FrameId, NodeId, Order};

/// What freed frames are filled with: as an address it is one that no processor has.
pub const POISON: u64 = 0x6b6b_6b6b_6b6b_6b6b;

/// Access to the memory behind frames.
pub trait FrameMemory: Sync + Printable {
    /// Writes `word` to all words of `2^order` frames that nobody uses.
    fn fill(&self, first: FrameId, order: Order, word: u64);

    /// The offset in bytes of the first word that is not `word` in `2^order` frames that nobody
    /// uses.
    fn first_other(&self, first: FrameId, order: Order, word: u64) -> Option<usize>;
}

const WORDS: usize = FRAMES_PER_BLOCK / 64;

/// A bit for each frame of a block.
#[derive(Default)]
struct Bits([AtomicU64; WORDS]);

impl Bits {
    /// Makes the bits of `frames` frames from `first` on be `wanted`; the first one that was so.
    fn set(&self, first: usize, frames: usize, wanted: bool) -> Option<usize> {
        let mut found = None;
        let mut at = first;
        while at < first + frames {
            let count = (64 - at % 64).min(first + frames - at);
            let mask = (u64::MAX >> (64 - count)) << (at % 64);
            let word = &self.0[at / 64];
            let same = if wanted {
                word.fetch_or(mask, Ordering::Relaxed) & mask
            } else {
                !word.fetch_and(!mask, Ordering::Relaxed) & mask
            };
            if same != 0 && found.is_none() {
                found = Some(at / 64 * 64 + same.trailing_zeros() as usize);
            }
            at += count;
        }
        found
    }
}

#[derive(Default)]
struct BlockState {
    allocated: Bits,
    unmovable: Bits,
    poisoned: Bits,
}

/// What the debug mode knows of all frames.
pub(super) struct Debug {
    nodes: Box<[Box<[BlockState]>]>,
    memory: Option<&'static dyn FrameMemory>,
}

impl Debug {
    /// For nodes with so many blocks, none of whose frames is allocated.
    pub(super) fn new(
        blocks: impl Iterator<Item = usize>,
        memory: Option<&'static dyn FrameMemory>,
    ) -> Self {
        let node = |blocks| (0..blocks).map(|_| BlockState::default()).collect();
        Self {
            nodes: blocks.map(node).collect(),
            memory,
        }
    }

    /// The blocks of a run that starts in a block of a node.
    fn blocks(&self, (node, block): (NodeId, usize), order: Order) -> &[BlockState] {
        let count = order.frames().div_ceil(FRAMES_PER_BLOCK);
        &self.nodes[node.index()][block..block + count]
    }

    /// A run is being handed out.
    pub(super) fn allocated(
        &self,
        at: (NodeId, usize),
        frame: FrameId,
        order: Order,
        kind: FrameKind,
    ) {
        let first = frame.offset_in_block();
        let frames = order.frames().min(FRAMES_PER_BLOCK);
        let blocks = self.blocks(at, order);
        for block in blocks {
            let twice = block.allocated.set(first, frames, true);
            assert!(twice.is_none(), "{frame:?} was handed out twice");
            let _ = block
                .unmovable
                .set(first, frames, kind == FrameKind::Unmovable);
        }
        let Some(memory) = self.memory else { return };
        for number in 0..order.frames() {
            let one = frame.add(number);
            let state = &blocks[(first + number) / FRAMES_PER_BLOCK];
            let poisoned = state
                .poisoned
                .set(one.offset_in_block(), 1, false)
                .is_none();
            if poisoned && let Some(byte) = memory.first_other(one, Order::BASE, POISON) {
                panic!("{one:?} was written to at byte {byte} after it was freed");
            }
        }
    }

    /// A run is being given back.
    pub(super) fn freed(&self, at: (NodeId, usize), frame: FrameId, order: Order, kind: FrameKind) {
        let first = frame.offset_in_block();
        let frames = order.frames().min(FRAMES_PER_BLOCK);
        let blocks = self.blocks(at, order);
        for (number, block) in blocks.iter().enumerate() {
            if let Some(twice) = block.allocated.set(first, frames, false) {
                let twice =
                    FrameId::new(frame.get() - first as u64).add(number * FRAMES_PER_BLOCK + twice);
                panic!("{twice:?} was freed twice, or never allocated");
            }
            let other = block
                .unmovable
                .set(first, frames, kind != FrameKind::Unmovable);
            assert!(
                other.is_none(),
                "{frame:?} was freed as {kind:?}, but not all of it was allocated so"
            );
        }
        let Some(memory) = self.memory else { return };
        memory.fill(frame, order, POISON);
        for block in blocks {
            let _ = block.poisoned.set(first, frames, true);
        }
    }
}
