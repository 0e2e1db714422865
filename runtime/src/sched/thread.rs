//! Threads.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use dolmen_mm::ids::{CpuId, VirtRange};

use super::queue::LINKS;
use crate::cpu::fpu::SaveArea;
use crate::cpu::vectors::TrapFrame;
use crate::cpu::{switch, vectors};

/// A thread's number, as the ABI has it.
pub(crate) type Tid = u32;

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// It runs, or waits in its processor's run queue.
    Runnable,
    /// It waits for somebody to wake it.
    Blocked,
    /// It has ended.
    Dead,
}

/// How a thread that does not run is continued.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Context {
    /// It gave the processor up in a call; its registers are on its stack, at this address.
    Call(u64),
    /// It was interrupted; its registers and vector state are in the [`Thread`].
    Trap,
}

/// A function for a new thread to execute.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) function: extern "C" fn(usize),
    pub(crate) argument: usize,
}

/// A thread. It belongs to one processor for all its life: only that processor runs it, and only
/// that processor touches [`Thread::saved`].
pub(crate) struct Thread {
    pub(crate) id: Tid,
    /// The processor that it belongs to.
    pub(crate) home: CpuId,
    state: AtomicU8,
    saved: UnsafeCell<Saved>,
    /// Guard, stack and thread-local storage; `None` for the idle contexts.
    pub(crate) stack: Option<VirtRange>,
    /// High end of the stack proper, which is where the thread-local storage starts.
    pub(crate) stack_top: u64,
    /// Bytes of the stack proper.
    pub(crate) stack_bytes: usize,
    pub(crate) entry: Option<Entry>,
    /// Thread pointer; zero until the thread has made its thread-local storage.
    pub(crate) fs_base: AtomicU64,
    /// Next in the lists that it is in; each is protected by its list's lock.
    pub(super) next: [UnsafeCell<Option<Arc<Thread>>>; LINKS],
    /// Next in its processor's timer list; protected by that list's lock.
    pub(super) next_timer: UnsafeCell<Option<Arc<Thread>>>,
    /// When the timer wakes it, in ticks of the clock.
    pub(super) deadline: AtomicU64,
    /// The address that it waits on, under the lock of the address's bucket.
    pub(super) waits_on: AtomicU64,
    /// Set by whoever takes it out of a wait queue.
    pub(super) woken: AtomicBool,
    /// 0 while it lives, 1 when it has ended: what [`join`](super::join) waits on.
    pub(super) finished: AtomicU32,
}

struct Saved {
    context: Context,
    trap: TrapFrame,
    vectors: SaveArea,
}

impl Saved {
    /// Continues an interrupted context: the caller's is gone, its vector state included.
    ///
    /// # Safety
    ///
    /// `saved` is what the home processor, which executes this with interrupts off, kept of a
    /// thread that was interrupted.
    unsafe extern "C" fn resume_trap(saved: *const Self) -> ! {
        // SAFETY: by the contract.
        unsafe {
            (*saved).vectors.load();
            vectors::resume_trap(&(*saved).trap)
        }
    }
}

// SAFETY: `saved` is touched by the home processor alone, with interrupts off; the links are
// protected by the locks of the lists; the rest is atomic or constant.
unsafe impl Sync for Thread {}
// SAFETY: nothing in it depends on the processor that drops it.
unsafe impl Send for Thread {}

/// Code and data selectors, as [`crate::cpu::gdt`] lays the table out.
const CODE_SELECTOR: u64 = 0x08;
const DATA_SELECTOR: u64 = 0x10;
/// Interrupts on; bit 1 is always set.
const INITIAL_FLAGS: u64 = 1 << 9 | 1 << 1;

impl Thread {
    /// A thread that starts in `start` with an empty stack. `None` when the kernel's heap has no
    /// room for its vector state.
    ///
    /// Nothing is written to the stack here: its pages belong to the node of the processor that
    /// the thread will run on, so the thread itself has to touch them first.
    pub(crate) fn new(
        id: Tid,
        home: CpuId,
        stack: StackLayout,
        entry: Entry,
        start: extern "C" fn() -> !,
    ) -> Option<Self> {
        let trap = TrapFrame {
            rip: start as usize as u64,
            cs: CODE_SELECTOR,
            rflags: INITIAL_FLAGS,
            rsp: stack.top - 8,
            ss: DATA_SELECTOR,
            ..TrapFrame::default()
        };
        let vectors = SaveArea::new()?;
        vectors.reset();
        Some(Self::build(
            id,
            home,
            Context::Trap,
            trap,
            vectors,
            Some(stack),
            Some(entry),
        ))
    }

