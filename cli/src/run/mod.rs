//! One run of an application, wherever it runs.

mod bootargs;
mod console;
mod follow;
mod gdb;
mod linux;
mod machine;
mod monitor;
mod os;
mod packing;
mod prepare;
mod qemu;
mod records;
mod run_directory;
mod shares;
pub mod uhyve;

pub use console::{Console, Sink};
pub use gdb::{Session, debug};
pub use prepare::{App, Image, Prepared, Process, Tool, build_image, check_platform, prepare};
pub use records::Filter;

use anyhow::Result;

use crate::report::RunReport;
use crate::spec::RunSpec;

/// Runs a prepared application and says how it went; only what keeps it from starting is an error.
pub fn run(prepared: &Prepared, spec: &RunSpec, console: &mut Console) -> Result<RunReport> {
    crate::interrupt::install();
    let mut report = RunReport::new(prepared.app(), spec);
    match prepared {
        Prepared::Image(image) => qemu::run(image, spec, console, &mut report)?,
        Prepared::Uhyve(image) => uhyve::run(image, spec, console, &mut report)?,
        Prepared::Process(process) => linux::run(process, spec, console, &mut report)?,
    }
    console.finish();
    Ok(report)
}
