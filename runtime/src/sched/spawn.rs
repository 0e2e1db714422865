//! The birth of threads and the end of their stacks.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use dolmen_mm::ids::{CpuId, PAGE_BYTES, VirtRange};
use dolmen_mm::{HugeAdvice, MapRequest, Prot};

use super::thread::{Entry, StackLayout, Thread, Tid};
use super::{enqueue, register};
use crate::boot::tls;
use crate::cpu::{local, thread_pointer};
use crate::mem;
use crate::sync::SpinLock;

/// Bytes below every stack that are never mapped. One page would do for code that probes its
/// stack; the rest catches what does not.
pub(crate) const GUARD_BYTES: usize = 64 << 10;
/// The smallest stack that a thread gets, in bytes.
const MIN_STACK_BYTES: usize = 64 << 10;
/// Stacks of ended threads that a processor keeps for new ones.
const CACHED_STACKS: usize = 4;

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// Stacks of ended threads, for reuse on the same processor: their pages are mapped and lie on its
/// node.
pub(crate) struct StackCache(SpinLock<[Option<VirtRange>; CACHED_STACKS]>);

impl StackCache {
    /// An empty cache.
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new([None; CACHED_STACKS]))
    }

    fn take(&self, bytes: usize) -> Option<VirtRange> {
        self.0
            .lock()
            .iter_mut()
            .find_map(|slot| slot.take_if(|mapping| mapping.bytes == bytes))
    }

    /// Keeps the mapping if there is room; gives it back otherwise.
    fn keep(&self, mapping: VirtRange) -> Option<VirtRange> {
        let mut slots = self.0.lock();
        match slots.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(mapping);
                None
            }
            None => Some(mapping),
        }
    }
}

/// Starts a thread that executes `entry` on a stack of at least `stack_bytes`, on processor `core`
/// or, without one, on the processor that has the fewest threads. `None` when memory is short.
pub(crate) fn spawn(entry: Entry, stack_bytes: usize, core: Option<CpuId>) -> Option<Tid> {
    reap();
    let home = match core.and_then(local::of) {
        Some(local) => local,
        None => local::all()
            .filter(|local| local.online.load(Ordering::Relaxed))
            .min_by_key(|local| local.scheduler.members.load(Ordering::Relaxed))?,
    };
    home.scheduler.members.fetch_add(1, Ordering::Relaxed);
    let stack = map_stack(home, stack_bytes);
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let thread = stack
        .and_then(|stack| Thread::new(id, home.cpu, stack, entry, start))
        .and_then(|thread| Arc::try_new(thread).ok());
    let Some(thread) = thread else {
        home.scheduler.members.fetch_sub(1, Ordering::Relaxed);
        if let Some(stack) = stack {
            unmap_stack(stack.mapping);
        }
        return None;
    };
    if !register(thread.clone()) {
        home.scheduler.members.fetch_sub(1, Ordering::Relaxed);
        stack
            .into_iter()
            .for_each(|stack| unmap_stack(stack.mapping));
        return None;
    }
    enqueue(thread);
    Some(id)
}

fn map_stack(home: &local::Local, stack_bytes: usize) -> Option<StackLayout> {
    let tls_bytes = tls::block_bytes();
    let bytes = stack_bytes
        .max(MIN_STACK_BYTES)
        .checked_add(tls_bytes)?
        .checked_next_multiple_of(PAGE_BYTES)?;
    let mapping = match home.scheduler.stacks.take(bytes) {
        Some(mapping) => mapping,
        None => mem::enter(|manager| {
            manager.map(MapRequest {
                bytes,
                align_bytes: PAGE_BYTES,
                prot: Prot::READ_WRITE,
                huge: HugeAdvice::Never,
                guard_bytes: GUARD_BYTES,
            })
        })
        .ok()?,
    };
    let top = (mapping.end().0 - tls_bytes as u64) & !15;
    Some(StackLayout {
        mapping,
        top,
        bytes: (top - mapping.start.0) as usize,
    })
}

fn unmap_stack(mapping: VirtRange) {
    // The guard goes with the lowest page.
    mem::enter(|manager| manager.unmap(mapping)).expect("a stack's mapping is whole");
}

/// Frees what the ended threads of this processor have left.
pub(crate) fn reap() {
    let scheduler = &local::this().scheduler;
    loop {
        // The lock is open again before the memory manager is called.
        let dead = scheduler.dead.lock().pop();
        let Some(dead) = dead else { break };
        if let Some(mapping) = dead.stack
            && let Some(mapping) = scheduler.stacks.keep(mapping)
        {
            unmap_stack(mapping);
        }
    }
}

/// The first function of every thread: makes its thread-local storage, on its own processor, and
/// calls what it was spawned for.
extern "C" fn start() -> ! {
    let me = super::current();
    let pointer = tls::make_block(me.stack_top);
    me.fs_base.store(pointer, Ordering::Relaxed);
    thread_pointer::set(pointer);
    let entry = me.entry.expect("only idle contexts have no entry");
    drop(me);
    (entry.function)(entry.argument);
    super::exit_thread()
}
