//! The allocators that are compared.

mod buddy_crate;
mod dolmen;
mod free_list;
mod zone;

pub use buddy_crate::BuddyCrate;
pub use dolmen::Dolmen;
pub use free_list::FreeListCrate;
pub use zone::ZoneBuddy;

/// log2 of the frames in a huge page of 2 MiB.
pub const HUGE: u8 = 9;
/// Frames in a huge page.
pub const HUGE_FRAMES: u64 = 1 << HUGE;

/// An allocator of frames 0 to n − 1, for processors with numbers from 0 on.
pub trait Peer: Send + Sync {
    /// Its name in tables.
    fn name(&self) -> &'static str;
    /// An aligned run of 2^`order` frames, by its first frame. `cpu` is the executing thread's, and
    /// no other thread's.
    fn alloc(&self, cpu: usize, order: u8) -> Option<u64>;
    /// Gives a run back.
    fn free(&self, cpu: usize, frame: u64, order: u8);
    /// Free frames, and how many of them lie in whole free blocks of 2 MiB. Nobody allocates or
    /// frees meanwhile.
    fn free_memory(&self) -> FreeMemory;
}

/// What is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct FreeMemory {
    /// Free frames.
    pub frames: u64,
    /// Those of them in free, aligned blocks of 2 MiB.
    pub in_whole_blocks: u64,
}

/// All of them for `frames` frames, a multiple of 512, and `cpus` processors; Dolmen's is the
/// first.
pub fn all(frames: u64, cpus: usize) -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(Dolmen::new(frames, cpus)),
        Box::new(ZoneBuddy::new(frames, cpus)),
        Box::new(FreeListCrate::new(frames)),
        Box::new(BuddyCrate::new(frames)),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::random::Random;

    /// Random allocations and frees of all orders against a plain set of frames: no frame twice,
    /// alignment, exhaustion to the last frame, and complete recovery.
    fn keeps_the_contract(peer: &dyn Peer, frames: u64) {
        let name = peer.name();
        let mut random = Random::new(7);
        let mut owned = vec![false; frames as usize];
        let mut runs: Vec<(u64, u8)> = Vec::new();
        let take = |owned: &mut Vec<bool>, frame: u64, order: u8| {
            assert_eq!(frame % (1 << order), 0, "{name}: order {order} at {frame}");
            for one in frame..frame + (1 << order) {
                assert!(!owned[one as usize], "{name}: frame {one} twice");
                owned[one as usize] = true;
            }
        };
        for _ in 0..20_000 {
            if random.below(100) < 55 {
                let order = random.below(10) as u8;
                if let Some(frame) = peer.alloc(0, order) {
                    take(&mut owned, frame, order);
                    runs.push((frame, order));
                }
            } else if !runs.is_empty() {
                let (frame, order) = runs.swap_remove(random.below(runs.len()));
                peer.free(0, frame, order);
                owned[frame as usize..][..1 << order].fill(false);
            }
        }
        while let Some(frame) = peer.alloc(0, 0) {
            take(&mut owned, frame, 0);
            runs.push((frame, 0));
        }
        assert!(owned.iter().all(|&owned| owned), "{name}: exhausted early");
        assert_eq!(peer.free_memory().frames, 0, "{name}");
        for (frame, order) in runs {
            peer.free(0, frame, order);
        }
        let left = peer.free_memory();
        assert_eq!(left.frames, frames, "{name}");
        for _ in 0..frames / HUGE_FRAMES {
            let frame = peer.alloc(0, HUGE);
            assert!(frame.is_some(), "{name}: a huge page is missing");
        }
    }

    #[test]
    fn every_peer_allocates_what_is_free_and_nothing_else() {
        let frames = 16 * HUGE_FRAMES;
        for peer in all(frames, 1) {
            keeps_the_contract(&*peer, frames);
        }
    }

    #[test]
    fn no_peer_gives_two_threads_the_same_frame() {
        let frames = 16 * HUGE_FRAMES;
        for peer in all(frames, 2) {
            let owned: Vec<AtomicBool> = (0..frames).map(|_| AtomicBool::new(false)).collect();
            let change = |frame: u64, order: u8, to: bool| {
                for owned in &owned[frame as usize..][..1 << order] {
                    let was = owned.swap(to, Ordering::Relaxed);
                    assert_ne!(was, to, "{}: {frame} of order {order}", peer.name());
                }
            };
            std::thread::scope(|scope| {
                for cpu in 0..2 {
                    let (peer, change) = (&peer, &change);
                    scope.spawn(move || {
                        let mut random = Random::new(cpu as u64);
                        let mut runs: Vec<(u64, u8)> = Vec::new();
                        for _ in 0..10_000 {
                            let order = random.below(10) as u8;
                            if random.below(100) < 55
                                && let Some(frame) = peer.alloc(cpu, order)
                            {
                                change(frame, order, true);
                                runs.push((frame, order));
                            } else if !runs.is_empty() {
                                let (frame, order) = runs.swap_remove(random.below(runs.len()));
                                change(frame, order, false);
                                peer.free(cpu, frame, order);
                            }
                        }
                        for (frame, order) in runs {
                            change(frame, order, false);
                            peer.free(cpu, frame, order);
                        }
                    });
                }
            });
            assert_eq!(peer.free_memory().frames, frames, "{}", peer.name());
        }
    }
}
