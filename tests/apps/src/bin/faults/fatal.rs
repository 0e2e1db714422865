//! What ends the program. Each of these returns only if the machine failed to notice.

use std::arch::asm;
use std::hint::black_box;
use std::panic::catch_unwind;
use std::sync::Barrier;
use std::thread;

/// A thread named `deep` calls itself until its stack is used up.
pub(crate) fn overflow() -> Result<(), String> {
    let deep = thread::Builder::new()
        .name("deep".into())
        .spawn(|| recurse(1))
        .map_err(|error| format!("cannot create a thread: {error}"))?;
    let depth = deep.join().map_err(|_| "the thread panicked")?;
    Err(format!("the stack held {depth} calls"))
}

/// As many calls as it takes; the sum after the call keeps the compiler from making a loop of it.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if black_box(depth) == u64::MAX {
        return depth;
    }
    recurse(depth + 1).max(black_box(frame)[63])
}

fn read(address: usize) -> Result<(), String> {
    let pointer: *const u64 = black_box(std::ptr::without_provenance(address));
    // SAFETY: none. The access is wrong on purpose: this program exists to see it end the run.
    let value = unsafe { pointer.read_volatile() };
    Err(format!("reading address {address:#x} gave {value:#x}"))
}

/// Reads through a null pointer.
pub(crate) fn null() -> Result<(), String> {
    read(0)
}

/// Reads where nothing is mapped.
pub(crate) fn unmapped() -> Result<(), String> {
    read(0x5a5a_dead_b000)
}

/// Stores to its own code.
pub(crate) fn write_text() -> Result<(), String> {
    let code = black_box(write_text as fn() -> Result<(), String> as *mut u8);
    println!("storing to code");
    // SAFETY: none. The store is wrong on purpose. Should it succeed, the byte keeps its value.
    unsafe { code.write_volatile(code.read_volatile()) };
    Err("code can be written".into())
}

/// Panics on a second thread; where the panic unwinds, the program then aborts itself.
pub(crate) fn panic_secondary() -> Result<(), String> {
    let second = thread::Builder::new()
        .name("second".into())
        .spawn(|| {
            let _ = panic_here();
        })
        .map_err(|error| format!("cannot create a thread: {error}"))?;
    match second.join() {
        Ok(()) => Err("the thread did not panic".into()),
        Err(_) => std::process::abort(),
    }
}

/// Panics.
pub(crate) fn panic_here() -> Result<(), String> {
    let cpu = dolmen::current_cpu();
    assert_eq!(black_box(1), 2, "this panic on CPU {cpu} was asked for");
    Ok(())
}

/// Lets a thread of CPU `cpu` end the program while each other CPU has a thread that waits.
pub(crate) fn on_cpu(cpu: usize, end: fn() -> Result<(), String>) -> Result<(), String> {
    let cpus = dolmen::cpus();
    let ready = Barrier::new(cpus.len());
    let never = Barrier::new(cpus.len());
    thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&one| {
                let (ready, never) = (&ready, &never);
                scope.spawn(move || {
                    // Dolmen has put one thread on each CPU, but not in an order that it promises.
                    dolmen::pin_current_thread(one).map_err(|error| error.to_string())?;
                    ready.wait();
                    let result = if dolmen::current_cpu() as usize == cpu {
                        // Where the panic unwinds, the others would be waited for.
                        catch_unwind(end).unwrap_or_else(|_| std::process::abort())
                    } else {
                        Ok(())
                    };
                    never.wait();
                    result
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Err(format!("there is no CPU {cpu}"))
    })
}

/// Raises an interrupt that otherwise only hardware raises.
pub(crate) fn interrupt<const VECTOR: u8>() -> Result<(), String> {
    // SAFETY: none. The kernel cannot tell it from the real one, which ends the run.
    unsafe { asm!("int {vector}", vector = const VECTOR) };
    Err(format!("interrupt {VECTOR} was ignored"))
}

/// Takes the interrupt descriptors away and raises an exception: the processor has nowhere to go and shuts down.
pub(crate) fn triple() -> Result<(), String> {
    let no_table = [0u8; 10];
    // SAFETY: none. Nothing is to come back.
    unsafe { asm!("lidt [{}]", "ud2", in(reg) &no_table) };
    Err("the processor handles exceptions without a table of them".into())
}
