//! The heap: what callers see.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::chunk::ChunkRef;
use crate::classes::{self, Class, FRESH, PAGE, Plan, SLICE, plan};
use crate::counters::Counters;
use crate::cpu::Cpu;
use crate::outgoing::Outgoing;
use crate::span::SpanRef;

/// How many CPUs a heap can serve.
pub const MAX_CPUS: usize = 1024;

/// Where a heap gets its memory from, and how it learns which CPU it runs on.
///
/// # Safety
///
/// - Memory that `map` returned is the heap's alone until it is unmapped.
/// - `current_cpu` is below [`MAX_CPUS`].
/// - While a [`Backing::Guard`] lives, the CPU cannot change, and nothing else that uses the same
///   heap runs on it: no other thread, and no interrupt handler that allocates.
///   (A page fault on the heap's own memory may be handled, with other heaps.)
pub unsafe trait Backing {
    /// How much the heap maps at a time for small blocks: a power of two between 32 KiB and 2 MiB.
    /// From 512 KiB on, blocks up to 32 KiB are small; from 128 KiB on, up to 8 KiB; else, 2 KiB.
    const CHUNK_BYTES: usize = 2 << 20;

    /// Keeps the current thread on its CPU, and others off it.
    type Guard;

    /// Zeroed memory at a multiple of `align`, a power of two and at most `bytes`, which is a
    /// multiple of 4096. Called without a guard.
    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>>;

    /// Takes back all of what one call of `map` returned for `bytes`, except for the end that
    /// `unmap_tail` took. Called without a guard.
    fn unmap(&self, memory: NonNull<u8>, bytes: usize);

    /// Takes back the end of a mapping of `bytes`, from `keep` (a multiple of 4096) on; `false` if
    /// it cannot. Called without a guard.
    fn unmap_tail(&self, _memory: NonNull<u8>, _bytes: usize, _keep: usize) -> bool {
        false
    }

    /// The CPU this runs on, from 0. Exact while a guard lives.
    fn current_cpu(&self) -> usize;

    /// Pins the current thread.
    fn pin(&self) -> Self::Guard;
}

/// An allocator with per-CPU caches: see the crate's documentation.
pub struct Heap<B: Backing> {
    backing: B,
    cpus: AtomicUsize,
    /// Made by each CPU when it first allocates, so that it lies on that CPU's node.
    per_cpu: [AtomicPtr<Cpu>; MAX_CPUS],
}

// SAFETY: what is not `Sync` in it is each CPU's `Cpu`. It is used by that CPU only, pinned (the
// backing's contract keeps others out meanwhile), except for its `pending` list and counters, which
// are atomic. Blocks and mappings move between threads as plain memory.
unsafe impl<B: Backing + Sync> Sync for Heap<B> {}
// SAFETY: as above: nothing in it depends on the thread.
unsafe impl<B: Backing + Send> Send for Heap<B> {}

const CPU_BYTES: usize = size_of::<Cpu>().next_multiple_of(PAGE);

impl<B: Backing> Heap<B> {
    const LARGEST_SMALL: usize = {
        assert!(B::CHUNK_BYTES.is_power_of_two());
        assert!(B::CHUNK_BYTES >= SLICE && B::CHUNK_BYTES <= 64 * SLICE);
        classes::largest_small(B::CHUNK_BYTES)
    };

