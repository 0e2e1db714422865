//! The `dolmen-cli` binary: the command line over the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    dolmen_cli::cli::execute(dolmen_cli::cli::Cli::parse())
}
