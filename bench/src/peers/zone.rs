//! A zone of Linux as it was in 2018: a merging buddy allocator behind the zone's lock, with a list
//! of single frames for each processor in front (M. Gorman, "Understanding the Linux Virtual Memory
//! Manager", chapter 6; per-CPU lists refilled and drained 31 frames at a time, as on every
//! machine with more than 8 GiB then).
//!
//! Where it is unlike Linux it is faster: no lists by migrate type, no watermarks, and the links lie
//! close together instead of in a `struct page` each.

use spin::Mutex;

use super::{FreeMemory, HUGE, HUGE_FRAMES, Peer};

/// Orders 0 to 10, as `MAX_ORDER` was.
const ORDERS: usize = 11;
/// Frames that move between a processor's list and the zone at a time.
const BATCH: usize = 31;
/// A processor's list is drained when it holds this many.
const HIGH: usize = 6 * BATCH;
/// The end of a list, and the order of a frame that is not the head of a free block.
const NONE: u32 = u32::MAX;
const NOT_FREE: u8 = u8::MAX;

/// The zone and its processors.
pub struct ZoneBuddy {
    zone: Mutex<Zone>,
    cpus: Box<[Pageset]>,
}

/// One processor's list. Linux switches interrupts off while it uses it, which costs about as much
/// as this lock, for which nobody waits.
#[repr(align(128))]
struct Pageset(Mutex<Vec<u32>>);

/// What `struct page` holds of a free block's head, and the lists' heads.
struct Zone {
    next: Vec<u32>,
    previous: Vec<u32>,
    order: Vec<u8>,
    heads: [u32; ORDERS],
    blocks: [u64; ORDERS],
}

impl Zone {
    fn new(frames: u64) -> Self {
        let length = frames as usize;
        let mut zone = Self {
            next: vec![NONE; length],
            previous: vec![NONE; length],
            order: vec![NOT_FREE; length],
            heads: [NONE; ORDERS],
            blocks: [0; ORDERS],
        };
        // As at boot, in descending order, so that the lowest address is handed out first.
        let largest = ORDERS - 1;
        let mut end = length;
        while end > 0 {
            let order = largest.min(end.trailing_zeros() as usize);
            end -= 1 << order;
            zone.insert(end as u32, order);
        }
        zone
    }

    fn insert(&mut self, frame: u32, order: usize) {
        let head = self.heads[order];
        self.next[frame as usize] = head;
        self.previous[frame as usize] = NONE;
        if head != NONE {
            self.previous[head as usize] = frame;
        }
        self.heads[order] = frame;
        self.order[frame as usize] = order as u8;
        self.blocks[order] += 1;
    }

    fn remove(&mut self, frame: u32, order: usize) {
        let (next, previous) = (self.next[frame as usize], self.previous[frame as usize]);
        if next != NONE {
            self.previous[next as usize] = previous;
        }
        match previous {
            NONE => self.heads[order] = next,
            _ => self.next[previous as usize] = next,
        }
        self.order[frame as usize] = NOT_FREE;
        self.blocks[order] -= 1;
    }

    /// The smallest block that serves, split down to `order`.
    fn alloc(&mut self, order: usize) -> Option<u32> {
        let mut at = (order..ORDERS).find(|&at| self.heads[at] != NONE)?;
        let frame = self.heads[at];
        self.remove(frame, at);
        while at > order {
            at -= 1;
            self.insert(frame + (1 << at), at);
        }
        Some(frame)
    }

    /// Merges with the buddy as long as that is free.
    fn free(&mut self, mut frame: u32, mut order: usize) {
        while order < ORDERS - 1 {
            let buddy = frame ^ (1 << order);
            if self.order.get(buddy as usize) != Some(&(order as u8)) {
                break;
            }
            self.remove(buddy, order);
            frame &= buddy;
            order += 1;
        }
        self.insert(frame, order);
    }
}

