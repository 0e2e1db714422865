//! What goes where in memory.

use alloc::vec::Vec;
use core::fmt;

use dolmen_firmware::ranges::{PAGE_BYTES, Range, RangeSet};

/// Below this address nothing is placed.
pub const LOW_MEMORY_END: u64 = 1 << 20;
/// What an application is aligned to.
pub const IMAGE_ALIGN: u64 = 2 << 20;

/// The memory map with what has been placed in it.
#[derive(Clone, Debug)]
pub struct Layout {
    usable: RangeSet,
    free: RangeSet,
    kept: RangeSet,
}

/// A range of memory that nothing else is placed in.
#[derive(Debug, PartialEq, Eq)]
pub struct Placed {
    range: Range,
}

impl Placed {
    /// The addresses.
    pub fn range(&self) -> Range {
        self.range
    }
}

/// There is no place for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPlace {
    what: &'static str,
    bytes: u64,
    address: Option<u64>,
    usable_bytes: u64,
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bytes, .. } = self;
        let kib = bytes.div_ceil(1024);
        match self.address {
            Some(address) => write!(
                f,
                "{what} needs {kib} KiB at {address:#x}, which is not free memory"
            ),
            None => write!(
                f,
                "there is not enough memory: {what} needs {kib} KiB in one piece, the machine has {} KiB in all",
                self.usable_bytes / 1024
            ),
        }
    }
}

impl core::error::Error for NoPlace {}

impl Layout {
    /// Nothing placed yet, in the whole pages of what is usable.
    pub fn new(usable: &RangeSet) -> Self {
        let usable = usable.page_inner();
        let mut free = usable.clone();
        free.remove(Range::new(0, LOW_MEMORY_END));
        Self {
            usable,
            free,
            kept: RangeSet::new(),
        }
    }

    /// All usable memory, whatever is placed in it.
    pub fn usable(&self) -> &RangeSet {
        &self.usable
    }

    /// What the application must not use, in whole pages.
    pub fn kept(&self) -> &RangeSet {
        &self.kept
    }

    /// Places nothing in `range` from now on.
    pub fn avoid(&mut self, range: Range) {
        self.free.remove(range.page_outer());
    }

    /// Avoids `range` and tells the application to keep it.
    pub fn keep(&mut self, range: Range) {
        self.avoid(range);
        self.kept.insert(range.page_outer());
    }

    /// Finds the lowest free place for `bytes` bytes. The application is told to keep it.
    pub fn place(&mut self, what: &'static str, bytes: u64, align: u64) -> Result<Placed, NoPlace> {
        let align = align.max(PAGE_BYTES);
        let found = bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .and_then(|whole| self.free.find(whole, align));
        let Some(range) = found else {
            return Err(self.no_place(what, bytes, None));
        };
        self.keep(range);
        Ok(Placed {
            range: Range::with_len(range.start, bytes),
        })
    }

    /// Takes `bytes` bytes at `start` if they are free. The application is told to keep them.
    pub fn place_at(
        &mut self,
        what: &'static str,
        start: u64,
        bytes: u64,
    ) -> Result<Placed, NoPlace> {
        let range = Range::with_len(start, bytes);
        if range.bytes() != bytes || !self.free.contains(range.page_outer()) {
            return Err(self.no_place(what, bytes, Some(start)));
        }
        self.keep(range);
        Ok(Placed { range })
    }

    fn no_place(&self, what: &'static str, bytes: u64, address: Option<u64>) -> NoPlace {
        NoPlace {
            what,
            bytes,
            address,
            usable_bytes: self.usable.bytes(),
        }
    }

    /// The usable memory in ascending order.
    pub fn memory(&self) -> Vec<Range> {
        self.usable.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn layout(ranges: &[(u64, u64)]) -> Layout {
        let usable = ranges.iter().map(|&(s, e)| Range::new(s, e)).collect();
        Layout::new(&usable)
    }

    #[test]
    fn places_are_disjoint_usable_aligned_and_kept() {
        let mut l = layout(&[(0, 0x9_fc00), (MIB, 8 * MIB), (16 * MIB, 40 * MIB)]);
        l.keep(Range::new(MIB, MIB + 1));
        l.avoid(Range::new(3 * MIB + 5, 3 * MIB + 6));
        let tar = l.place("tar", 100, 1).unwrap();
        assert_eq!(tar.range(), Range::with_len(MIB + 4096, 100));
        let image = l.place("image", 5 * MIB, IMAGE_ALIGN).unwrap();
        assert_eq!(image.range(), Range::with_len(16 * MIB, 5 * MIB));
        let small = l.place("small", MIB, IMAGE_ALIGN).unwrap();
        assert_eq!(small.range(), Range::with_len(2 * MIB, MIB));
        let next = l.place("next", 4096, 1).unwrap();
        assert_eq!(next.range().start, MIB + 2 * 4096);
        let kept: Vec<Range> = l.kept().iter().collect();
        assert_eq!(
            kept,
            [
                Range::new(MIB, MIB + 3 * 4096),
                Range::new(2 * MIB, 3 * MIB),
                Range::new(16 * MIB, 21 * MIB)
            ]
        );
    }

    #[test]
    fn low_memory_and_holes_are_never_used() {
        let mut l = layout(&[(0, 0x9_f000), (4 * MIB, 5 * MIB)]);
        assert!(l.place("a", MIB + 1, 1).is_err());
        assert!(l.place_at("b", 0x1000, 4096).is_err());
        assert!(l.place_at("c", 4 * MIB + MIB / 2, MIB).is_err());
        assert_eq!(
            l.place_at("d", 4 * MIB + 16, 32).unwrap().range(),
            Range::with_len(4 * MIB + 16, 32)
        );
        assert!(l.place_at("e", 4 * MIB + 100, 32).is_err());
        assert_eq!(l.place("f", 1, 1).unwrap().range().start, 4 * MIB + 4096);
    }

    #[test]
    fn the_error_says_what_is_needed_and_what_there_is() {
        let mut l = layout(&[(MIB, 2 * MIB)]);
        assert_eq!(
            l.place("the application", 3 * MIB, IMAGE_ALIGN)
                .unwrap_err()
                .to_string(),
            "there is not enough memory: the application needs 3072 KiB in one piece, the machine has 1024 KiB in all"
        );
        assert_eq!(
            l.place_at("the application", 64 * MIB, 4096)
                .unwrap_err()
                .to_string(),
            "the application needs 4 KiB at 0x4000000, which is not free memory"
        );
        assert!(l.place("x", u64::MAX, 1).is_err());
        assert!(l.place_at("x", u64::MAX - 5, 4096).is_err());
    }
}
