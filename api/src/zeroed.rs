//! Zeroed memory without touching it, and without ending the program when there is none.

use std::alloc::{Layout, alloc_zeroed};

/// Types for which all bits zero is a valid value.
///
/// # Safety
///
/// Every bit pattern of zeros must be a valid value of the type.
pub unsafe trait Zeroed: Copy {}

macro_rules! zeroed {
    ($($type:ty),*) => {$(
        // SAFETY: zero is a value of every number type.
        unsafe impl Zeroed for $type {}
    )*};
}
zeroed!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64
);

// SAFETY: an array is zero when its elements are.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A vector of `len` zeros in untouched memory, or `None` when the memory is not to be had.
///
/// With [`crate::GlobalAlloc`] as the global allocator, large vectors consist of pages that nobody has touched: the
/// thread that writes a page first decides on which node it lives.
pub fn try_zeroed<T: Zeroed>(len: usize) -> Option<Vec<T>> {
    let layout = Layout::array::<T>(len).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout's size is above zero.
    let block = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if block.is_null() {
        return None;
    }
    // SAFETY: the block comes from the global allocator with the layout of `len` elements, all of them initialised,
    // since zero is a valid `T`.
    Some(unsafe { Vec::from_raw_parts(block, len, len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_zeros_or_nothing() {
        let rows = try_zeroed::<[f64; 3]>(100_000).unwrap();
        assert_eq!(rows.len(), 100_000);
        assert!(rows.iter().flatten().all(|x| x.to_bits() == 0));
        assert!(try_zeroed::<u8>(0).unwrap().is_empty());
        assert!(try_zeroed::<u64>(usize::MAX / 8).is_none());
        assert!(try_zeroed::<u64>(isize::MAX as usize / 8 - 4096).is_none());
    }
}
