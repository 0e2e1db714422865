//! One CPU's part of a heap. All of it is used with that CPU pinned, save for the list of pending
//! spans (others push to it) and the counters (others read them).

use core::cell::Cell;
use core::ptr::NonNull;

use crate::Padded;
use crate::chunk::ChunkRef;
use crate::classes::{CLASSES, Class, FRESH};
use crate::counters::Counting;
use crate::list::List;
use crate::outgoing::Outgoing;
use crate::span::{Pending, SpanRef, State};

/// How many empty spans stay current in their class.
const KEPT_SPANS: usize = 8;
/// How many empty chunks stay.
const KEPT_CHUNKS: usize = 1;
/// How many mappings stay, none of them of [`FRESH`] bytes or more.
const KEPT_MAPPINGS: usize = 8;
/// How many bytes they may have together.
const KEPT_BYTES: usize = 4 * FRESH;

/// One CPU's part of a heap.
pub(crate) struct Cpu {
    index: usize,
    chunk_bytes: usize,
    classes: [PerClass; CLASSES],
    /// Classes whose current span became empty; the oldest is next to be given up.
    kept_spans: [Cell<Option<Class>>; KEPT_SPANS],
    next_kept_span: Cell<usize>,
    /// The chunks with free slices.
    chunks: List<ChunkRef>,
    empty_chunks: Cell<usize>,
    kept_mappings: [Kept; KEPT_MAPPINGS],
    next_kept_mapping: Cell<usize>,
    kept_bytes: Cell<usize>,
    /// Mappings to be unmapped when the CPU is no longer pinned.
    pub(crate) outgoing: Outgoing,
    pub(crate) counting: Padded<Counting>,
    /// Spans with blocks that other CPUs freed.
    pub(crate) pending: Padded<Pending>,
}

/// A place for a mapping: start and size.
type Kept = Cell<Option<(NonNull<u8>, usize)>>;

struct PerClass {
    current: Cell<Option<SpanRef>>,
    partial: List<SpanRef>,
    /// Whether the class is among `kept_spans`.
    kept: Cell<bool>,
}

impl Cpu {
    pub(crate) fn new(index: usize, chunk_bytes: usize) -> Self {
        Self {
            index,
            chunk_bytes,
            classes: [const {
                PerClass {
                    current: Cell::new(None),
                    partial: List::new(),
                    kept: Cell::new(false),
                }
            }; CLASSES],
            kept_spans: [const { Cell::new(None) }; KEPT_SPANS],
            next_kept_span: Cell::new(0),
            chunks: List::new(),
            empty_chunks: Cell::new(0),
            kept_mappings: [const { Cell::new(None) }; KEPT_MAPPINGS],
            next_kept_mapping: Cell::new(0),
            kept_bytes: Cell::new(0),
            outgoing: Outgoing::new(),
            counting: Padded(Counting::default()),
            pending: Padded(Pending::new()),
        }
    }

    /// A block from the current span.
    #[inline]
    pub(crate) fn allocate(&self, class: Class) -> Option<NonNull<u8>> {
        self.classes[class.index()].current.get()?.pop()
    }

    /// A block from wherever this CPU has one: `None` if it needs another chunk.
    #[cold]
    pub(crate) fn allocate_slowly(&self, class: Class) -> Option<NonNull<u8>> {
        self.take_back();
        let per_class = &self.classes[class.index()];
        if let Some(block) = per_class.current.get().and_then(|span| span.pop()) {
            return Some(block);
        }
        let span = match per_class.partial.pop() {
            Some(span) => span,
            None => self.cut(class)?,
        };
        if let Some(full) = per_class.current.replace(Some(span)) {
            full.set_state(State::Full);
        }
        span.set_state(State::Current);
        span.pop()
    }

    /// Puts a block of one of this CPU's spans back. Whoever calls unmaps what is outgoing then.
    ///
    /// # Safety
    ///
    /// The span is this CPU's, and the block is one of its blocks and out.
    #[inline]
    pub(crate) unsafe fn free(&self, span: SpanRef, block: NonNull<u8>) {
        // SAFETY: by the contract.
        unsafe { span.push(block) };
        if span.is_empty() || span.state() == State::Full {
            self.settle(span);
        }
    }

    /// Takes back the blocks that others freed.
    pub(crate) fn take_back(&self) {
        let mut next = self.pending.0.take();
        while let Some(span) = next {
            // First: once its remote list is empty, the span may become pending again.
            next = span.next_pending();
            self.counting.0.remote_returns.add(span.take_remote());
            self.settle(span);
        }
    }

    /// Gives the chunk just mapped its place.
    pub(crate) fn add(&self, chunk: ChunkRef) {
        self.counting.0.chunks_mapped.add(1);
        self.empty_chunks.set(self.empty_chunks.get() + 1);
        self.chunks.push(chunk);
    }

