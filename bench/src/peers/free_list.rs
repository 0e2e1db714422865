//! Hermit's allocator: the crate `free-list` behind one lock.

use free_list::{FreeList, PageLayout, PageRange};
use spin::Mutex;

use super::{FreeMemory, HUGE_FRAMES, Peer};

const FRAME_BYTES: usize = 4096;

/// Ranges that the list holds without asking for memory, as in Hermit's kernel.
const INLINE_RANGES: usize = 16;

/// The list. A range must not start at 0, so frame 0 is at one huge page.
pub struct FreeListCrate(Mutex<FreeList<INLINE_RANGES>>);

const OFFSET: usize = HUGE_FRAMES as usize * FRAME_BYTES;

fn range(frame: u64, frames: u64) -> PageRange {
    let start = OFFSET + frame as usize * FRAME_BYTES;
    PageRange::from_start_len(start, frames as usize * FRAME_BYTES).expect("whole pages")
}

impl FreeListCrate {
    /// For frames 0 to `frames` − 1.
    pub fn new(frames: u64) -> Self {
        let mut list = FreeList::new();
        give(&mut list, range(0, frames));
        Self(Mutex::new(list))
    }
}

fn give(list: &mut FreeList<INLINE_RANGES>, range: PageRange) {
    // SAFETY: the numbers stand for nothing, so nothing is used that is given back.
    unsafe { list.deallocate(range) }.expect("what is given back is not free");
}

impl Peer for FreeListCrate {
    fn name(&self) -> &'static str {
        "free-list"
    }

    fn alloc(&self, _cpu: usize, order: u8) -> Option<u64> {
        let bytes = FRAME_BYTES << order;
        let layout = PageLayout::from_size_align(bytes, bytes).expect("a power of two");
        let range = self.0.lock().allocate(layout).ok()?;
        Some(((range.start() - OFFSET) / FRAME_BYTES) as u64)
    }

    fn free(&self, _cpu: usize, frame: u64, order: u8) {
        give(&mut self.0.lock(), range(frame, 1 << order));
    }

    fn free_memory(&self) -> FreeMemory {
        let list = self.0.lock();
        let mut free = FreeMemory {
            frames: 0,
            in_whole_blocks: 0,
        };
        for range in list.iter() {
            let first = (range.start() - OFFSET) as u64 / FRAME_BYTES as u64;
            let end = (range.end() - OFFSET) as u64 / FRAME_BYTES as u64;
            let blocks = (end / HUGE_FRAMES).saturating_sub(first.div_ceil(HUGE_FRAMES));
            free.frames += end - first;
            free.in_whole_blocks += blocks * HUGE_FRAMES;
        }
        free
    }
}
