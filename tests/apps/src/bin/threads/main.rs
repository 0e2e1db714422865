//! What std's threads promise, with more threads than CPUs. Prints `ok NAME` for each check; the first that fails
//! ends the program with status 1.

mod checks;

use std::process::ExitCode;

/// A check gives the reason why it failed.
type Check = fn() -> Result<(), String>;

fn main() -> ExitCode {
    let all: [(&str, Check); 14] = [
        ("join", checks::join),
        ("mutex", checks::mutex),
        ("rwlock", checks::rwlock),
        ("condvar", checks::condvar),
        ("condvar-timeout", checks::condvar_timeout),
        ("barrier", checks::barrier),
        ("channel", checks::channel),
        ("rendezvous", checks::rendezvous),
        ("park", checks::park),
        ("once", checks::once),
        ("thread-locals", checks::thread_locals),
        ("sleep", checks::sleep),
        ("scope", checks::scope),
        ("float-state", checks::float_state),
    ];
    for (name, check) in all {
        if let Err(reason) = check() {
            eprintln!("failed {name}: {reason}");
            return ExitCode::FAILURE;
        }
        println!("ok {name}");
    }
    println!("ok all {} checks", all.len());
    ExitCode::SUCCESS
}
