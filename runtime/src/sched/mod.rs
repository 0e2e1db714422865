//! Threads and processors.
//!
//! A thread belongs to one processor from its birth: first touch then keeps its memory near it,
//! and no run queue is ever searched by another processor. New threads go to the processor that
//! has the fewest, the lowest number first, so that thread *t* of a team runs on processor *t*.
//! More threads than processors share them in time slices.
//!
//! There is no periodic tick. A processor's timer is armed only for the earliest time-out of a
//! thread that waits, and for the end of a time slice while somebody else is waiting for the
//! processor.

pub(crate) mod futex;
pub(crate) mod mutex;
mod queue;
pub(crate) mod spawn;
pub(crate) mod thread;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::cpu::vectors::TrapFrame;
use crate::cpu::{InterruptsOff, apic, clock, local, thread_pointer};
use crate::mem::{app_heap, kernel_heap};
use crate::sync::SpinLock;
use crate::{boot, fatal};
use queue::{RunQueue, Timers};
use thread::{State, Thread, Tid};

/// Length of a time slice, in nanoseconds.
const SLICE_NANOS: u64 = 10_000_000;

/// The scheduler's state of one processor.
pub(crate) struct Scheduler {
    ready: SpinLock<RunQueue>,
    timers: SpinLock<Timers>,
    current: SpinLock<Option<Arc<Thread>>>,
    idle: SpinLock<Option<Arc<Thread>>>,
    dead: SpinLock<RunQueue>,
    /// Threads that belong to the processor and have not ended.
    members: AtomicU32,
    /// When the current thread's time slice ends, in ticks.
    slice_end: AtomicU64,
    pub(crate) stacks: spawn::StackCache,
}

impl Scheduler {
    /// No threads.
    pub(crate) const fn new() -> Self {
        Self {
            ready: SpinLock::new(RunQueue::new()),
            timers: SpinLock::new(Timers::new()),
            current: SpinLock::new(None),
            idle: SpinLock::new(None),
            dead: SpinLock::new(RunQueue::new()),
            members: AtomicU32::new(0),
            slice_end: AtomicU64::new(0),
            stacks: spawn::StackCache::new(),
        }
    }
}

/// All threads that have not ended.
static THREADS: SpinLock<Option<HashMap<Tid, Arc<Thread>>>> = SpinLock::new(None);

/// Enters a new thread into the table; false if there is no memory for its entry.
fn register(thread: Arc<Thread>) -> bool {
    let mut threads = THREADS.lock();
    let threads = threads.get_or_insert_with(HashMap::new);
    let room = threads.try_reserve(1).is_ok();
    if room {
        threads.insert(thread.id, thread);
    }
    room
}

/// Makes the caller, on its boot stack, the idle context of its processor.
pub(crate) fn become_idle_context() {
    let local = local::this();
    let idle = Arc::new(Thread::idle(local.cpu).expect("boot memory holds the idle contexts"));
    *local.scheduler.idle.lock() = Some(idle.clone());
    *local.scheduler.current.lock() = Some(idle);
}

/// The executing thread.
pub(crate) fn current() -> Arc<Thread> {
    local::this()
        .scheduler
        .current
        .lock()
        .clone()
        .expect("every processor has a current thread once it is set up")
}

/// The executing thread, for a report: `None` before there are threads, or when even the lock is
/// not to be had.
pub(crate) fn current_for_report() -> Option<Arc<Thread>> {
    local::this().scheduler.current.lock_for_report()?.clone()
}

/// The thread whose guard pages hold `address`.
pub(crate) fn owner_of_guard(address: u64, guard_bytes: usize) -> Option<Arc<Thread>> {
    let threads = THREADS.lock_for_report()?;
    threads
        .as_ref()?
        .values()
        .find(|thread| {
            thread.stack.is_some_and(|stack| {
                (stack.start.0 - guard_bytes as u64..stack.start.0).contains(&address)
            })
        })
        .cloned()
}

