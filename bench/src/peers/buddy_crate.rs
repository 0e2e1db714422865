//! The crate `buddy_system_allocator` behind one lock.

use buddy_system_allocator::FrameAllocator;
use spin::Mutex;

use super::{FreeMemory, HUGE, HUGE_FRAMES, Peer};

/// Its largest run is 2^32 frames.
const ORDERS: usize = 33;

/// The allocator, and how many frames it has handed out.
pub struct BuddyCrate(Mutex<State>);

struct State {
    buddy: FrameAllocator<ORDERS>,
    frames: u64,
    allocated: u64,
}

impl BuddyCrate {
    /// For frames 0 to `frames` − 1.
    pub fn new(frames: u64) -> Self {
        let mut buddy = FrameAllocator::new();
        buddy.add_frame(0, frames as usize);
        Self(Mutex::new(State {
            buddy,
            frames,
            allocated: 0,
        }))
    }
}

impl Peer for BuddyCrate {
    fn name(&self) -> &'static str {
        "buddy_system_allocator"
    }

    fn alloc(&self, _cpu: usize, order: u8) -> Option<u64> {
        let mut state = self.0.lock();
        let frame = state.buddy.alloc(1 << order)?;
        state.allocated += 1 << order;
        Some(frame as u64)
    }

    fn free(&self, _cpu: usize, frame: u64, order: u8) {
        let mut state = self.0.lock();
        state.buddy.dealloc(frame as usize, 1 << order);
        state.allocated -= 1 << order;
    }

    fn free_memory(&self) -> FreeMemory {
        let mut state = self.0.lock();
        // It does not tell: all whole blocks are taken out and put back.
        let blocks: Vec<usize> = std::iter::from_fn(|| state.buddy.alloc(1 << HUGE)).collect();
        for &block in &blocks {
            state.buddy.dealloc(block, 1 << HUGE);
        }
        FreeMemory {
            frames: state.frames - state.allocated,
            in_whole_blocks: blocks.len() as u64 * HUGE_FRAMES,
        }
    }
}
