//! Who runs when, and when interrupts arrive.

use std::any::Any;
use std::boxed::Box;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::{String, ToString};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use crate::ids::CpuId;

/// Turns of a busy wait after which nobody is believed to end it.
const HOPELESS_TURNS: u64 = 2_000_000;

/// How simulated processors take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// One thread plays all processors, one call at a time.
    Stepped,
    /// One processor runs at a time, and hands over at one step in this many.
    Interleaved(u64),
    /// Threads, as the host schedules them.
    Free,
}

/// A small generator of pseudo-random numbers (SplitMix64).
#[derive(Debug)]
pub struct Random(AtomicU64);

impl Random {
    /// A generator whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self
            .0
            .fetch_add(GAMMA, Ordering::Relaxed)
            .wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

std::thread_local! {
    static CURRENT: Cell<CpuId> = const { Cell::new(CpuId::new(0)) };
    static IN_INTERRUPT: Cell<bool> = const { Cell::new(false) };
    /// The program of this thread has ended; it only serves others.
    static ENDED: Cell<bool> = const { Cell::new(false) };
}

/// The processor that this thread plays.
pub(super) fn current() -> CpuId {
    CURRENT.get()
}

/// Plays another processor for a while.
pub(super) fn as_cpu<R>(cpu: CpuId, work: impl FnOnce() -> R) -> R {
    let before = CURRENT.replace(cpu);
    let result = work();
    CURRENT.set(before);
    result
}

/// Turns, interrupts and failures of one machine.
pub(super) struct Scheduler {
    schedule: Schedule,
    random: Random,
    handler: OnceLock<Box<dyn Fn() + Send + Sync>>,
    interrupts: Box<[AtomicBool]>,
    turns: AtomicU64,
    /// Programs are running; otherwise one thread plays all processors.
    running: AtomicBool,
    /// Interleaved: who may run, and who takes part.
    turn: Mutex<usize>,
    wake: Box<[Condvar]>,
    alive: Box<[AtomicBool]>,
    ended: AtomicUsize,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scheduler {
    pub(super) fn new(schedule: Schedule, cpus: usize, seed: u64) -> Self {
        Self {
            schedule,
            random: Random::new(seed),
            handler: OnceLock::new(),
            interrupts: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
            turns: AtomicU64::new(0),
            running: AtomicBool::new(false),
            turn: Mutex::new(0),
            wake: (0..cpus).map(|_| Condvar::new()).collect(),
            alive: (0..cpus).map(|_| AtomicBool::new(true)).collect(),
            ended: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    fn schedule(&self) -> Schedule {
        if self.running.load(Ordering::Relaxed) {
            self.schedule
        } else {
            Schedule::Stepped
        }
    }

    pub(super) fn set_handler(&self, handler: Box<dyn Fn() + Send + Sync>) {
        let _ = self.handler.set(handler);
    }

    pub(super) fn random(&self) -> u64 {
        self.random.next()
    }

    /// Ends the simulation: something is wrong.
    pub(super) fn fail(&self, message: String) {
        if thread::panicking() {
            return;
        }
        self.note_failure(message.clone());
        resume_unwind(Box::new(message));
    }

    fn note_failure(&self, message: String) {
        lock(&self.failure).get_or_insert(message);
        self.failed.store(true, Ordering::SeqCst);
    }

    /// A step of the memory manager: an interrupt may arrive, and others may run.
    pub(super) fn step(&self) {
        if self.random.one_in(8) {
            self.deliver(current());
        }
        self.switch();
    }

    /// A point inside an instruction: others may run.
    pub(super) fn switch(&self) {
        self.pass();
        self.give_up_if_failed();
    }

    /// The same where a failure elsewhere must not interrupt: others wait for what is being served.
    pub(super) fn pass(&self) {
        self.turns.store(0, Ordering::Relaxed);
        if let Schedule::Interleaved(one_in) = self.schedule()
            && self.random.one_in(one_in)
        {
            self.hand_over();
        }
    }

    fn give_up_if_failed(&self) {
        if self.failed.load(Ordering::Relaxed) && !thread::panicking() && !ENDED.get() {
            resume_unwind(Box::new("another processor has failed".to_string()));
        }
    }

    /// A turn of a busy wait: others run.
    pub(super) fn relax(&self) {
        let turns = self.turns.fetch_add(1, Ordering::Relaxed);
        if turns > HOPELESS_TURNS && !ENDED.get() {
            if thread::panicking() {
                // Unwinding waits too: there is no way out.
                std::process::abort();
            }
            self.fail("a processor waits for something that never comes".to_string());
        }
        match self.schedule() {
            Schedule::Stepped => {
                // Every other processor is idle, so it does nothing but serve interrupts.
                let target = CpuId::new(self.random.below(self.interrupts.len()) as u16);
                as_cpu(target, || self.deliver(target));
            }
            Schedule::Interleaved(_) => {
                self.deliver(current());
                self.hand_over();
            }
            Schedule::Free => {
                self.deliver(current());
                thread::yield_now();
            }
        }
        self.give_up_if_failed();
    }

    pub(super) fn interrupt(&self, cpu: CpuId) {
        if self.interrupts[cpu.index()].swap(true, Ordering::SeqCst) {
            self.fail(std::format!("a second interrupt is on its way to {cpu:?}"));
        }
    }

    fn deliver(&self, cpu: CpuId) {
        if IN_INTERRUPT.get() || !self.interrupts[cpu.index()].swap(false, Ordering::SeqCst) {
            return;
        }
        IN_INTERRUPT.set(true);
        if let Some(handler) = self.handler.get() {
            handler();
        }
        IN_INTERRUPT.set(false);
    }

    /// Lets another processor run, if there is one.
    fn hand_over(&self) {
        let me = current().index();
        let cpus = self.wake.len();
        let start = self.random.below(cpus);
        let next = (0..cpus)
            .map(|number| (start + number) % cpus)
            .find(|&cpu| cpu != me && self.alive[cpu].load(Ordering::SeqCst));
        if let Some(next) = next {
            *lock(&self.turn) = next;
            self.wake[next].notify_one();
            if self.alive[me].load(Ordering::SeqCst) {
                self.wait_for_turn(me);
            }
        }
    }

    fn wait_for_turn(&self, me: usize) {
        let turn = lock(&self.turn);
        let turn = self.wake[me].wait_while(turn, |turn| *turn != me);
        drop(turn);
    }

    /// Runs a program on every processor.
    pub(super) fn run(&self, program: impl Fn(CpuId) + Sync) -> Result<(), String> {
        let interleaved = matches!(self.schedule, Schedule::Interleaved(_));
        let cpus = self.wake.len();
        self.ended.store(0, Ordering::SeqCst);
        self.alive
            .iter()
            .for_each(|alive| alive.store(true, Ordering::SeqCst));
        *lock(&self.turn) = self.random.below(cpus);
        self.running.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            for number in 0..cpus {
                let program = &program;
                scope.spawn(move || {
                    let cpu = CpuId::new(number as u16);
                    CURRENT.set(cpu);
                    if interleaved {
                        self.wait_for_turn(number);
                    }
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| program(cpu))) {
                        self.note_failure(message_of(&*panic));
                    }
                    ENDED.set(true);
                    IN_INTERRUPT.set(false);
                    self.ended.fetch_add(1, Ordering::SeqCst);
                    while self.ended.load(Ordering::SeqCst) < cpus {
                        self.relax();
                    }
                    self.alive[number].store(false, Ordering::SeqCst);
                    if interleaved {
                        self.hand_over();
                    }
                });
            }
        });
        self.running.store(false, Ordering::SeqCst);
        match lock(&self.failure).take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
        .unwrap_or_else(|| "a panic".to_string())
}