/// Gives the processor to the next thread that waits for it, if there is one.
pub(crate) fn yield_now() {
    let _interrupts = InterruptsOff::new();
    fatal::stop_if_ending();
    local::take_reschedule();
    let scheduler = &local::this().scheduler;
    let Some(next) = scheduler.ready.lock().pop() else {
        arm_timer();
        return;
    };
    let me = current();
    if !me.is_idle() {
        scheduler.ready.lock().push(me.clone());
    }
    switch(me, next);
}

/// Lets others run until somebody wakes the caller, which has set its state to
/// [`State::Blocked`] where its waker finds it.
pub(crate) fn block() {
    let _interrupts = InterruptsOff::new();
    let me = current();
    let next = next_thread();
    if Arc::ptr_eq(&me, &next) {
        return;
    }
    switch(me, next);
}

/// Lets others run until somebody wakes the caller or the clock reaches `deadline` (in ticks).
pub(crate) fn block_until(deadline: u64) {
    let interrupts = InterruptsOff::new();
    let me = current();
    me.deadline.store(deadline, Ordering::Relaxed);
    let timers = &local::this().scheduler.timers;
    timers.lock().insert(me.clone());
    arm_timer();
    block();
    timers.lock().remove(&me);
    drop(interrupts);
}

/// Sleeps for `nanos` nanoseconds at least.
pub(crate) fn sleep(nanos: u64) {
    let deadline = clock::ticks().saturating_add(clock::ticks_from_nanos(nanos));
    let me = current();
    while clock::ticks() < deadline {
        let _interrupts = InterruptsOff::new();
        me.set_state(State::Blocked);
        block_until(deadline);
    }
}

/// Makes a blocked thread runnable. A thread that is not blocked stays as it is.
pub(crate) fn wake(thread: &Arc<Thread>) {
    if thread.unblock() {
        enqueue(thread.clone());
    }
}

/// Puts a thread into the run queue of its processor and tells the processor.
fn enqueue(thread: Arc<Thread>) {
    let Some(home) = local::of(thread.home) else {
        return;
    };
    let was_empty = {
        let mut ready = home.scheduler.ready.lock();
        let was_empty = ready.is_empty();
        ready.push(thread);
        was_empty
    };
    if !was_empty {
        return;
    }
    // Whoever put the first thread into the queue tells the processor, which either was idle or
    // now has to arm its timer for the end of the time slice.
    let _interrupts = InterruptsOff::new();
    if home.cpu == local::this().cpu {
        arm_timer();
    } else {
        apic::kick(home.cpu);
    }
}

fn next_thread() -> Arc<Thread> {
    let scheduler = &local::this().scheduler;
    let ready = scheduler.ready.lock().pop();
    ready.unwrap_or_else(|| {
        scheduler
            .idle
            .lock()
            .clone()
            .expect("every processor has an idle context")
    })
}

/// Continues `next` in place of `me`; interrupts are off.
fn switch(me: Arc<Thread>, next: Arc<Thread>) {
    let (me_pointer, next_pointer) = (Arc::as_ptr(&me), Arc::as_ptr(&next));
    begin(next);
    // The references that keep both alive are elsewhere: in the table of threads, in the list of
    // the dead, or in the scheduler of their processor. A reference kept here would never be
    // dropped if `me` is not continued.
    drop(me);
    // SAFETY: both are threads of this processor, interrupts are off, and both are referenced as
    // said above.
    unsafe { (*me_pointer).switch_to(&*next_pointer) };
}

/// Notes `next` as the current thread of this processor and prepares the processor for it.
fn begin(next: Arc<Thread>) {
    fatal::stop_if_ending();
    let fs_base = next.fs_base.load(Ordering::Relaxed);
    if fs_base != 0 {
        thread_pointer::set(fs_base);
    }
    let scheduler = &local::this().scheduler;
    let slice = clock::ticks_from_nanos(SLICE_NANOS);
    scheduler
        .slice_end
        .store(clock::ticks() + slice, Ordering::Relaxed);
    *scheduler.current.lock() = Some(next);
    arm_timer();
}

/// Arms this processor's timer for whatever comes first. Interrupts are off.
fn arm_timer() {
    let scheduler = &local::this().scheduler;
    let contended = !scheduler.ready.lock().is_empty();
    arm_for(contended.then(|| scheduler.slice_end.load(Ordering::Relaxed)));
}

