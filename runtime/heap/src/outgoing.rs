//! Mappings on their way back to the backing.
//!
//! They are collected while the CPU is pinned and unmapped afterwards, since unmapping may take
//! long. The list lies in the mappings themselves.

use core::cell::Cell;
use core::ptr::NonNull;

struct Mapping {
    next: Option<NonNull<Mapping>>,
    bytes: usize,
}

/// A list of dead mappings, which it owns.
pub(crate) struct Outgoing(Cell<Option<NonNull<Mapping>>>);

impl Outgoing {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// Adds a mapping.
    ///
    /// # Safety
    ///
    /// It has at least a page, came from the backing with this size, and nobody uses it any more.
    pub(crate) unsafe fn push(&self, mapping: NonNull<u8>, bytes: usize) {
        let mapping = mapping.cast::<Mapping>();
        let next = self.0.get();
        // SAFETY: by the contract the memory is ours and large enough; mappings are page-aligned.
        unsafe { mapping.write(Mapping { next, bytes }) };
        self.0.set(Some(mapping));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// All mappings of another list join this one, which is empty.
    pub(crate) fn take_from(&self, other: &Self) {
        debug_assert!(self.0.get().is_none());
        self.0.set(other.0.take());
    }

    /// Takes a mapping off the list: start and size.
    pub(crate) fn pop(&self) -> Option<(NonNull<u8>, usize)> {
        let first = self.0.get()?;
        // SAFETY: `push` wrote it, and the list owns the memory.
        let Mapping { next, bytes } = unsafe { first.read() };
        self.0.set(next);
        Some((first.cast(), bytes))
    }
}
