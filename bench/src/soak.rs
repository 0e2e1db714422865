//! Fragmentation: what is left of huge pages after many allocations of random size and lifetime.

use serde::Serialize;

use crate::peers::{FreeMemory, Peer};
use crate::random::Random;

/// The share of memory that is allocated, in percent.
const OCCUPANCY: u64 = 75;
/// Orders 0 to 9.
const ORDERS: u8 = 10;

/// What a soak has found.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Soaked {
    /// Allocations and frees.
    pub operations: u64,
    /// Allocations that found no run although more than enough frames were free.
    pub refused: u64,
    /// What is free at the end.
    pub free: FreeMemory,
}

impl Soaked {
    /// The share of free memory that lies in whole blocks of 2 MiB.
    pub fn whole_share(&self) -> f64 {
        self.free.in_whole_blocks as f64 / self.free.frames.max(1) as f64
    }
}

/// Does `operations` allocations and frees on `peer`, which manages `frames` frames. Allocations
/// have order n half as often as order n − 1, so that each order takes about the same share of
/// memory; what is freed is any of the runs that live, so lifetimes are exponential. Memory is kept
/// at 75 %.
pub fn soak(peer: &dyn Peer, frames: u64, operations: u64, cpus: usize, seed: u64) -> Soaked {
    let mut random = Random::new(seed);
    let mut runs: Vec<(u64, u8)> = Vec::new();
    let mut allocated = 0;
    let mut refused = 0;
    let target = frames * OCCUPANCY / 100;
    for operation in 0..operations {
        let cpu = (operation / 64) as usize % cpus;
        if allocated < target {
            let order = (random.bits().trailing_zeros() as u8).min(ORDERS - 1);
            match peer.alloc(cpu, order) {
                Some(frame) => {
                    runs.push((frame, order));
                    allocated += 1 << order;
                    continue;
                }
                None => refused += 1,
            }
        }
        if !runs.is_empty() {
            let (frame, order) = runs.swap_remove(random.below(runs.len()));
            peer.free(cpu, frame, order);
            allocated -= 1 << order;
        }
    }
    let soaked = Soaked {
        operations,
        refused,
        free: peer.free_memory(),
    };
    for (frame, order) in runs {
        peer.free(0, frame, order);
    }
    soaked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::all;

    #[test]
    fn every_peer_survives_and_recovers() {
        let frames = 64 * 512;
        for peer in all(frames, 2) {
            let soaked = soak(&*peer, frames, 20_000, 2, 1);
            let free = soaked.free.frames;
            assert!(
                free * 100 / frames >= 100 - OCCUPANCY - 2,
                "{}",
                peer.name()
            );
            assert!(soaked.free.in_whole_blocks <= free, "{}", peer.name());
            assert_eq!(peer.free_memory().frames, frames, "{}", peer.name());
        }
    }
}
