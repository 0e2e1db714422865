//! The checks, each with [`THREADS`] threads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 64;

type Outcome = Result<(), String>;

fn equal<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what} is {found:?}, not {expected:?}"))
    }
}

/// Runs `work(number)` on all threads and collects what they return.
fn on_all<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a thread panicked"))
            .collect()
    })
}

/// Results, names and identities of joined threads.
pub(crate) fn join() -> Outcome {
    let handles: Vec<_> = (0..THREADS)
        .map(|number| {
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || (number * number, thread::current().name().map(str::to_owned)))
        })
        .collect();
    let mut ids = BTreeSet::new();
    for (number, handle) in handles.into_iter().enumerate() {
        let handle =
            handle.map_err(|error| format!("thread {number} cannot be created: {error}"))?;
        ids.insert(format!("{:?}", handle.thread().id()));
        let (square, name) = handle.join().map_err(|_| "a thread panicked")?;
        equal("the result", square, number * number)?;
        equal("the name", name, Some(format!("worker-{number}")))?;
    }
    equal("the number of identities", ids.len(), THREADS)
}

/// No increment under a mutex is lost.
pub(crate) fn mutex() -> Outcome {
    let count = Mutex::new(0usize);
    on_all(|_| {
        for _ in 0..1000 {
            *count.lock().unwrap() += 1;
        }
    });
    equal("the count", *count.lock().unwrap(), 1000 * THREADS)
}

/// Readers never see half a write.
pub(crate) fn rwlock() -> Outcome {
    let pair = RwLock::new((0u64, 0u64));
    let torn = on_all(|number| {
        let mut torn = 0;
        for round in 0..300 {
            if (round + number) % 8 == 0 {
                let mut pair = pair.write().unwrap();
                pair.0 += 1;
                pair.1 += 1;
            } else {
                let pair = pair.read().unwrap();
                torn += u32::from(pair.0 != pair.1);
            }
        }
        torn
    });
    equal("the number of torn reads", torn.iter().sum(), 0)?;
    let writes = (0..THREADS).map(|n| (0..300).filter(|r| (r + n) % 8 == 0).count() as u64);
    equal("the number of writes", pair.read().unwrap().0, writes.sum())
}

/// A token goes round all threads, in order.
pub(crate) fn condvar() -> Outcome {
    let turn = Mutex::new(0usize);
    let changed = Condvar::new();
    on_all(|number| {
        for round in 0..5 {
            let mut turn = changed
                .wait_while(turn.lock().unwrap(), |turn| {
                    *turn != round * THREADS + number
                })
                .unwrap();
            *turn += 1;
            changed.notify_all();
        }
    });
    equal("the turn", *turn.lock().unwrap(), 5 * THREADS)
}

/// A wait without notification ends by its time-out, and not before.
pub(crate) fn condvar_timeout() -> Outcome {
    let early = on_all(|number| {
        let wait = Duration::from_millis(5 + number as u64 % 20);
        let (lock, never) = (Mutex::new(()), Condvar::new());
        let start = Instant::now();
        let (_guard, result) = never
            .wait_timeout_while(lock.lock().unwrap(), wait, |()| true)
            .unwrap();
        !result.timed_out() || start.elapsed() < wait
    });
    equal(
        "the number of early ends",
        early.iter().filter(|e| **e).count(),
        0,
    )
}

/// All threads meet again and again; each time one leads.
pub(crate) fn barrier() -> Outcome {
    let barrier = Barrier::new(THREADS);
    let arrived = AtomicUsize::new(0);
    let results = on_all(|_| {
        let (mut leaders, mut missed) = (0, 0);
        for round in 1..=10 {
            arrived.fetch_add(1, Ordering::SeqCst);
            leaders += usize::from(barrier.wait().is_leader());
            missed += usize::from(arrived.load(Ordering::SeqCst) < round * THREADS);
            barrier.wait();
        }
        (leaders, missed)
    });
    equal(
        "the number of leaders",
        results.iter().map(|r| r.0).sum(),
        10,
    )?;
    equal(
        "the number of early starts",
        results.iter().map(|r| r.1).sum(),
        0,
    )
}

/// Many senders, one receiver; each sender's messages arrive in order.
pub(crate) fn channel() -> Outcome {
    let (sender, receiver) = mpsc::channel();
    for number in 0..THREADS {
        let sender = sender.clone();
        thread::spawn(move || {
            for message in 0..100 {
                let _ = sender.send((number, message));
            }
        });
    }
    drop(sender);
    let mut next = vec![0; THREADS];
    for (number, message) in receiver {
        equal("a message", message, next[number])?;
        next[number] += 1;
    }
    equal("the messages of each sender", next, vec![100; THREADS])
}