    /// The context of a processor that has nothing to do: the one that calls this.
    pub(crate) fn idle(home: CpuId) -> Option<Self> {
        let vectors = SaveArea::new()?;
        let trap = TrapFrame::default();
        Some(Self::build(
            0,
            home,
            Context::Call(0),
            trap,
            vectors,
            None,
            None,
        ))
    }

    fn build(
        id: Tid,
        home: CpuId,
        context: Context,
        trap: TrapFrame,
        vectors: SaveArea,
        stack: Option<StackLayout>,
        entry: Option<Entry>,
    ) -> Self {
        Self {
            id,
            home,
            state: AtomicU8::new(State::Runnable as u8),
            saved: UnsafeCell::new(Saved {
                context,
                trap,
                vectors,
            }),
            stack: stack.as_ref().map(|stack| stack.mapping),
            stack_top: stack.as_ref().map_or(0, |stack| stack.top),
            stack_bytes: stack.as_ref().map_or(0, |stack| stack.bytes),
            entry,
            fs_base: AtomicU64::new(0),
            next: [const { UnsafeCell::new(None) }; LINKS],
            next_timer: UnsafeCell::new(None),
            deadline: AtomicU64::new(0),
            waits_on: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            finished: AtomicU32::new(0),
        }
    }

    /// Whether this is a processor's idle context.
    pub(crate) fn is_idle(&self) -> bool {
        self.stack.is_none()
    }

    /// Notes what the thread is doing.
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// From blocked to runnable; `true` for the one caller that did it.
    pub(crate) fn unblock(&self) -> bool {
        self.state
            .compare_exchange(
                State::Blocked as u8,
                State::Runnable as u8,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Keeps the registers and vector state of the thread, which was interrupted.
    ///
    /// # Safety
    ///
    /// Only on the home processor, with interrupts off, while the thread is the current one.
    pub(super) unsafe fn save_trap(&self, frame: &TrapFrame) {
        // SAFETY: by the contract nobody else touches `saved`.
        let saved = unsafe { &mut *self.saved.get() };
        saved.trap = frame.clone();
        saved.vectors.save();
        saved.context = Context::Trap;
    }

    /// Leaves this thread, the current one, and continues `next`; comes back when somebody
    /// continues this one.
    ///
    /// # Safety
    ///
    /// Only on the home processor of both, with interrupts off. Both live until they are
    /// continued or never are.
    pub(super) unsafe fn switch_to(&self, next: &Self) {
        // SAFETY: by the contract nobody else touches the `saved` of either.
        unsafe {
            let saved = &mut *self.saved.get();
            saved.context = Context::Call(0);
            let Context::Call(slot) = &mut saved.context else {
                unreachable!("just set");
            };
            let slot: *mut u64 = slot;
            let next = next.saved.get().cast_const();
            match (*next).context {
                Context::Call(stack_pointer) => switch::switch_to_call(slot, stack_pointer),
                Context::Trap => switch::switch_by(slot, next, Saved::resume_trap),
            }
        }
    }

    /// Continues this thread; the caller's context is gone.
    ///
    /// # Safety
    ///
    /// Only on the home processor, with interrupts off.
    pub(super) unsafe fn resume(&self) -> ! {
        // SAFETY: by the contract nobody else touches `saved`.
        unsafe {
            let saved = &*self.saved.get();
            match saved.context {
                Context::Call(stack_pointer) => switch::resume_call(stack_pointer),
                Context::Trap => Saved::resume_trap(saved),
            }
        }
    }
}

/// Where a thread's stack lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackLayout {
    /// The whole mapping: stack, thread-local storage; the guard is below it.
    pub(crate) mapping: VirtRange,
    /// High end of the stack proper, a multiple of 16.
    pub(crate) top: u64,
    /// Bytes of the stack proper.
    pub(crate) bytes: usize,
}
