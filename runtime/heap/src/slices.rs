//! Which slices of a chunk are taken. Plain arithmetic.

/// The free slices of a chunk: bit i stands for slice i.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices(u64);

impl Slices {
    /// `count` slices, 1 to 64, all free.
    pub(crate) const fn all(count: usize) -> Self {
        Self(u64::MAX >> (64 - count))
    }

    /// No slice is free.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Takes the first free run of `count` slices (1, 4 or 16) at a multiple of `count`.
    pub(crate) fn take(&mut self, count: usize) -> Option<usize> {
        // Fold each aligned group onto its first bit: set where the whole group is free.
        let mut groups = self.0;
        let mut width = 1;
        while width < count {
            groups &= groups >> width;
            width *= 2;
        }
        groups &= match count {
            1 => u64::MAX,
            4 => 0x1111_1111_1111_1111,
            _ => 0x0001_0001_0001_0001,
        };
        let first = groups.trailing_zeros() as usize;
        if first == 64 {
            return None;
        }
        self.0 &= !Self::run(first, count);
        Some(first)
    }

    /// Gives `count` slices from `first` on back.
    pub(crate) fn give(&mut self, first: usize, count: usize) {
        let run = Self::run(first, count);
        debug_assert_eq!(self.0 & run, 0, "slices are given back once");
        self.0 |= run;
    }

    fn run(first: usize, count: usize) -> u64 {
        ((1 << count) - 1) << first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_aligned_and_disjoint() {
        let mut slices = Slices::all(64);
        assert_eq!(slices.take(1), Some(0));
        assert_eq!(slices.take(16), Some(16));
        assert_eq!(slices.take(4), Some(4));
        assert_eq!(slices.take(1), Some(1));
        assert_eq!(slices.take(16), Some(32));
        assert_eq!(slices.take(16), Some(48));
        assert_eq!(slices.take(16), None);
        assert_eq!(slices.take(4), Some(8));
        assert_eq!(slices.take(4), Some(12));
        assert_eq!(slices.take(4), None);
        assert_eq!(
            (slices.take(1), slices.take(1), slices.take(1)),
            (Some(2), Some(3), None)
        );
        assert!(slices.is_empty());
        slices.give(32, 16);
        assert_eq!(slices.take(4), Some(32));
        for (first, count) in [(0, 1), (1, 1), (2, 1), (3, 1), (4, 4), (8, 4), (12, 4)] {
            slices.give(first, count);
        }
        assert_eq!(slices.take(16), Some(0));
        slices.give(0, 16);
        slices.give(16, 16);
        slices.give(32, 4);
        slices.give(48, 16);
        assert_eq!(slices, Slices::all(64));
    }

    #[test]
    fn small_chunks_have_few_slices() {
        let mut slices = Slices::all(4);
        assert_eq!(slices.take(16), None);
        assert_eq!(slices.take(4), Some(0));
        assert!(slices.is_empty());
        assert_eq!(Slices::all(1).take(1), Some(0));
    }
}