    /// A kept mapping of exactly this size.
    pub(crate) fn reuse(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let fits = |kept: &&Kept| {
            (kept.get()).is_some_and(|(start, size)| {
                size == bytes && start.addr().get().is_multiple_of(align)
            })
        };
        let (start, _) = self.kept_mappings.iter().find(fits)?.take()?;
        self.kept_bytes.set(self.kept_bytes.get() - bytes);
        self.counting.0.large_reuses.add(1);
        Some(start)
    }

    /// Keeps a mapping that was freed; others go in its place.
    ///
    /// # Safety
    ///
    /// The mapping came from the backing with this size and nobody uses it any more.
    pub(crate) unsafe fn keep(&self, start: NonNull<u8>, bytes: usize) {
        let mappings = &self.kept_mappings;
        let free = mappings.iter().position(|kept| kept.get().is_none());
        let place = free.unwrap_or(self.next_kept_mapping.get());
        self.drop_mapping(place);
        for other in 1..KEPT_MAPPINGS {
            if self.kept_bytes.get() + bytes > KEPT_BYTES {
                self.drop_mapping((place + other) % KEPT_MAPPINGS);
            }
        }
        mappings[place].set(Some((start, bytes)));
        self.kept_bytes.set(self.kept_bytes.get() + bytes);
        self.next_kept_mapping.set((place + 1) % KEPT_MAPPINGS);
    }

    /// Gives up everything that is kept and not used.
    pub(crate) fn collect(&self) {
        self.take_back();
        for place in 0..KEPT_SPANS {
            self.drop_kept_span(place);
        }
        for place in 0..KEPT_MAPPINGS {
            self.drop_mapping(place);
        }
        let mut next = self.chunks.first();
        while let Some(chunk) = next {
            next = List::after(chunk);
            if chunk.is_empty() {
                self.empty_chunks.set(self.empty_chunks.get() - 1);
                self.unmap(chunk);
            }
        }
    }

    fn cut(&self, class: Class) -> Option<SpanRef> {
        let mut next = self.chunks.first();
        while let Some(chunk) = next {
            next = List::after(chunk);
            let was_empty = chunk.is_empty();
            if let Some(span) = chunk.cut(class, self.index) {
                if was_empty {
                    self.empty_chunks.set(self.empty_chunks.get() - 1);
                }
                if chunk.is_full() {
                    self.chunks.remove(chunk);
                }
                self.counting.0.spans.add(1);
                return Some(span);
            }
        }
        None
    }

    /// Moves a span to where it belongs after blocks came back.
    #[cold]
    fn settle(&self, span: SpanRef) {
        let per_class = &self.classes[span.class().index()];
        match span.state() {
            State::Current if span.is_empty() => self.keep_span(span.class()),
            State::Current => {}
            State::Partial if span.is_empty() => {
                per_class.partial.remove(span);
                self.give_back(span);
            }
            State::Partial => {}
            State::Full if span.is_empty() => self.give_back(span),
            State::Full => {
                span.set_state(State::Partial);
                per_class.partial.push(span);
            }
        }
    }

    /// The current span of a class is empty: keeps it, and gives up the one kept longest.
    fn keep_span(&self, class: Class) {
        if self.classes[class.index()].kept.replace(true) {
            return;
        }
        let place = self.next_kept_span.get();
        self.drop_kept_span(place);
        self.kept_spans[place].set(Some(class));
        self.next_kept_span.set((place + 1) % KEPT_SPANS);
    }

    fn drop_kept_span(&self, place: usize) {
        let Some(class) = self.kept_spans[place].take() else {
            return;
        };
        let per_class = &self.classes[class.index()];
        per_class.kept.set(false);
        // It may be in use again, or full and replaced.
        if let Some(span) = per_class.current.get().filter(|span| span.is_empty()) {
            per_class.current.set(None);
            self.give_back(span);
        }
    }

    fn give_back(&self, span: SpanRef) {
        let chunk = span.chunk(self.chunk_bytes);
        let was_full = chunk.is_full();
        chunk.give_back(span);
        if was_full {
            self.chunks.push(chunk);
        }
        if chunk.is_empty() {
            if self.empty_chunks.get() < KEPT_CHUNKS {
                self.empty_chunks.set(self.empty_chunks.get() + 1);
            } else {
                self.unmap(chunk);
            }
        }
    }

    fn unmap(&self, chunk: ChunkRef) {
        self.chunks.remove(chunk);
        self.counting.0.chunks_unmapped.add(1);
        // SAFETY: a chunk is a mapping of this size; it has no spans, and it left the list.
        unsafe { self.outgoing.push(chunk.start(), self.chunk_bytes) };
    }

    fn drop_mapping(&self, place: usize) {
        if let Some((start, bytes)) = self.kept_mappings[place].take() {
            self.kept_bytes.set(self.kept_bytes.get() - bytes);
            // SAFETY: it was kept since `keep`, so it is a whole mapping and ours.
            unsafe { self.outgoing.push(start, bytes) };
        }
    }
}
