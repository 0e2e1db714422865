//! Size classes: which blocks serve a request. Plain arithmetic.
//!
//! Up to 128 bytes the classes are multiples of 16, beyond that there are eight per doubling, so
//! that a block is at most an eighth larger than what was asked for. A block's alignment is the
//! largest power of two that divides its size; a request with a larger alignment is rounded up to
//! a multiple of it, which again is a class.

/// The smallest page that a backing maps.
pub(crate) const PAGE: usize = 4096;
/// The smallest run of memory that holds blocks of one class.
pub(crate) const SLICE: usize = 32 << 10;
/// The number of classes.
pub(crate) const CLASSES: usize = 72;
/// Mappings below this size are kept for a while when freed. From here on memory is always fresh:
/// its pages lie where they are first touched.
pub(crate) const FRESH: usize = 128 << 10;

const QUANTUM: usize = 16;
const LINEAR: usize = 128;
const PER_DOUBLING: usize = 8;

/// One size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

/// What serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// A block of this class.
    Small(Class),
    /// A mapping of this many bytes.
    Large(usize),
}

/// The largest block of a heap whose chunks have `chunk` bytes: its span must fit in.
pub(crate) const fn largest_small(chunk: usize) -> usize {
    match chunk / SLICE {
        0..4 => 2 << 10,
        4..16 => 8 << 10,
        _ => 32 << 10,
    }
}

/// What serves `size` bytes at a multiple of `align` (a power of two); `None` if nothing can.
/// Whoever frees asks again and gets the same answer.
#[inline]
pub(crate) fn plan(size: usize, align: usize, largest_small: usize) -> Option<Plan> {
    debug_assert!(align.is_power_of_two());
    let align = align.max(QUANTUM);
    if size <= largest_small && align <= largest_small {
        let rounded = (size.max(1) + align - 1) & !(align - 1);
        return Some(Plan::Small(Class::holding(rounded)));
    }
    // Less than 2^63, as every object in Rust; then no rounding can overflow.
    if size > isize::MAX as usize || align > isize::MAX as usize {
        return None;
    }
    // Few different sizes find each other again in the cache.
    let step = if size < FRESH {
        step_of(size.max(PAGE)).max(PAGE)
    } else {
        PAGE
    };
    Some(Plan::Large(size.next_multiple_of(step).max(align)))
}

/// The distance of the classes around `size`, which is more than 128.
fn step_of(size: usize) -> usize {
    (1 << (size - 1).ilog2()) / PER_DOUBLING
}

impl Class {
    /// The smallest class of at least `size` bytes, 1 to 32 KiB.
    #[inline]
    pub(crate) fn holding(size: usize) -> Self {
        let last = size - 1;
        let index = if last < LINEAR {
            last / QUANTUM
        } else {
            let doubling = last.ilog2() as usize;
            let within = (last >> (doubling - 3)) - PER_DOUBLING;
            (doubling - 6) * PER_DOUBLING + within
        };
        debug_assert!(index < CLASSES);
        Self(index as u8)
    }

    /// Its place in tables.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The class at a place in tables.
    #[cfg(test)]
    pub(crate) fn at(index: usize) -> Self {
        debug_assert!(index < CLASSES);
        Self(index as u8)
    }

    /// Bytes in a block.
    pub(crate) fn block_bytes(self) -> usize {
        let (doubling, within) = (self.index() / PER_DOUBLING, self.index() % PER_DOUBLING);
        match doubling {
            0 => (within + 1) * QUANTUM,
            _ => (PER_DOUBLING + within + 1) << (doubling + 3),
        }
    }

    /// Bytes in a span, a power of two: room for 15 blocks at least.
    #[inline]
    pub(crate) fn span_bytes(self) -> usize {
        // The classes up to 2 KiB, up to 8 KiB and up to 32 KiB.
        match self.0 {
            0..40 => SLICE,
            40..56 => 4 * SLICE,
            _ => 16 * SLICE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 32 << 10;

    fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES).map(Class::at)
    }

    #[test]
    fn classes_grow_and_waste_an_eighth_at_most() {
        let sizes: [usize; CLASSES] = core::array::from_fn(|i| Class::at(i).block_bytes());
        assert_eq!(sizes[0], 16);
        assert_eq!(sizes[CLASSES - 1], MAX);
        for pair in sizes.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(
                pair[1] <= 128 || 8 * (pair[1] - pair[0] - 1) < pair[1],
                "{pair:?}"
            );
        }
        for class in all() {
            assert_eq!(Class::holding(class.block_bytes()), class);
        }
        for size in 1..=MAX {
            let class = Class::holding(size);
            assert!(class.block_bytes() >= size);
            assert!(class.index() == 0 || Class::at(class.index() - 1).block_bytes() < size);
        }
    }

    #[test]
    fn spans_hold_enough_blocks() {
        for class in all() {
            let blocks = (class.span_bytes() - 384) / class.block_bytes();
            assert!(blocks >= 15, "{class:?}");
            assert!(class.span_bytes().is_power_of_two());
        }
        for chunk in [SLICE, 2 * SLICE, 4 * SLICE, 16 * SLICE, 64 * SLICE] {
            let class = Class::holding(largest_small(chunk));
            assert!(class.span_bytes() <= chunk);
        }
    }

    #[test]
    fn plans_fit_size_and_alignment() {
        for shift in 0..23 {
            let align = 1 << shift;
            for size in (0..70_000)
                .step_by(7)
                .chain([MAX, MAX + 1, 1 << 20, (4 << 20) + 1])
            {
                match plan(size, align, MAX).unwrap() {
                    Plan::Small(class) => {
                        assert!(class.block_bytes() >= size);
                        assert_eq!(class.block_bytes() % align, 0, "{size} {align}");
                    }
                    Plan::Large(bytes) => {
                        assert!(size > MAX || align > MAX);
                        assert!(bytes >= size && bytes >= align && bytes.is_multiple_of(PAGE));
                        assert!(bytes == align || 8 * (bytes - size) <= bytes.max(8 * PAGE));
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_requests_have_no_plan() {
        assert_eq!(plan(usize::MAX, 1, MAX), None);
        assert_eq!(plan(isize::MAX as usize + 1, 1, MAX), None);
        assert_eq!(plan(1, 1 << 63, MAX), None);
        assert!(plan(isize::MAX as usize, 1 << 62, MAX).is_some());
    }
}
