//! What ends the program. Each of these returns only if the machine failed to notice.

use std::hint::black_box;
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
            assert_eq!(
                black_box(1),
                2,
                "this panic on CPU {} was asked for",
                dolmen::current_cpu()
            );
        })
        .map_err(|error| format!("cannot create a thread: {error}"))?;
    match second.join() {
        Ok(()) => Err("the thread did not panic".into()),
        Err(_) => std::process::abort(),
    }
}
