//! Sets of physical address ranges.

use alloc::vec::Vec;
use core::fmt;

/// Bytes in a page.
pub const PAGE_BYTES: u64 = 4096;

/// A half-open range of physical addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
}

impl Range {
    /// The range from `start` up to, but not including, `end`. Empty if `end` is not above `start`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// The range of `bytes` bytes at `start`, cut off at the end of the address space.
    pub const fn with_len(start: u64, bytes: u64) -> Self {
        Self {
            start,
            end: start.saturating_add(bytes),
        }
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it contains no address.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether every address of `other` lies in this range.
    pub const fn contains(self, other: Range) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// The addresses that both ranges have.
    pub fn intersection(self, other: Range) -> Range {
        Range::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The smallest range of whole pages that contains this one.
    pub const fn page_outer(self) -> Self {
        Self {
            start: self.start & !(PAGE_BYTES - 1),
            end: match self.end.checked_next_multiple_of(PAGE_BYTES) {
                Some(end) => end,
                None => !(PAGE_BYTES - 1),
            },
        }
    }

    /// The largest range of whole pages inside this one; it may be empty.
    pub const fn page_inner(self) -> Self {
        Self {
            start: match self.start.checked_next_multiple_of(PAGE_BYTES) {
                Some(start) => start,
                None => self.end,
            },
            end: self.end & !(PAGE_BYTES - 1),
        }
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

/// A set of addresses, kept as sorted ranges that neither overlap nor touch.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RangeSet {
    ranges: Vec<Range>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// The ranges, in ascending order.
    pub fn as_slice(&self) -> &[Range] {
        &self.ranges
    }

    /// The ranges, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.ranges.iter().copied()
    }

    /// The number of addresses in the set.
    pub fn bytes(&self) -> u64 {
        self.iter().map(Range::bytes).fold(0, u64::saturating_add)
    }

    /// Whether the set contains every address of `range`.
    pub fn contains(&self, range: Range) -> bool {
        range.is_empty() || self.iter().any(|r| r.contains(range))
    }

    /// Adds the addresses of `range`.
    pub fn insert(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let after = self.ranges.partition_point(|r| r.start <= range.end);
        let mut merged = range;
        if let Some(touching) = self.ranges.get(first..after)
            && let (Some(low), Some(high)) = (touching.first(), touching.last())
        {
            merged.start = merged.start.min(low.start);
            merged.end = merged.end.max(high.end);
        }
        self.ranges.splice(first..after, [merged]);
    }

    /// Removes the addresses of `range`.
    pub fn remove(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        let after = self.ranges.partition_point(|r| r.start < range.end);
        if first >= after {
            return;
        }
        let left = Range::new(self.ranges[first].start, range.start);
        let right = Range::new(range.end, self.ranges[after - 1].end);
        self.ranges.splice(
            first..after,
            [left, right].into_iter().filter(|r| !r.is_empty()),
        );
    }

    /// The same set without the parts that do not make up whole pages.
    pub fn page_inner(&self) -> Self {
        Self {
            ranges: self
                .iter()
                .map(Range::page_inner)
                .filter(|r| !r.is_empty())
                .collect(),
        }
    }

    /// The lowest range of `bytes` bytes in the set whose start is a multiple of `align`, a power
    /// of two.
    pub fn find(&self, bytes: u64, align: u64) -> Option<Range> {
        self.iter().find_map(|r| {
            let start = r.start.checked_next_multiple_of(align)?;
            let end = start.checked_add(bytes)?;
            (end <= r.end).then_some(Range::new(start, end))
        })
    }
}

impl FromIterator<Range> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        ranges.iter().map(|&(s, e)| Range::new(s, e)).collect()
    }

    #[test]
    fn overlapping_and_touching_ranges_merge() {
        assert_eq!(
            set(&[(10, 20), (30, 40), (20, 30)]).as_slice(),
            [Range::new(10, 40)]
        );
        assert_eq!(
            set(&[(10, 20), (0, 5), (15, 50), (60, 60)]).as_slice(),
            [Range::new(0, 5), Range::new(10, 50)]
        );
    }

    #[test]
    fn removing_cuts_splits_and_swallows() {
        let mut s = set(&[(0, 100), (200, 300)]);
        s.remove(Range::new(40, 50));
        assert_eq!(s, set(&[(0, 40), (50, 100), (200, 300)]));
        s.remove(Range::new(90, 250));
        assert_eq!(s, set(&[(0, 40), (50, 90), (250, 300)]));
        s.remove(Range::new(0, 1000));
        assert_eq!(s, set(&[]));
    }

    #[test]
    fn agrees_with_a_bit_set_on_random_operations() {
        let mut seed = 7u64;
        let mut next = move |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let mut ranges = RangeSet::new();
            let mut bits = [false; 64];
            for _ in 0..30 {
                let start = next(64);
                let end = start + next(64 - start + 1);
                let add = next(2) == 0;
                bits[start as usize..end as usize].fill(add);
                let range = Range::new(start, end);
                if add {
                    ranges.insert(range);
                } else {
                    ranges.remove(range);
                }
                for (i, &bit) in bits.iter().enumerate() {
                    assert_eq!(ranges.contains(Range::with_len(i as u64, 1)), bit);
                }
                assert!(
                    ranges
                        .as_slice()
                        .windows(2)
                        .all(|w| w[0].end < w[1].start && !w[0].is_empty())
                );
            }
        }
    }

    #[test]
    fn finds_the_lowest_aligned_place() {
        let s = set(&[(0x1000, 0x5000), (0x20_1000, 0x90_0000)]);
        assert_eq!(s.find(0x4000, 0x1000), Some(Range::new(0x1000, 0x5000)));
        assert_eq!(
            s.find(0x1000, 0x20_0000),
            Some(Range::new(0x40_0000, 0x40_1000))
        );
        assert_eq!(s.find(0x80_0000, 0x1000), None);
    }

    #[test]
    fn pages_round_outwards_and_inwards() {
        assert_eq!(Range::new(1, 4097).page_outer(), Range::new(0, 8192));
        assert_eq!(Range::new(1, 8193).page_inner(), Range::new(4096, 8192));
        assert!(Range::new(1, 4095).page_inner().is_empty());
        assert!(Range::new(u64::MAX - 1, u64::MAX).page_inner().is_empty());
    }
}
