//! The heap over the host's allocator, with threads that play CPUs.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use crate::{Backing, Counters, Heap};

const CPUS: usize = 4;
const MIB: usize = 1 << 20;
/// What a heap keeps of a CPU whose blocks are all free and collected: its own state.
const STATE: usize = 3 * 4096;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
    static PINNED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps books of what is mapped. Each CPU is a lock, so that threads can share CPUs and move.
struct Host<const CHUNK: usize> {
    /// By address: as allocated, and how many bytes of it the heap still has.
    mappings: Mutex<HashMap<usize, (Layout, usize)>>,
    bytes: AtomicUsize,
    peak: AtomicUsize,
    limit: AtomicUsize,
    /// Whether threads move to the next CPU while they map memory.
    restless: AtomicBool,
    cpus: [Mutex<()>; CPUS],
}

type Small<const CHUNK: usize> = Heap<&'static Host<CHUNK>>;
type Usual = Small<{ 2 * MIB }>;

fn heap<const CHUNK: usize>() -> (Small<CHUNK>, &'static Host<CHUNK>) {
    let host = Box::leak(Box::new(Host {
        mappings: Mutex::default(),
        bytes: AtomicUsize::new(0),
        peak: AtomicUsize::new(0),
        limit: AtomicUsize::new(usize::MAX),
        restless: AtomicBool::new(false),
        cpus: Default::default(),
    }));
    CPU.set(0);
    (Heap::new(host), host)
}

impl<const CHUNK: usize> Host<CHUNK> {
    fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

struct Pin {
    _cpu: MutexGuard<'static, ()>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        PINNED.set(false);
    }
}

