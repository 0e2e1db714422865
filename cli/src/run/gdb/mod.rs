//! Runs an image with gdb attached: the machine is halted before its first instruction, and gdb
//! takes it to the application's `main`.
//!
//! Where the image lies is known at run time only. uhyve, whose choice is random, halts at the image's
//! first instruction. On QEMU gdb first stops in the loader at `dolmen_loader_enter`, whose first
//! argument is that instruction's address. (uhyve's server also answers `qOffsets`, by which gdb moves
//! code and data, but not constants.)

mod debuggee;
mod script;
mod symbols;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};

use super::follow::TICK;
use super::os::{Start, arrange};
use super::prepare::Prepared;
use super::run_directory::RunDirectory;
use super::{Console, qemu, uhyve};
use crate::image::application;
use crate::spec::RunSpec;

pub(super) use debuggee::{Debuggee, Whereabouts};
use symbols::Symbols;

/// The debugger and what it is told.
#[derive(Debug, Clone)]
pub struct Session {
    /// gdb.
    pub gdb: PathBuf,
    /// Files of commands, for when the application has stopped in `main`.
    pub scripts: Vec<PathBuf>,
    /// gdb ends with its commands, and asks nothing.
    pub batch: bool,
}

/// Debugs a prepared application until gdb ends; what it prints goes to `console`. Gives the
/// application's status if it came to its end, else gdb's.
pub fn debug(
    prepared: &Prepared,
    spec: &RunSpec,
    session: &Session,
    console: &mut Console,
) -> Result<i32> {
    let (file, kind) = match prepared {
        Prepared::Image(image) => (&image.file, image.kind),
        Prepared::Uhyve(image) => (&image.file, image.kind),
        Prepared::Process(_) => bail!("{} is no image: gdb itself can start it", prepared.app()),
    };
    // Ctrl-C is gdb's from now on.
    crate::interrupt::install();
    let directory = RunDirectory::new()?;
    let elf = application(file, kind, &directory.path.join("application"))?;
    let symbols = Symbols::read(&elf, prepared.app())?;
    let mut debuggee = match prepared {
        Prepared::Image(image) => qemu::debug(image, spec, &directory.path)?,
        Prepared::Uhyve(image) => uhyve::debug(image, spec, &directory.path)?,
        Prepared::Process(_) => unreachable!("refused above"),
    };
    let setup = directory.path.join("setup.gdb");
    let commands = script::commands(
        &debuggee.whereabouts,
        &debuggee.target,
        &elf,
        &symbols,
        session.batch,
    );
    std::fs::write(&setup, commands)
        .with_context(|| format!("cannot write {}", setup.display()))?;
    let status = run_gdb(session, &setup, &mut debuggee, console)?;
    let ended = debuggee.end(console)?;
    console.finish();
    if let Some(complaint) = ended.complaint {
        eprintln!("dolmen: the machine failed: {complaint}");
    }
    Ok(ended.status.or(status.code()).unwrap_or(1))
}

/// Runs gdb on this terminal, with the machine's output in between.
fn run_gdb(
    session: &Session,
    setup: &Path,
    debuggee: &mut Debuggee,
    console: &mut Console,
) -> Result<ExitStatus> {
    let mut command = Command::new(&session.gdb);
    command.arg("-q");
    if session.batch {
        command.arg("-batch");
    }
    command.arg("-x").arg(setup);
    for script in &session.scripts {
        command.arg("-x").arg(script);
    }
    arrange(&mut command, Start::default());
    let mut gdb = command
        .spawn()
        .with_context(|| format!("cannot start {}", session.gdb.display()))?;
    loop {
        if let Some(status) = gdb.try_wait().context("cannot wait for gdb")? {
            return Ok(status);
        }
        debuggee.show(TICK, console);
    }
}
