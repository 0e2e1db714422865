//! Holds different values in all vector registers, the x87 stack and the control words of several threads of each CPU
//! while the system takes the CPU away from them, and looks whether they come back: interrupted by the timer, across
//! page faults, in calls that give the CPU up, and at the start of a thread.

mod hold;
#[cfg(target_os = "hermit")]
mod newborn;
mod rounds;
mod state;

use std::arch::x86_64::__cpuid;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;

use rounds::{Group, Member};
use state::Width;

#[global_allocator]
static ALLOCATOR: dolmen::GlobalAlloc = dolmen::GlobalAlloc;

const THREADS_PER_CPU: usize = 3;
const ROUNDS: u64 = 12;

fn main() -> ExitCode {
    let width = Width::widest();
    match run(width) {
        Ok(switches) => {
            println!(
                "ok vector: {} registers of {} bytes, kept by {}, {ROUNDS} rounds, {switches} switches seen",
                width.registers(),
                width.bytes(),
                instruction(),
            );
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("failed vector: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The instruction by which the operating system keeps registers: CPUID says whether it has turned XSAVE on.
fn instruction() -> &'static str {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        "FXSAVE"
    } else {
        "XSAVE"
    }
}

/// Runs all threads. A failure in one of them ends the program at once: the others wait for it.
fn run(width: Width) -> Result<u64, String> {
    let cpus = dolmen::cpus();
    let groups: Vec<Group> = cpus.iter().map(|_| Group::default()).collect();
    let everybody = Barrier::new(THREADS_PER_CPU * cpus.len());
    thread::scope(|scope| {
        let (cpus, groups, everybody) = (&cpus, &groups, &everybody);
        let threads: Vec<_> = (0..THREADS_PER_CPU * cpus.len())
            .map(|number| {
                scope.spawn(move || {
                    let result = place(cpus, number).and_then(|place| {
                        let group = &groups[place];
                        group.join();
                        everybody.wait();
                        let number = number as u64;
                        Member {
                            group,
                            number,
                            width,
                        }
                        .work(ROUNDS)
                    });
                    result.unwrap_or_else(|reason| {
                        eprintln!("failed vector: thread {number}, {reason}");
                        std::process::exit(1)
                    })
                })
            })
            .collect();
        #[cfg(target_os = "hermit")]
        for _ in 0..ROUNDS / 2 {
            newborn::one_on_each_cpu(width, cpus.len())?;
        }
        let mut switches = 0;
        for thread in threads {
            switches += thread.join().map_err(|_| "a thread panicked")?;
        }
        Ok(switches)
    })
}

/// Which of the CPUs the calling thread, the program's `number`th, is on from now on.
fn place(cpus: &[u32], number: usize) -> Result<usize, String> {
    if cfg!(not(target_os = "hermit")) {
        let cpu = cpus[number % cpus.len()];
        dolmen::pin_current_thread(cpu)
            .map_err(|error| format!("cannot go to CPU {cpu}: {error}"))?;
    }
    let here = dolmen::current_cpu();
    cpus.iter()
        .position(|&cpu| cpu == here)
        .ok_or_else(|| format!("is on CPU {here}, which the program was not given"))
}