// SAFETY: memory of the host's allocator is handed out once. The lock of a CPU keeps other
// threads off it, and a thread changes its CPU only where it is not pinned.
unsafe impl<const CHUNK: usize> Backing for &'static Host<CHUNK> {
    const CHUNK_BYTES: usize = CHUNK;

    type Guard = Pin;

    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        assert!(!PINNED.get() && bytes.is_multiple_of(4096) && align <= bytes);
        if self.restless.load(Relaxed) {
            CPU.set((CPU.get() + 1) % CPUS);
        }
        let layout = Layout::from_size_align(bytes, align).ok()?;
        let before = self.bytes.fetch_add(bytes, Relaxed);
        self.peak.fetch_max(before + bytes, Relaxed);
        if before.saturating_add(bytes) > self.limit.load(Relaxed) {
            self.bytes.fetch_sub(bytes, Relaxed);
            return None;
        }
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("the host has memory");
        let mut mappings = self.mappings.lock().unwrap();
        assert_eq!(mappings.insert(memory.addr().get(), (layout, bytes)), None);
        Some(memory)
    }

    fn unmap(&self, memory: NonNull<u8>, bytes: usize) {
        assert!(!PINNED.get());
        let known = self.mappings.lock().unwrap().remove(&memory.addr().get());
        let (layout, left) = known.expect("mapped");
        assert_eq!(left, bytes);
        self.bytes.fetch_sub(bytes, Relaxed);
        // SAFETY: it was mapped with this layout.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }

    fn unmap_tail(&self, memory: NonNull<u8>, bytes: usize, keep: usize) -> bool {
        assert!(!PINNED.get() && keep < bytes && keep.is_multiple_of(4096));
        let mut mappings = self.mappings.lock().unwrap();
        let (_, left) = mappings.get_mut(&memory.addr().get()).expect("mapped");
        assert_eq!(*left, bytes);
        *left = keep;
        self.bytes.fetch_sub(bytes - keep, Relaxed);
        true
    }

    fn current_cpu(&self) -> usize {
        CPU.get()
    }

    fn pin(&self) -> Pin {
        assert!(!PINNED.replace(true), "pinned once at a time");
        let host: &'static Host<CHUNK> = self;
        let lock = host.cpus[CPU.get()].lock();
        Pin {
            _cpu: lock.unwrap_or_else(PoisonError::into_inner),
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn layout(&mut self) -> (usize, usize) {
        let size = match self.below(100) {
            0..60 => self.below(300),
            60..85 => self.below(5_000),
            85..98 => self.below(50_000),
            _ => self.below(600_000),
        };
        let align = match self.below(20) {
            0 => self.below(22),
            _ => self.below(7),
        };
        (size, 1 << align)
    }
}

/// Memory that is out, filled with a pattern of its own.
struct Piece {
    memory: *mut u8,
    size: usize,
    align: usize,
    tag: u8,
}

// SAFETY: it is plain memory with one owner.
unsafe impl Send for Piece {}

impl Piece {
    fn new<const CHUNK: usize>(
        heap: &Small<CHUNK>,
        (size, align): (usize, usize),
        tag: u8,
    ) -> Option<Self> {
        let zeroed = tag.is_multiple_of(4);
        let memory = if zeroed {
            heap.allocate_zeroed(size, align)
        } else {
            heap.allocate(size, align)
        };
        let piece = Self {
            memory,
            size,
            align,
            tag,
        };
        if memory.is_null() {
            return None;
        }
        assert!(memory.addr().is_multiple_of(align));
        assert!(!zeroed || piece.bytes(size).iter().all(|&byte| byte == 0));
        piece.fill();
        Some(piece)
    }

    fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: the memory is this piece's, and was filled by this test or zeroed by the heap.
        unsafe { std::slice::from_raw_parts(self.memory, len) }
    }

    fn fill(&self) {
        // SAFETY: the memory is this piece's and has this size.
        unsafe { self.memory.write_bytes(self.tag, self.size) };
    }

    fn check(&self, len: usize) {
        let whole = self.bytes(len).iter().all(|&byte| byte == self.tag);
        assert!(
            whole,
            "{} bytes at {:p} were overwritten",
            self.size, self.memory
        );
    }

    fn resize<const CHUNK: usize>(&mut self, heap: &Small<CHUNK>, size: usize) -> bool {
        self.check(self.size);
        // SAFETY: the memory came from this heap with this size and alignment.
        let new = unsafe { heap.reallocate(self.memory, self.size, self.align, size) };
        if new.is_null() {
            self.check(self.size);
            return false;
        }
        assert!(new.addr().is_multiple_of(self.align));
        let kept = size.min(self.size);
        (self.memory, self.size) = (new, size);
        self.check(kept);
        self.fill();
        true
    }

    fn free<const CHUNK: usize>(self, heap: &Small<CHUNK>) {
        self.check(self.size);
        // SAFETY: the memory came from this heap with this size and alignment; this is its end.
        unsafe { heap.deallocate(self.memory, self.size, self.align) };
    }
}

fn random_life<const CHUNK: usize>(steps: usize) {
    let (heap, host) = heap::<CHUNK>();
    host.restless.store(true, Relaxed);
    let mut random = Random(CHUNK as u64 + 1);
    let mut live: Vec<Piece> = Vec::new();
    for step in 0..steps {
        CPU.set(random.below(CPUS));
        match random.below(10) {
            0..5 if live.len() < 400 => {
                live.push(Piece::new(&heap, random.layout(), step as u8).unwrap());
            }
            5..7 if !live.is_empty() => {
                let at = random.below(live.len());
                let (size, _) = random.layout();
                assert!(live[at].resize(&heap, size));
            }
            _ if !live.is_empty() => {
                let at = random.below(live.len());
                live.swap_remove(at).free(&heap);
            }
            _ => {}
        }
        if random.below(500) == 0 {
            heap.collect();
        }
    }
    let counters = heap.total_counters();
    assert!(
        counters.remote_frees > 100 && counters.slow_paths > 10,
        "{counters:?}"
    );
    live.into_iter().for_each(|piece| piece.free(&heap));
    drop(heap);
    assert_eq!(host.bytes(), 0);
    assert!(host.mappings.lock().unwrap().is_empty());
}

#[test]
fn random_life_in_usual_chunks() {
    random_life::<{ 2 * MIB }>(30_000);
}

#[test]
fn random_life_in_small_chunks() {
    random_life::<{ 128 << 10 }>(30_000);
}

#[test]
fn random_life_in_smallest_chunks() {
    random_life::<{ 32 << 10 }>(30_000);
}

fn collect_everywhere(heap: &Usual) {
    for cpu in 0..CPUS {
        CPU.set(cpu);
        heap.collect();
    }
    CPU.set(0);
}

#[test]
fn memory_comes_back_after_a_burst() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    for size in [16, 100, 1_000, 3_000, 8_192, 20_000, 32_768] {
        let burst: Vec<_> = (0..40 * MIB / size.max(64))
            .map(|_| Piece::new(&heap, (size, 8), 1).unwrap())
            .collect();
        let used: usize = burst.len() * size;
        assert!(host.bytes() >= used && host.bytes() <= used + used / 4 + 20 * MIB);
        burst.into_iter().rev().for_each(|piece| piece.free(&heap));
        // One chunk, and those of the spans that are kept for their class.
        assert!(host.bytes() <= 10 * 2 * MIB, "{size}: {}", host.bytes());
    }
    heap.collect();
    assert!(host.bytes() <= STATE, "{}", host.bytes());
    let counters = heap.counters(0);
    assert_eq!(counters.chunks_mapped, counters.chunks_unmapped);
    assert_eq!(counters.remote_frees, 0);
}

