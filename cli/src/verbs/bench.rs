//! `bench`: native benchmarks of the memory manager, in a program of their own.

use std::process::Stdio;

use anyhow::{Context, Result};
use clap::Args;

use crate::run::Tool;

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ./dolmen bench frames                     the frame allocator against its peers
  ./dolmen bench frames --mixed --soak      with the mixed load and fragmentation
  ./dolmen bench frames --help              all options")]
pub struct Options {
    /// What is measured, and its options: frames
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WHAT"
    )]
    args: Vec<String>,
}

/// Builds the program for this host and runs it.
pub fn execute(tool: &Tool<'_>, options: &Options) -> Result<u8> {
    let mut command = tool.host_cargo_command()?;
    command
        .args(["run", "--release", "-p", "dolmen-bench"])
        .args((!tool.verbose).then_some("--quiet"))
        .arg("--manifest-path")
        .arg(tool.workspace.root().join("Cargo.toml"))
        .arg("--")
        .args(&options.args)
        .stdin(Stdio::null());
    let status = command.status().context("cannot start cargo")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}
