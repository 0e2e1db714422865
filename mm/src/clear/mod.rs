//! How a run of frames is cleared.
//!
//! **Model.** The faulting program will use the bytes around the fault next, so that is what the
//! cache should hold afterwards. [`Strategy::plan`] therefore orders the work: first the far
//! extents, each in one long ascending run (left part, then right part) and past the cache, and
//! last the neighbourhood of the touched byte, through the cache.
//!
//! The plan is data: which bytes, in which order, with which kind of store. The machine executes
//! it, and puts a store fence behind the last non-temporal extent before the frames are mapped.

#![forbid(unsafe_code)]

use core::ops::Range;

/// The kind of store that clears an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    /// Ordinary stores (`rep stos`): the bytes are in the cache afterwards.
    Cached,
    /// Non-temporal stores (`movnti`, `clzero`): the cache keeps what it holds.
    NonTemporal,
}

/// A part of the run, cleared in one sequential pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Offsets in bytes from the start of the run.
    pub bytes: Range<usize>,
    /// The kind of store.
    pub store: Store,
}

/// How many bytes of a run were cleared in which way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleared {
    /// Bytes cleared through the cache.
    pub cached_bytes: usize,
    /// Bytes cleared past the cache.
    pub nontemporal_bytes: usize,
}

impl Cleared {
    /// Counts an extent in.
    pub fn add(&mut self, extent: &Extent) {
        match extent.store {
            Store::Cached => self.cached_bytes += extent.bytes.len(),
            Store::NonTemporal => self.nontemporal_bytes += extent.bytes.len(),
        }
    }
}

/// The thresholds by which a run is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strategy {
    /// Runs of at least this many bytes are cleared with non-temporal stores outside the
    /// neighbourhood. Shorter ones fit in the cache and will be used soon.
    pub nontemporal_from_bytes: usize,
    /// The neighbourhood: the aligned stretch of this many bytes, a power of two, around the
    /// touched byte.
    pub neighbourhood_bytes: usize,
}

impl Strategy {
    /// Half of a small first-level cache is the neighbourhood; what would take more than a fair
    /// part of a second-level cache goes past it.
    pub const DEFAULT: Self = Self {
        nontemporal_from_bytes: 256 << 10,
        neighbourhood_bytes: 16 << 10,
    };

    /// The extents to clear, in this order, of a run of `bytes` bytes of which `touched_byte` is
    /// wanted first. Together they cover every byte exactly once.
    pub fn plan(&self, bytes: usize, touched_byte: usize) -> impl Iterator<Item = Extent> + use<> {
        let far = if bytes >= self.nontemporal_from_bytes {
            Store::NonTemporal
        } else {
            Store::Cached
        };
        let start = (touched_byte & !(self.neighbourhood_bytes - 1)).min(bytes);
        let end = start.saturating_add(self.neighbourhood_bytes).min(bytes);
        [
            (0..start, far),
            (end..bytes, far),
            (start..end, Store::Cached),
        ]
        .into_iter()
        .filter(|(bytes, _)| !bytes.is_empty())
        .map(|(bytes, store)| Extent { bytes, store })
    }
}

impl Default for Strategy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests;