#[test]
fn what_others_free_goes_home() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    let pieces: Vec<_> = (0..20_000)
        .map(|i| Piece::new(&heap, (i % 700, 8), i as u8).unwrap())
        .collect();
    let addresses: HashSet<_> = pieces.iter().map(|piece| piece.memory.addr()).collect();
    assert_eq!(addresses.len(), pieces.len());
    CPU.set(1);
    pieces.into_iter().for_each(|piece| piece.free(&heap));
    assert_eq!(heap.counters(0).remote_returns, 0);
    // CPU 1 never allocated, so it has no state and counts nothing.
    let mut mine = Piece::new(&heap, (64, 8), 0).unwrap();
    assert!(
        !addresses.contains(&mine.memory.addr()),
        "blocks stay with their owner"
    );
    CPU.set(0);
    mine.resize(&heap, 1_000);
    assert_eq!(heap.counters(0).remote_frees, 1);
    let before = host.bytes();
    let again: Vec<_> = (0..20_000)
        .map(|i| Piece::new(&heap, (i % 700, 8), i as u8).unwrap())
        .collect();
    // Blocks lie differently now, which may take another chunk.
    assert!(
        host.bytes() <= before + 2 * MIB,
        "what came back is used again"
    );
    assert_eq!(heap.counters(0).remote_returns, 20_000);
    again
        .into_iter()
        .chain([mine])
        .for_each(|piece| piece.free(&heap));
    collect_everywhere(&heap);
    assert!(host.bytes() <= 2 * STATE, "{}", host.bytes());
    assert_eq!(heap.counters(0).remote_returns, 20_000);
    assert_eq!(heap.counters(1).remote_returns, 1);
}

#[test]
fn producer_and_consumer_need_little_memory() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    let heap = &heap;
    let (to_consumer, pieces) = mpsc::sync_channel::<Vec<Piece>>(4);
    thread::scope(|scope| {
        scope.spawn(move || {
            CPU.set(1);
            for batch in pieces {
                batch.into_iter().for_each(|piece| piece.free(heap));
            }
        });
        CPU.set(0);
        for round in 0..2_000 {
            let batch = (0..50).map(|i| Piece::new(heap, (i * 20, 8), round as u8).unwrap());
            to_consumer.send(batch.collect()).unwrap();
            assert!(host.bytes() <= 4 * 2 * MIB, "{round}: {}", host.bytes());
        }
        drop(to_consumer);
    });
}

#[test]
fn storm_of_frees_across_cpus() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    host.restless.store(true, Relaxed);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..CPUS + 2).map(|_| mpsc::channel::<Piece>()).unzip();
    thread::scope(|scope| {
        for (me, receiver) in receivers.into_iter().enumerate() {
            let (senders, heap) = (senders.clone(), &heap);
            scope.spawn(move || {
                let mut random = Random(me as u64 + 77);
                for step in 0..6_000 {
                    CPU.set((me + step / 500) % CPUS);
                    let layout = match step % 3 {
                        0 => (random.below(40_000), 1 << random.below(13)),
                        _ => (random.below(200), 8),
                    };
                    let piece = Piece::new(heap, layout, (me * 40 + step % 40) as u8).unwrap();
                    // Those that have ended no longer receive.
                    if let Err(back) = senders[random.below(senders.len())].send(piece) {
                        back.0.free(heap);
                    }
                    while let Ok(mut piece) = receiver.try_recv() {
                        if random.below(4) == 0 {
                            piece.resize(heap, random.below(2_000));
                        }
                        piece.free(heap);
                    }
                }
                drop(senders);
                receiver.into_iter().for_each(|piece| piece.free(heap));
            });
        }
        drop(senders);
    });
    assert!(heap.total_counters().remote_frees > 1_000);
    assert!(host.peak.load(Relaxed) < 400 * MIB);
    drop(heap);
    assert_eq!(host.bytes(), 0);
}

#[test]
fn out_of_memory_is_null_and_passes() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    host.limit.store(0, Relaxed);
    assert!(heap.allocate(10, 8).is_null());
    assert!(heap.allocate_zeroed(10, 8).is_null());
    assert!(heap.allocate(MIB, 8).is_null());
    host.limit.store(11 * MIB, Relaxed);
    let mut random = Random(3);
    for round in 0..20 {
        let mut pieces = Vec::new();
        while let Some(piece) = Piece::new(&heap, (random.below(60_000), 8), round) {
            pieces.push(piece);
        }
        assert!(pieces.len() > 20, "{round}: {}", pieces.len());
        let mut some = pieces.swap_remove(0);
        assert!(!some.resize(&heap, 20 * MIB));
        some.free(&heap);
        // A CPU that cannot even have its own state can free.
        CPU.set(3);
        pieces.into_iter().for_each(|piece| piece.free(&heap));
        CPU.set(0);
    }
    assert!(heap.counters(0).remote_returns > 0);
    assert_eq!(heap.counters(3), Counters::default());
    host.limit.store(usize::MAX, Relaxed);
    Piece::new(&heap, (MIB, 1), 1).unwrap().free(&heap);
    drop(heap);
    assert_eq!(host.bytes(), 0);
}

