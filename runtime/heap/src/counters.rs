//! What a heap counts.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Events on one CPU, or on all of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        /// One CPU's counters: written by that CPU only, read by everybody.
        #[derive(Default)]
        pub(crate) struct Counting {
            $(pub(crate) $name: Count,)+
        }

        impl Counting {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.0.load(Ordering::Relaxed),)+ }
            }
        }

        impl core::ops::AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counters! {
    /// Chunks mapped from the backing.
    chunks_mapped,
    /// Chunks given back to the backing.
    chunks_unmapped,
    /// Spans set up in chunks.
    spans,
    /// Large requests served by a fresh mapping.
    large_maps,
    /// Large requests served by a kept mapping.
    large_reuses,
    /// Blocks freed here that belong to another CPU.
    remote_frees,
    /// Blocks of this CPU's that came back from others.
    remote_returns,
    /// Small requests that the current span could not serve.
    slow_paths,
}

#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Only the owning CPU adds, so no read-modify-write is needed.
    pub(crate) fn add(&self, events: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(events);
        self.0.store(sum, Ordering::Relaxed);
    }
}
