//! Spans: runs of memory that hold blocks of one class.
//!
//! A span starts with its header, at a multiple of its own size, so that the header of a block is
//! found by masking the block's address: the class, and with it the span's size, follows from what
//! the caller says about the block.
//!
//! Invariants:
//!
//! 1. *Owner.* All but the remote list is used by the owning CPU only, with that CPU pinned.
//! 2. *Life.* A header lives while blocks of its span are out, blocks on its remote list
//!    included. Only the owner ends it, after having taken back all of them.
//! 3. *Blocks.* A free block is on exactly one list (free or remote), and its first word is the
//!    link; a block that is out is nobody's but the caller's.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::Padded;
use crate::chunk;
use crate::classes::Class;
use crate::list::{Links, Member};

/// Where a span stands with its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its class allocates from it.
    Current,
    /// In its class's list: has free blocks.
    Partial,
    /// Has no free blocks, except on its remote list; in no list.
    Full,
}

/// The header of a span.
#[repr(C)]
pub(crate) struct Span {
    owner: usize,
    class: Class,
    state: Cell<State>,
    /// Blocks that are out or on the remote list.
    used: Cell<u32>,
    /// Blocks that were never handed out.
    uncut: Cell<u32>,
    /// The first of them.
    cut: Cell<NonNull<u8>>,
    free: Cell<*mut Block>,
    links: Links<SpanRef>,
    shared: Padded<Shared>,
}

/// What other CPUs write.
struct Shared {
    /// Blocks that others freed.
    remote: AtomicPtr<Block>,
    /// The next span in the owner's list of spans with remote blocks. Belongs to the span's
    /// place in that list: to whoever made `remote` non-empty, then to the owner.
    next_pending: AtomicPtr<Span>,
}

struct Block {
    next: *mut Block,
}

const _: () = assert!(size_of::<Span>() == HEADER && core::mem::offset_of!(Span, shared) == 128);

/// Bytes of a header.
pub(crate) const HEADER: usize = 256;

/// A reference to the header of a span that is alive (invariant 2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanRef(NonNull<Span>);

impl Deref for SpanRef {
    type Target = Span;

    fn deref(&self) -> &Span {
        // SAFETY: the header is alive, was initialised by `create`, and only has shared
        // references; what changes in it is in cells and atomics.
        unsafe { self.0.as_ref() }
    }
}

impl Member for SpanRef {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl SpanRef {
    /// Writes the header of a new span; its blocks begin behind the first `reserved` bytes.
    ///
    /// # Safety
    ///
    /// `start` is a multiple of the class's span size, that many bytes are the caller's, and the
    /// caller runs on CPU `owner`, pinned.
    pub(crate) unsafe fn create(
        start: NonNull<u8>,
        reserved: usize,
        class: Class,
        owner: usize,
    ) -> Self {
        let block = class.block_bytes();
        // Blocks are as aligned as their size says.
        let natural = 1 << block.trailing_zeros();
        let first = reserved.next_multiple_of(natural);
        let header = Span {
            owner,
            class,
            state: Cell::new(State::Current),
            used: Cell::new(0),
            uncut: Cell::new(((class.span_bytes() - first) / block) as u32),
            // SAFETY: the span is larger than `first`.
            cut: Cell::new(unsafe { start.add(first) }),
            free: Cell::new(ptr::null_mut()),
            links: Links::new(),
            shared: Padded(Shared {
                remote: AtomicPtr::new(ptr::null_mut()),
                next_pending: AtomicPtr::new(ptr::null_mut()),
            }),
        };
        let span = start.cast::<Span>();
        // SAFETY: by the contract the memory is the caller's; it is aligned to 32 KiB at least.
        unsafe { span.write(header) };
        Self(span)
    }

    /// The span of a block.
    ///
    /// # Safety
    ///
    /// The block is out and of this class.
    pub(crate) unsafe fn of(block: NonNull<u8>, class: Class) -> Self {
        let mask = !(class.span_bytes() - 1);
        let start = block.as_ptr().map_addr(|address| address & mask);
        // SAFETY: the span holds the block, and is not at address zero.
        Self(unsafe { NonNull::new_unchecked(start) }.cast())
    }

    /// The chunk it was cut from, whose chunks have `chunk_bytes`.
    pub(crate) fn chunk(self, chunk_bytes: usize) -> chunk::ChunkRef {
        // SAFETY: every span lies in a chunk, which lives as long as the span.
        unsafe { chunk::ChunkRef::of(self.0.cast(), chunk_bytes) }
    }

