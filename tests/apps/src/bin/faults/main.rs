//! Things that go wrong, and things that must go right, one for each subcommand. What the system tests look at is the
//! output, the exit status and the report.

mod fatal;
mod memory;
mod system;
mod written;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: dolmen::GlobalAlloc = dolmen::GlobalAlloc;

const USAGE: &str = "\
usage: faults overflow | null | unmapped | write-text | panic-main | panic-secondary | exit3 | abort | hang
       faults fault-on CPU | panic-on CPU | nmi | machine-check | triple
       faults touch BYTES | oom [LIMIT_BYTES] | churn [ROUNDS [THREADS]]
       faults page-fault1 ROUNDS TASKS BYTES
       faults files FOLDER | writefiles FOLDER | copy FROM TO | time | spawnstorm ROUNDS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().ok();
    let result = match arguments[..] {
        ["overflow"] => fatal::overflow(),
        ["null"] => fatal::null(),
        ["unmapped"] => fatal::unmapped(),
        ["write-text"] => fatal::write_text(),
        ["panic-main"] => panic!("this panic was asked for"),
        ["panic-secondary"] => fatal::panic_secondary(),
        ["nmi"] => fatal::interrupt::<2>(),
        ["machine-check"] => fatal::interrupt::<18>(),
        ["triple"] => fatal::triple(),
        ["exit3"] => std::process::exit(3),
        ["abort"] => std::process::abort(),
        ["hang"] => loop {
            std::hint::spin_loop();
        },
        ["files", folder] => system::files(folder),
        ["writefiles", folder] => written::write_files(folder),
        ["time"] => system::time(),
        ["oom"] => memory::oom(usize::MAX),
        ["churn"] => memory::churn(50, 8),
        [name, value] => match (name, number(value)) {
            ("touch", Some(bytes)) => memory::touch(bytes),
            ("fault-on", Some(cpu)) => fatal::on_cpu(cpu, fatal::null),
            ("panic-on", Some(cpu)) => fatal::on_cpu(cpu, fatal::panic_here),
            ("oom", Some(limit)) => memory::oom(limit),
            ("churn", Some(rounds)) => memory::churn(rounds, 8),
            ("spawnstorm", Some(rounds)) => system::spawn_storm(rounds),
            _ => return usage(),
        },
        ["page-fault1", rounds, tasks, bytes] => match [rounds, tasks, bytes].map(number) {
            [Some(rounds), Some(tasks), Some(bytes)] => memory::page_fault1(rounds, tasks, bytes),
            _ => return usage(),
        },
        ["copy", from, to] => system::copy(from, to),
        ["churn", rounds, threads] => match (number(rounds), number(threads)) {
            (Some(rounds), Some(threads)) if threads > 0 => memory::churn(rounds, threads),
            _ => return usage(),
        },
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("failed {}: {reason}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
