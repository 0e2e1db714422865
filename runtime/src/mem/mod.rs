//! Memory: the direct map, the kernel's heap, the application's heap, and the way into the memory
//! manager.

pub(crate) mod app_heap;
pub(crate) mod direct;
pub(crate) mod kernel_heap;
mod machine;
pub(crate) mod pieces;

use core::sync::atomic::Ordering;

use dolmen_mm::MemoryManager;
use dolmen_mm::ids::VirtAddr;
use dolmen_mm::ids::VirtRange;

pub(crate) use machine::X86Machine;

use crate::cpu::{clock, local, switch};
use crate::sync::Once;

/// Where the application's mappings lie: 64 TiB in the lower half, far above every image.
pub(crate) const ARENA: VirtRange = VirtRange::new(VirtAddr(0x1000_0000_0000), 64 << 40);

/// The memory manager of this machine.
pub(crate) type Manager = MemoryManager<X86Machine>;

static MANAGER: Once<Manager> = Once::new();

/// Makes `manager` the machine's memory manager.
pub(crate) fn install(manager: Manager) {
    MANAGER.set(manager);
}

/// The memory manager, if the machine has one already.
pub(crate) fn manager() -> Option<&'static Manager> {
    MANAGER.get()
}

/// Executes `call` in the memory manager: with preemption off and on the processor's kernel stack.
///
/// The caller's own stack is demand-paged by that very memory manager: a page fault on it, while a
/// page-table page is locked, could wait for that lock for ever.
pub(crate) fn enter<R>(call: impl FnOnce(&'static Manager) -> R) -> R {
    let manager = manager().expect("the memory manager exists before anybody calls it");
    let _preemption = local::PreemptionOff::new();
    let local = local::this();
    if local.on_kernel_stack.load(Ordering::Relaxed) {
        return call(manager);
    }
    let start = clock::ticks();
    let mut job = Job {
        call: Some(call),
        manager,
        result: None,
    };
    local.on_kernel_stack.store(true, Ordering::Relaxed);
    // SAFETY: with preemption off nobody else uses this processor's kernel stack, as the flag
    // tells nested calls; `run` gets the argument that it is instantiated for.
    unsafe {
        switch::call_on_stack((&raw mut job).cast(), job.runner(), local.kernel_stack_top);
    }
    local.on_kernel_stack.store(false, Ordering::Relaxed);
    charge(start);
    job.result.expect("the call came back")
}

/// A call on its way to another stack.
struct Job<F, R> {
    call: Option<F>,
    manager: &'static Manager,
    result: Option<R>,
}

impl<F: FnOnce(&'static Manager) -> R, R> Job<F, R> {
    /// [`run`] for a job of this type.
    fn runner(&self) -> extern "C" fn(*mut ()) {
        run::<F, R>
    }
}

/// Executes a [`Job`].
extern "C" fn run<F: FnOnce(&'static Manager) -> R, R>(job: *mut ()) {
    // SAFETY: `enter` passes its own `Job<F, R>`, which it does not touch meanwhile.
    let job = unsafe { &mut *job.cast::<Job<F, R>>() };
    if let Some(call) = job.call.take() {
        let result = call(job.manager);
        job.result = Some(result);
    }
}

/// Counts the ticks since `start` as time of the memory manager.
pub(crate) fn charge(start: u64) {
    let spent = clock::ticks().saturating_sub(start);
    local::this()
        .memory_ticks
        .fetch_add(spent, Ordering::Relaxed);
}

/// The interrupt of a TLB shootdown has arrived: executes what other processors wait for.
pub(crate) fn serve_shootdowns() {
    if let Some(manager) = manager() {
        manager.serve_shootdowns();
    }
}

/// The same for whoever spins: an interrupt that is on its way stays accounted for.
pub(crate) fn poll_shootdowns() {
    if let Some(manager) = manager() {
        manager.poll_shootdowns();
    }
}