    /// A heap that has nothing mapped yet.
    pub const fn new(backing: B) -> Self {
        Self {
            backing,
            cpus: AtomicUsize::new(MAX_CPUS),
            per_cpu: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CPUS],
        }
    }

    /// Says how many CPUs there are, which saves looking for more of them. Maps nothing; may be
    /// called at any time or not at all.
    pub fn init(&self, cpus: usize) {
        self.cpus.store(cpus.min(MAX_CPUS), Ordering::Relaxed);
    }

    /// The backing.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Memory of `size` bytes (0 is fine) at a multiple of `align`, a power of two; null when
    /// there is none.
    #[inline]
    pub fn allocate(&self, size: usize, align: usize) -> *mut u8 {
        let memory = match plan(size, align, Self::LARGEST_SMALL) {
            Some(Plan::Small(class)) => self.allocate_small(class),
            Some(Plan::Large(bytes)) => self.allocate_large(bytes, align),
            None => None,
        };
        memory.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// As [`Heap::allocate`], and zeroed. Large requests are fresh mappings: nothing is written,
    /// so that the pages go to whoever touches them first.
    pub fn allocate_zeroed(&self, size: usize, align: usize) -> *mut u8 {
        match plan(size, align, Self::LARGEST_SMALL) {
            Some(Plan::Small(class)) => {
                let memory = self.allocate_small(class);
                if let Some(memory) = memory {
                    // SAFETY: the block is ours and has at least `size` bytes.
                    unsafe { memory.write_bytes(0, size) };
                }
                memory.map_or(ptr::null_mut(), NonNull::as_ptr)
            }
            Some(Plan::Large(bytes)) => self
                .map_large(bytes, align)
                .map_or(ptr::null_mut(), NonNull::as_ptr),
            None => ptr::null_mut(),
        }
    }

    /// Frees memory; null is ignored.
    ///
    /// # Safety
    ///
    /// The memory came from this heap for this `size` and `align`, and was not freed since.
    #[inline]
    pub unsafe fn deallocate(&self, memory: *mut u8, size: usize, align: usize) {
        let Some(memory) = NonNull::new(memory) else {
            return;
        };
        match plan(size, align, Self::LARGEST_SMALL) {
            // SAFETY: by the contract: the plan is the one the memory was allocated with.
            Some(Plan::Small(class)) => unsafe { self.free_small(memory, class) },
            // SAFETY: as above.
            Some(Plan::Large(bytes)) => unsafe { self.free_large(memory, bytes) },
            None => {}
        }
    }

    /// Changes the size of memory, whose contents move along; null when there is no memory, and
    /// then everything stays as it was.
    ///
    /// # Safety
    ///
    /// As for [`Heap::deallocate`]. If the result is not null, the old memory is freed.
    pub unsafe fn reallocate(
        &self,
        memory: *mut u8,
        size: usize,
        align: usize,
        new_size: usize,
    ) -> *mut u8 {
        let Some(old) = NonNull::new(memory) else {
            return self.allocate(new_size, align);
        };
        let (from, to) = (
            plan(size, align, Self::LARGEST_SMALL),
            plan(new_size, align, Self::LARGEST_SMALL),
        );
        if from == to && from.is_some() {
            return memory;
        }
        if let (Some(Plan::Large(bytes)), Some(Plan::Large(keep))) = (from, to)
            && keep < bytes
            && self.backing.unmap_tail(old, bytes, keep)
        {
            return memory;
        }
        let new = self.allocate(new_size, align);
        if !new.is_null() {
            // SAFETY: both are valid for the smaller size; the new memory is nobody else's.
            unsafe { ptr::copy_nonoverlapping(memory, new, size.min(new_size)) };
            // SAFETY: by the contract.
            unsafe { self.deallocate(memory, size, align) };
        }
        new
    }

    /// Gives back what the current CPU keeps without using it, including what other CPUs have
    /// freed of it. For idle CPUs, and when memory is short.
    pub fn collect(&self) {
        let guard = self.backing.pin();
        if let Some(cpu) = self.cpu(self.backing.current_cpu()) {
            cpu.collect();
            self.unmap_outgoing(cpu, guard);
        }
    }

    /// What happened on one CPU.
    pub fn counters(&self, cpu: usize) -> Counters {
        self.cpu(cpu)
            .map_or_else(Counters::default, |cpu| cpu.counting.0.read())
    }

    /// What happened on all CPUs.
    pub fn total_counters(&self) -> Counters {
        let mut sum = Counters::default();
        for cpu in 0..self.cpus.load(Ordering::Relaxed) {
            sum += self.counters(cpu);
        }
        sum
    }

    #[inline]
    fn cpu(&self, index: usize) -> Option<&Cpu> {
        let cpu = self.per_cpu.get(index)?.load(Ordering::Acquire);
        // SAFETY: null, or published by `make_cpu` and alive as long as the heap.
        unsafe { cpu.as_ref() }
    }

    #[inline]
    fn allocate_small(&self, class: Class) -> Option<NonNull<u8>> {
        {
            let _guard = self.backing.pin();
            if let Some(cpu) = self.cpu(self.backing.current_cpu())
                && let Some(block) = cpu.allocate(class)
            {
                return Some(block);
            }
        }
        self.allocate_slowly(class)
    }

    #[cold]
    fn allocate_slowly(&self, class: Class) -> Option<NonNull<u8>> {
        let mut chunk = None;
        let block = loop {
            let guard = self.backing.pin();
            let index = self.backing.current_cpu();
            let Some(cpu) = self.cpu(index) else {
                drop(guard);
                if self.make_cpu(index).is_none() {
                    break None;
                }
                continue;
            };
            let mut block = cpu.allocate_slowly(class);
            if block.is_none()
                && let Some(start) = chunk.take()
            {
                // It becomes this CPU's even if another one ran when it was mapped: its pages are
                // still untouched.
                // SAFETY: fresh from the backing, with the size and alignment of a chunk.
                cpu.add(unsafe { ChunkRef::create(start, B::CHUNK_BYTES) });
                block = cpu.allocate_slowly(class);
            }
            cpu.counting.0.slow_paths.add(1);
            self.unmap_outgoing(cpu, guard);
            if block.is_some() {
                break block;
            }
            chunk = self.backing.map(B::CHUNK_BYTES, B::CHUNK_BYTES);
            if chunk.is_none() {
                break None;
            }
        };
        // This thread may have moved to a CPU that did not need it.
        if let Some(chunk) = chunk {
            self.backing.unmap(chunk, B::CHUNK_BYTES);
        }
        block
    }

    /// Makes a CPU's part. Several threads may do so at a time.
    fn make_cpu(&self, index: usize) -> Option<()> {
        let place = self.per_cpu.get(index)?;
        let memory = self.backing.map(CPU_BYTES, PAGE)?;
        let cpu = memory.cast::<Cpu>();
        // SAFETY: fresh from the backing, large enough and page-aligned.
        unsafe { cpu.write(Cpu::new(index, B::CHUNK_BYTES)) };
        let null = ptr::null_mut();
        let published =
            place.compare_exchange(null, cpu.as_ptr(), Ordering::Release, Ordering::Relaxed);
        if published.is_err() {
            self.backing.unmap(memory, CPU_BYTES);
        }
        Some(())
    }

    /// # Safety
    ///
    /// The block is of this class and out.
    #[inline]
    unsafe fn free_small(&self, block: NonNull<u8>, class: Class) {
        // SAFETY: by the contract.
        let span = unsafe { SpanRef::of(block, class) };
        let guard = self.backing.pin();
        let index = self.backing.current_cpu();
        let here = self.cpu(index);
        let owner = span.owner();
        if owner == index {
            if let Some(cpu) = here {
                // SAFETY: by the contract; the owner is this CPU, which is pinned.
                unsafe { cpu.free(span, block) };
                self.unmap_outgoing(cpu, guard);
            }
        } else if let Some(home) = self.cpu(owner) {
            if let Some(cpu) = here {
                cpu.counting.0.remote_frees.add(1);
            }
            // SAFETY: by the contract; the list is the owner's.
            unsafe { span.push_remote(block, &home.pending.0) };
        }
    }

    fn allocate_large(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if bytes < FRESH {
            let _guard = self.backing.pin();
            if let Some(cpu) = self.cpu(self.backing.current_cpu())
                && let Some(memory) = cpu.reuse(bytes, align)
            {
                return Some(memory);
            }
        }
        self.map_large(bytes, align)
    }

    fn map_large(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let memory = self.backing.map(bytes, align.max(PAGE));
        if memory.is_some() {
            let _guard = self.backing.pin();
            if let Some(cpu) = self.cpu(self.backing.current_cpu()) {
                cpu.counting.0.large_maps.add(1);
            }
        }
        memory
    }

    /// # Safety
    ///
    /// The memory is a mapping of this size, and nobody uses it any more.
    unsafe fn free_large(&self, memory: NonNull<u8>, bytes: usize) {
        if bytes < FRESH {
            let guard = self.backing.pin();
            if let Some(cpu) = self.cpu(self.backing.current_cpu()) {
                // SAFETY: by the contract.
                unsafe { cpu.keep(memory, bytes) };
                self.unmap_outgoing(cpu, guard);
                return;
            }
        }
        self.backing.unmap(memory, bytes);
    }

    /// Lets go of the CPU, and then unmaps what has been given up on it.
    #[inline]
    fn unmap_outgoing(&self, cpu: &Cpu, guard: B::Guard) {
        if cpu.outgoing.is_empty() {
            return;
        }
        let outgoing = Outgoing::new();
        outgoing.take_from(&cpu.outgoing);
        drop(guard);
        while let Some((memory, bytes)) = outgoing.pop() {
            self.backing.unmap(memory, bytes);
        }
    }
}

impl<B: Backing> Drop for Heap<B> {
    fn drop(&mut self) {
        for place in &mut self.per_cpu {
            let Some(cpu) = NonNull::new(*place.get_mut()) else {
                continue;
            };
            // SAFETY: published by `make_cpu`; nobody else uses the heap any more.
            let outgoing = unsafe {
                cpu.as_ref().collect();
                let outgoing = Outgoing::new();
                outgoing.take_from(&cpu.as_ref().outgoing);
                outgoing
            };
            while let Some((memory, bytes)) = outgoing.pop() {
                self.backing.unmap(memory, bytes);
            }
            self.backing.unmap(cpu.cast(), CPU_BYTES);
        }
    }
}