/// A chain of threads, each connected to the next by a channel without a buffer.
pub(crate) fn rendezvous() -> Outcome {
    let (first, mut input) = mpsc::sync_channel::<usize>(0);
    for _ in 0..THREADS {
        let (output, next) = mpsc::sync_channel(0);
        let from = std::mem::replace(&mut input, next);
        thread::spawn(move || {
            for value in from {
                if output.send(value + 1).is_err() {
                    return;
                }
            }
        });
    }
    let feeder = thread::spawn(move || (0..20).all(|value| first.send(value).is_ok()));
    let received: Vec<usize> = input.iter().collect();
    equal("feeding", feeder.join().ok(), Some(true))?;
    equal("what arrives", received, (THREADS..THREADS + 20).collect())
}

/// `unpark` before or after `park` wakes the thread; a time-out does so without it.
pub(crate) fn park() -> Outcome {
    let ready = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (0..THREADS)
        .map(|_| {
            let ready = Arc::clone(&ready);
            thread::spawn(move || {
                while !ready.load(Ordering::Acquire) {
                    thread::park();
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(5));
    ready.store(true, Ordering::Release);
    for handle in handles {
        handle.thread().unpark();
        handle.join().map_err(|_| "a parked thread panicked")?;
    }
    thread::current().unpark();
    thread::park();
    thread::park_timeout(Duration::from_millis(1));
    Ok(())
}

/// Initialisation happens once, and everybody waits for it.
pub(crate) fn once() -> Outcome {
    let (once, calls, cell) = (Once::new(), AtomicUsize::new(0), OnceLock::new());
    let seen = on_all(|number| {
        once.call_once(|| {
            thread::sleep(Duration::from_millis(2));
            calls.fetch_add(1, Ordering::SeqCst);
        });
        (calls.load(Ordering::SeqCst), *cell.get_or_init(|| number))
    });
    equal("the number of calls", calls.into_inner(), 1)?;
    let first = seen[0];
    equal("what everybody sees", seen, vec![(1, first.1); THREADS])
}

/// Counts itself when it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Each thread has its own thread-locals, and their destructors run when it ends.
pub(crate) fn thread_locals() -> Outcome {
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(7) };
        static OWNED: RefCell<Vec<Counted>> = const { RefCell::new(Vec::new()) };
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..THREADS)
        .map(|number| {
            let dropped = Arc::clone(&dropped);
            thread::spawn(move || {
                let fresh = NUMBER.get() == 7 && OWNED.with_borrow(Vec::is_empty);
                NUMBER.set(number);
                OWNED.with_borrow_mut(|owned| owned.push(Counted(dropped)));
                for _ in 0..20 {
                    thread::yield_now();
                }
                fresh && NUMBER.get() == number
            })
        })
        .collect();
    for handle in handles {
        equal("a thread's own value", handle.join().ok(), Some(true))?;
    }
    equal(
        "the number of destructors run",
        dropped.load(Ordering::SeqCst),
        THREADS,
    )?;
    equal("the main thread's value", NUMBER.get(), 7)
}

/// Sleeping takes at least its time, and threads sleep at the same time.
pub(crate) fn sleep() -> Outcome {
    let start = Instant::now();
    let early = on_all(|number| {
        let time = Duration::from_millis(20 + number as u64 % 10);
        let start = Instant::now();
        thread::sleep(time);
        start.elapsed() < time
    });
    equal(
        "the number of early risers",
        early.iter().filter(|e| **e).count(),
        0,
    )?;
    let one_by_one = Duration::from_millis(20 * THREADS as u64);
    equal(
        "sleeping one after the other",
        start.elapsed() >= one_by_one,
        false,
    )
}

/// Scoped threads write to parts of a vector of their parent's stack.
pub(crate) fn scope() -> Outcome {
    let mut values = vec![0usize; THREADS * 10];
    thread::scope(|scope| {
        for (number, part) in values.chunks_mut(10).enumerate() {
            scope.spawn(move || part.fill(number));
        }
    });
    let expected: Vec<usize> = (0..THREADS * 10).map(|at| at / 10).collect();
    equal("the values", values, expected)
}

/// Switching threads keeps their floating-point registers.
pub(crate) fn float_state() -> Outcome {
    let sum = |number: usize, switch: bool| {
        let mut sums = [number as f64; 8];
        for step in 1..2000 {
            for (lane, sum) in sums.iter_mut().enumerate() {
                *sum += black_box(1.0 / (step * (lane + 1)) as f64);
            }
            if switch && step % 50 == 0 {
                thread::yield_now();
            }
        }
        sums.map(f64::to_bits)
    };
    let found = on_all(|number| sum(number, true));
    for (number, found) in found.into_iter().enumerate() {
        equal("a sum", found, sum(number, false))?;
    }
    Ok(())
}
