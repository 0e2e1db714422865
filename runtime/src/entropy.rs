//! Random bytes: ChaCha20, seeded from the processor's generator and the jitter of its clock.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::cpu::clock;
use crate::cpu::features::Features;
use crate::sync::SpinLock;

static GENERATOR: SpinLock<Option<ChaCha20Rng>> = SpinLock::new(None);

/// How often the processor's generator is asked before it counts as broken (Intel's guide for
/// software that uses RDRAND says ten).
const TRIES: usize = 10;

/// Seeds the generator. Where the processor has no generator of its own, the seed is the jitter of
/// the clock alone, which is enough for hash seeds and not for keys.
pub(crate) fn seed(features: &Features) {
    let mut seed = [0; 32];
    for word in seed.chunks_exact_mut(8) {
        let mut value = jitter();
        if features.rdseed
            && let Some(random) = retry(core::arch::x86_64::_rdseed64_step)
        {
            value ^= random;
        }
        if features.rdrand
            && let Some(random) = retry(core::arch::x86_64::_rdrand64_step)
        {
            value ^= random;
        }
        word.copy_from_slice(&value.to_le_bytes());
    }
    *GENERATOR.lock() = Some(ChaCha20Rng::from_seed(seed));
}

fn retry(step: unsafe fn(&mut u64) -> i32) -> Option<u64> {
    let mut value = 0;
    for _ in 0..TRIES {
        // SAFETY: the caller has looked whether the processor has the instruction.
        if unsafe { step(&mut value) } == 1 {
            return Some(value);
        }
    }
    None
}

/// Folds the low bits of many readings of the clock.
fn jitter() -> u64 {
    (0..64).fold(clock::realtime().0 as u64, |folded, _| {
        core::hint::spin_loop();
        folded.rotate_left(7) ^ clock::ticks()
    })
}

/// Fills the buffer with random bytes.
pub(crate) fn fill(buffer: &mut [u8]) {
    // A copy of the generator's output goes into the buffer with the lock open: its pages may
    // fault.
    let mut block = [0; 64];
    for chunk in buffer.chunks_mut(block.len()) {
        GENERATOR
            .lock()
            .as_mut()
            .expect("seeded at boot")
            .fill_bytes(&mut block);
        chunk.copy_from_slice(&block[..chunk.len()]);
    }
}