impl ZoneBuddy {
    /// For frames 0 to `frames` − 1.
    pub fn new(frames: u64, cpus: usize) -> Self {
        let pageset = |_| Pageset(Mutex::new(Vec::with_capacity(HIGH + BATCH)));
        Self {
            zone: Mutex::new(Zone::new(frames)),
            cpus: (0..cpus).map(pageset).collect(),
        }
    }

    /// Empties the processors' lists, as Linux does before it gives up.
    fn drain(&self) {
        for cpu in &self.cpus {
            // In the order in which everybody takes them: list, then zone.
            let mut frames = cpu.0.lock();
            let mut zone = self.zone.lock();
            for frame in frames.drain(..) {
                zone.free(frame, 0);
            }
        }
    }
}

impl Peer for ZoneBuddy {
    fn name(&self) -> &'static str {
        "zone buddy"
    }

    fn alloc(&self, cpu: usize, order: u8) -> Option<u64> {
        let attempt = || {
            if order > 0 {
                return self.zone.lock().alloc(order.into());
            }
            let mut frames = self.cpus[cpu].0.lock();
            if frames.is_empty() {
                let mut zone = self.zone.lock();
                frames.extend(std::iter::from_fn(|| zone.alloc(0)).take(BATCH));
                // The list is used from its head: the frame that came first goes first.
                frames.reverse();
            }
            frames.pop()
        };
        let frame = attempt().or_else(|| {
            self.drain();
            attempt()
        });
        frame.map(u64::from)
    }

    fn free(&self, cpu: usize, frame: u64, order: u8) {
        if order > 0 {
            return self.zone.lock().free(frame as u32, order.into());
        }
        let mut frames = self.cpus[cpu].0.lock();
        frames.push(frame as u32);
        if frames.len() >= HIGH {
            let mut zone = self.zone.lock();
            // The oldest ones: they are the coldest.
            for frame in frames.drain(..BATCH) {
                zone.free(frame, 0);
            }
        }
    }

    fn free_memory(&self) -> FreeMemory {
        let listed: u64 = self.cpus.iter().map(|cpu| cpu.0.lock().len() as u64).sum();
        let zone = self.zone.lock();
        let blocks = |from: usize| -> u64 {
            let orders = (from..ORDERS).map(|order| zone.blocks[order] << order);
            orders.sum()
        };
        let whole = blocks(HUGE.into());
        debug_assert!(whole.is_multiple_of(HUGE_FRAMES));
        FreeMemory {
            frames: listed + blocks(0),
            in_whole_blocks: whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_merges_when_it_is_free_again() {
        // The last block is half as large as the others.
        let frames = 7 << (ORDERS - 2);
        let buddy = ZoneBuddy::new(frames, 1);
        let at_first = buddy.zone.lock().blocks;
        assert_eq!((at_first[ORDERS - 1], at_first[ORDERS - 2]), (3, 1));
        let mut singles: Vec<u64> = std::iter::from_fn(|| buddy.alloc(0, 0)).collect();
        assert_eq!(singles.len() as u64, frames);
        assert_eq!(buddy.zone.lock().blocks, [0; ORDERS]);
        crate::random::Random::new(5).shuffle(&mut singles);
        for frame in singles {
            buddy.free(0, frame, 0);
        }
        buddy.drain();
        assert_eq!(buddy.zone.lock().blocks, at_first);
    }

    #[test]
    fn frames_move_31_at_a_time() {
        let buddy = ZoneBuddy::new(1024, 1);
        let listed = || buddy.cpus[0].0.lock().len();
        let mut frames = vec![buddy.alloc(0, 0).unwrap()];
        assert_eq!(listed(), BATCH - 1);
        // The lowest address first, and what was freed last before that.
        assert_eq!(frames[0], 0);
        buddy.free(0, frames[0], 0);
        assert_eq!(buddy.alloc(0, 0), Some(0));
        frames.extend(std::iter::from_fn(|| buddy.alloc(0, 0)).take(HIGH));
        let before = listed();
        for &frame in &frames[..HIGH - before] {
            buddy.free(0, frame, 0);
        }
        assert_eq!(listed(), HIGH - BATCH);
    }
}
