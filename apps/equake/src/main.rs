//! The command `equake`: see [`equake::cli`] for its arguments.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: dolmen::GlobalAlloc = dolmen::GlobalAlloc;

fn main() -> ExitCode {
    let options = match equake::cli::parse(std::env::args_os().skip(1)) {
        Ok(equake::cli::Command::Help) => {
            print!("{}", equake::cli::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(equake::cli::Command::Run(options)) => options,
        Err(message) => {
            eprintln!("equake: {message}; 'equake --help' lists the arguments");
            return ExitCode::from(2);
        }
    };
    match equake::run::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("equake: {message}");
            ExitCode::FAILURE
        }
    }
}