    /// Where the span starts.
    pub(crate) fn address(self) -> usize {
        self.0.addr().get()
    }

    /// Takes the span that another CPU made pending before this one out of its place.
    pub(crate) fn next_pending(self) -> Option<Self> {
        let next = self.shared.0.next_pending.load(Ordering::Relaxed);
        NonNull::new(next).map(Self)
    }

    /// Frees a block of another CPU's span.
    ///
    /// # Safety
    ///
    /// The block is one of this span's and out; `pending` is the owner's list.
    pub(crate) unsafe fn push_remote(self, block: NonNull<u8>, pending: &Pending) {
        let block = block.as_ptr().cast::<Block>();
        let remote = &self.shared.0.remote;
        let mut first = remote.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is out, so it is ours until the exchange succeeds (invariant 3).
            unsafe { block.write(Block { next: first }) };
            // Release: the owner sees the link, and everything the application did to the block.
            match remote.compare_exchange_weak(first, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        if first.is_null() {
            // The owner learns of the span only here, so that it cannot take the block back, and
            // end the span, before this is done (invariant 2).
            pending.push(self);
        }
    }
}

impl Span {
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// The CPU that owns it.
    pub(crate) fn owner(&self) -> usize {
        self.owner
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.set(state);
    }

    /// Whether no block is out.
    pub(crate) fn is_empty(&self) -> bool {
        self.used.get() == 0
    }

    /// Takes a block. Owner only.
    #[inline]
    pub(crate) fn pop(&self) -> Option<NonNull<u8>> {
        let block = match NonNull::new(self.free.get()) {
            Some(block) => {
                // SAFETY: a block on the free list is ours and holds a link (invariant 3).
                self.free.set(unsafe { block.as_ref().next });
                block.cast()
            }
            None => self.cut_block()?,
        };
        self.used.set(self.used.get() + 1);
        Some(block)
    }

    fn cut_block(&self) -> Option<NonNull<u8>> {
        let left = self.uncut.get().checked_sub(1)?;
        let block = self.cut.get();
        self.uncut.set(left);
        // SAFETY: `uncut` blocks follow; behind the last one is the end of the span at most.
        self.cut.set(unsafe { block.add(self.class.block_bytes()) });
        Some(block)
    }

    /// Puts a block back. Owner only.
    ///
    /// # Safety
    ///
    /// The block is one of this span's and out.
    #[inline]
    pub(crate) unsafe fn push(&self, block: NonNull<u8>) {
        debug_assert!(self.used.get() > 0, "a block is freed once");
        let block = block.as_ptr().cast::<Block>();
        // SAFETY: the block is ours again (invariant 3), and large and aligned enough for a link.
        unsafe {
            block.write(Block {
                next: self.free.get(),
            });
        }
        self.free.set(block);
        self.used.set(self.used.get() - 1);
    }

    /// Puts back all blocks that others freed; how many. Owner only, for a span that was pending.
    pub(crate) fn take_remote(&self) -> u64 {
        // Acquire: with the release in `push_remote`.
        let mut next = self
            .shared
            .0
            .remote
            .swap(ptr::null_mut(), Ordering::Acquire);
        let mut count = 0;
        while let Some(block) = NonNull::new(next) {
            // SAFETY: after the swap the blocks of the list are ours; each holds a link.
            next = unsafe { block.as_ref().next };
            // SAFETY: it is a block of this span that was out as far as `used` knows.
            unsafe { self.push(block.cast()) };
            count += 1;
        }
        count
    }
}

/// A CPU's list of spans with remote blocks. Others push, the owner takes all.
pub(crate) struct Pending(AtomicPtr<Span>);

impl Pending {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn push(&self, span: SpanRef) {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // Whoever made the remote list non-empty is the only one here.
            span.shared.0.next_pending.store(first, Ordering::Relaxed);
            let new = span.0.as_ptr();
            match (self.0).compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all spans off the list; the others follow the first by [`SpanRef::next_pending`].
    pub(crate) fn take(&self) -> Option<SpanRef> {
        if self.0.load(Ordering::Relaxed).is_null() {
            return None;
        }
        NonNull::new(self.0.swap(ptr::null_mut(), Ordering::Acquire)).map(SpanRef)
    }
}
