//! Chunks: what the heap maps to cut spans from.
//!
//! A chunk lies at a multiple of its size and belongs to the CPU that mapped it. Its header stands
//! behind that of the span in its first slice, so that both can be there or not independently.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::classes::{Class, SLICE};
use crate::list::{Links, Member};
use crate::slices::Slices;
use crate::span::{self, SpanRef};

/// The header of a chunk. Used by the owning CPU only, with that CPU pinned.
#[repr(C, align(128))]
pub(crate) struct Chunk {
    free: Cell<Slices>,
    all: Slices,
    links: Links<ChunkRef>,
}

/// How many bytes of a chunk's first slice are not for blocks.
const RESERVED: usize = span::HEADER + size_of::<Chunk>();

/// A reference to the header of a chunk that is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRef(NonNull<Chunk>);

impl Deref for ChunkRef {
    type Target = Chunk;

    fn deref(&self) -> &Chunk {
        // SAFETY: the chunk is mapped, its header was initialised by `create`, and only has
        // shared references; what changes in it is in cells.
        unsafe { self.0.as_ref() }
    }
}

impl Member for ChunkRef {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl ChunkRef {
    /// Writes the header of a new chunk.
    ///
    /// # Safety
    ///
    /// `start` is a multiple of `bytes`, a power of two and of slices; that much memory is the
    /// caller's.
    pub(crate) unsafe fn create(start: NonNull<u8>, bytes: usize) -> Self {
        let all = Slices::all(bytes / SLICE);
        // SAFETY: a chunk is larger than a header, and aligned.
        let header = unsafe { start.add(span::HEADER) }.cast::<Chunk>();
        let chunk = Chunk {
            free: Cell::new(all),
            all,
            links: Links::new(),
        };
        // SAFETY: by the contract the memory is the caller's.
        unsafe { header.write(chunk) };
        Self(header)
    }

    /// The chunk around an address in it.
    ///
    /// # Safety
    ///
    /// The address is in a chunk of `bytes` that is mapped.
    pub(crate) unsafe fn of(inside: NonNull<u8>, bytes: usize) -> Self {
        let start = inside.as_ptr().map_addr(|address| address & !(bytes - 1));
        // SAFETY: the header lies in the same mapping, which is not at address zero.
        Self(unsafe { NonNull::new_unchecked(start.add(span::HEADER)) }.cast())
    }

    /// Where it starts.
    pub(crate) fn start(self) -> NonNull<u8> {
        // SAFETY: the header lies that far behind the start of the mapping.
        unsafe { self.0.cast::<u8>().sub(span::HEADER) }
    }

    /// Cuts a span off.
    pub(crate) fn cut(self, class: Class, owner: usize) -> Option<SpanRef> {
        let count = class.span_bytes() / SLICE;
        let mut free = self.free.get();
        let first = free.take(count)?;
        self.free.set(free);
        let reserved = if first == 0 { RESERVED } else { span::HEADER };
        // SAFETY: the slices were free, so they are ours; a run of slices lies at a multiple of
        // its length, and the chunk at a multiple of its own. Owner: by the type's contract.
        unsafe {
            Some(SpanRef::create(
                self.start().add(first * SLICE),
                reserved,
                class,
                owner,
            ))
        }
    }

    /// Takes the slices of a span back. The span is empty and in no list; it ends here.
    pub(crate) fn give_back(self, span: SpanRef) {
        let first = (span.address() - self.start().addr().get()) / SLICE;
        let mut free = self.free.get();
        free.give(first, span.class().span_bytes() / SLICE);
        self.free.set(free);
    }
}

impl Chunk {
    /// Whether no slice is free.
    pub(crate) fn is_full(&self) -> bool {
        self.free.get().is_empty()
    }

    /// Whether all slices are free.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.get() == self.all
    }
}