#[test]
fn impossible_sizes_are_null() {
    let (heap, _) = heap::<{ 2 * MIB }>();
    for (size, align) in [(usize::MAX, 1), (isize::MAX as usize, 4096), (1, 1 << 63)] {
        assert!(heap.allocate(size, align).is_null());
        assert!(heap.allocate_zeroed(size, align).is_null());
    }
    let mut piece = Piece::new(&heap, (100, 8), 1).unwrap();
    assert!(!piece.resize(&heap, usize::MAX));
    piece.free(&heap);
    // SAFETY: null is ignored.
    unsafe { heap.deallocate(std::ptr::null_mut(), 1, 1) };
}

#[test]
fn nothing_is_something() {
    let (heap, _) = heap::<{ 2 * MIB }>();
    let pieces: Vec<_> = (0..100)
        .map(|_| Piece::new(&heap, (0, 1), 1).unwrap())
        .collect();
    let addresses: HashSet<_> = pieces.iter().map(|piece| piece.memory.addr()).collect();
    assert_eq!(addresses.len(), 100);
    for mut piece in pieces {
        assert!(piece.resize(&heap, 40));
        assert!(piece.resize(&heap, 0));
        piece.free(&heap);
    }
}

#[test]
fn alignments_are_kept() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    let mut pieces = Vec::new();
    for shift in 0..=23 {
        for size in [0, 1, 1 << shift, (1 << shift) + 1, 40_000] {
            pieces.push(Piece::new(&heap, (size, 1 << shift), shift).unwrap());
        }
    }
    pieces.into_iter().for_each(|piece| piece.free(&heap));
    drop(heap);
    assert_eq!(host.bytes(), 0);
}

#[test]
fn reallocating_stays_in_place_where_it_can() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    let mut piece = Piece::new(&heap, (1_030, 8), 1).unwrap();
    let place = piece.memory;
    assert!(
        piece.resize(&heap, 1_150) && piece.memory == place,
        "one class"
    );
    assert!(
        piece.resize(&heap, 1_160) && piece.memory != place,
        "the next class"
    );
    assert!(piece.resize(&heap, 3 * MIB));
    let place = piece.memory;
    assert!(piece.resize(&heap, 3 * MIB - 100) && piece.memory == place);
    let before = host.bytes();
    assert!(
        piece.resize(&heap, 2 * MIB + 1) && piece.memory == place,
        "only the end goes"
    );
    assert_eq!(host.bytes(), before - MIB + 4096);
    assert!(piece.resize(&heap, 10) && piece.memory != place);
    piece.free(&heap);
}

#[test]
fn small_mappings_are_kept_and_large_ones_fresh() {
    let (heap, host) = heap::<{ 2 * MIB }>();
    Piece::new(&heap, (1, 1), 1).unwrap().free(&heap);
    let before = host.bytes();
    let piece = Piece::new(&heap, (65_000, 8), 1).unwrap();
    let place = piece.memory;
    piece.free(&heap);
    let zeroed = Piece::new(&heap, (65_000, 8), 4).unwrap();
    assert_ne!(zeroed.memory, place, "zeroed memory is fresh");
    let piece = Piece::new(&heap, (64_000, 8), 1).unwrap();
    assert_eq!(piece.memory, place);
    assert_eq!(
        (heap.counters(0).large_maps, heap.counters(0).large_reuses),
        (2, 1)
    );
    piece.free(&heap);
    zeroed.free(&heap);
    for large in [128 << 10, MIB] {
        let held = host.bytes();
        Piece::new(&heap, (large, 8), 1).unwrap().free(&heap);
        assert_eq!(host.bytes(), held);
    }
    for size in (33_000..131_000).step_by(500) {
        let pieces: Vec<_> = (0..5)
            .map(|_| Piece::new(&heap, (size, 8), 1).unwrap())
            .collect();
        pieces.into_iter().for_each(|piece| piece.free(&heap));
        assert!(host.bytes() <= before + (512 << 10));
    }
    heap.collect();
    assert!(host.bytes() <= STATE);
}

#[test]
fn one_block_back_and_forth_stays_fast() {
    let (heap, _) = heap::<{ 2 * MIB }>();
    for size in [16, 500, 2_048, 9_000, 32_768] {
        let fill: Vec<_> = (0..16)
            .map(|_| Piece::new(&heap, (size, 8), 1).unwrap())
            .collect();
        let before = heap.counters(0).slow_paths;
        for _ in 0..1_000 {
            Piece::new(&heap, (size, 8), 1).unwrap().free(&heap);
        }
        assert!(heap.counters(0).slow_paths - before <= 1, "{size}");
        fill.into_iter().for_each(|piece| piece.free(&heap));
    }
}