/// Arms this processor's timer for the first timeout or for `slice_end`, if that comes first.
fn arm_for(slice_end: Option<u64>) {
    let timeout = local::this().scheduler.timers.lock().earliest();
    match timeout.into_iter().chain(slice_end).min() {
        Some(deadline) => apic::arm_timer(deadline),
        None => apic::disarm_timer(),
    }
}

/// The timer fired: wakes the threads whose time has come and ends the time slice if it is over.
pub(crate) fn on_timer() {
    let scheduler = &local::this().scheduler;
    let now = clock::ticks();
    loop {
        // The lock is open again before the thread is woken, which takes other locks.
        let due = scheduler.timers.lock().pop_due(now);
        let Some(thread) = due else { break };
        wake(&thread);
    }
    let contended = !scheduler.ready.lock().is_empty();
    if contended && now >= scheduler.slice_end.load(Ordering::Relaxed) {
        local::request_reschedule();
        // A slice that is over must not be waited for again: with a deadline in the past the timer
        // would fire before the interrupted code, an idle processor's or one that cannot be
        // preempted, has executed another instruction. The next thread arms it for its own slice.
        arm_for(None);
    } else {
        arm_timer();
    }
}

/// Another processor put a thread into this one's empty run queue.
pub(crate) fn on_kick() {
    arm_timer();
}

/// Gives the processor of an interrupted thread to the next one, at the end of an interrupt or
/// page fault. Returns if nobody waits. Interrupts are off.
pub(crate) fn preempt(frame: &TrapFrame) {
    fatal::stop_if_ending();
    let scheduler = &local::this().scheduler;
    let me = current();
    if me.is_idle() {
        return;
    }
    let Some(next) = scheduler.ready.lock().pop() else {
        return;
    };
    // SAFETY: `me` is the current thread of this processor, and interrupts are off.
    unsafe { me.save_trap(frame) };
    scheduler.ready.lock().push(me);
    let next_pointer = Arc::as_ptr(&next);
    begin(next);
    // SAFETY: `next` is a thread of this processor, now the current one; interrupts are off. What
    // is left on this interrupt stack is not needed: the frame was copied.
    unsafe { (*next_pointer).resume() }
}

/// What a processor does when it has no thread to run: it halts.
pub(crate) fn idle_loop() -> ! {
    let local = local::this();
    loop {
        spawn::reap();
        kernel_heap::collect();
        app_heap::HEAP.collect();
        x86_64::instructions::interrupts::disable();
        if !local.scheduler.ready.lock().is_empty() {
            yield_now();
            x86_64::instructions::interrupts::enable();
            continue;
        }
        let start = clock::ticks();
        local.idle_since.store(start, Ordering::Relaxed);
        x86_64::instructions::interrupts::enable_and_hlt();
        local.idle_since.store(0, Ordering::Relaxed);
        local
            .idle_ticks
            .fetch_add(boot::run_ticks_since(start), Ordering::Relaxed);
    }
}

/// Ends the executing thread.
pub(crate) fn exit_thread() -> ! {
    spawn::reap();
    let me = current();
    if let Some(threads) = THREADS.lock().as_mut() {
        threads.remove(&me.id);
    }
    let scheduler = &local::this().scheduler;
    scheduler.members.fetch_sub(1, Ordering::Relaxed);
    me.finished.store(1, Ordering::Release);
    futex::wake(me.finished.as_ptr().addr() as u64, i32::MAX);
    x86_64::instructions::interrupts::disable();
    me.set_state(State::Dead);
    // Its stack is freed by the next context on this processor that looks into the list.
    scheduler.dead.lock().push(me.clone());
    let next = next_thread();
    switch(me, next);
    unreachable!("a dead thread is never continued");
}

/// Waits until thread `id` has ended. A thread that is not there has.
pub(crate) fn join(id: Tid) {
    let thread = THREADS
        .lock()
        .as_ref()
        .and_then(|threads| threads.get(&id).cloned());
    let Some(thread) = thread else { return };
    while thread.finished.load(Ordering::Acquire) == 0 {
        futex::wait(thread.finished.as_ptr().addr() as u64, 0, None);
    }
}
