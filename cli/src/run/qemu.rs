//! Runs an image on a machine that QEMU emulates.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::Console;
use super::bootargs::command_line;
use super::follow::{TICK, follow, judge};
use super::gdb::{Debuggee, Whereabouts};
use super::machine::Machine;
use super::monitor::{Ended, Monitor};
use super::os::Start;
use super::packing::packed;
use super::prepare::Image;
use super::run_directory::RunDirectory;
use super::shares::Shares;
use crate::report::RunReport;
use crate::spec::RunSpec;

/// Names in the run's own directory: QEMU gives a meaning to spaces and commas in file names.
const LOADER: &str = "loader";
const IMAGE: &str = "image";
const GDB: &str = "gdb";

/// The processor with all that QEMU can emulate.
const DEFAULT_CPU_MODEL: &str = "max";

pub(super) fn run(
    image: &Image,
    spec: &RunSpec,
    console: &mut Console,
    report: &mut RunReport,
) -> Result<()> {
    let directory = RunDirectory::new()?;
    let command = command(image, spec, &directory.path)?;
    let started = Instant::now();
    let mut monitor = Monitor::start(command, Start::default())?;
    let end = follow(monitor.output(), spec, started, console, report);
    let ended = monitor.end();
    report.host_wall(started.elapsed());
    judge(
        end,
        spec,
        machine_status(&ended),
        "QEMU",
        &ended.complaint,
        console,
        report,
    );
    Ok(())
}

/// Starts the machine so that it waits for a debugger before its first instruction.
pub(super) fn debug(image: &Image, spec: &RunSpec, directory: &Path) -> Result<Debuggee> {
    let mut command = command(image, spec, directory)?;
    command
        .arg("-S")
        .args([
            "-chardev",
            &format!("socket,id={GDB},path={GDB},server=on,wait=off"),
        ])
        .args(["-gdb", &format!("chardev:{GDB}")]);
    let start = Start {
        own_group: true,
        ..Start::default()
    };
    let mut monitor = Monitor::start(command, start)?;
    let socket = directory.join(GDB);
    while !socket.exists() {
        if let Some(ended) = monitor.ended() {
            bail!("QEMU cannot make the machine: {}", ended.complaint);
        }
        std::thread::sleep(TICK);
    }
    Ok(Debuggee::on_this_host(
        monitor,
        socket.display().to_string(),
        Whereabouts::Loader(image.loader.clone()),
    ))
}

/// QEMU for this machine, with everything it needs in `directory`.
fn command(image: &Image, spec: &RunSpec, directory: &Path) -> Result<Command> {
    let shares = Shares::new(&spec.files)?;
    shares.check(&image.qemu)?;
    lay_out(image, spec, directory)?;
    let command_line = command_line(spec, &shares.words);
    let machine = Machine {
        cpus: spec.cpus,
        machine: spec.machine.as_deref(),
        cpu_model: spec.cpu_model.as_deref().unwrap_or(DEFAULT_CPU_MODEL),
        nodes: spec.nodes,
        mem_bytes: spec.memory(),
        loader: LOADER,
        image: IMAGE,
        command_line: &command_line,
    };
    let mut command = Command::new(&image.qemu);
    command
        .args(machine.arguments())
        .args(shares.arguments()?)
        .current_dir(directory);
    Ok(command)
}

/// Puts the loader and the image, packed with the files it needs, where QEMU starts.
fn lay_out(image: &Image, spec: &RunSpec, directory: &Path) -> Result<()> {
    let link = |from: &Path, name: &str| {
        std::os::unix::fs::symlink(from, directory.join(name))
            .with_context(|| format!("cannot link {}", from.display()))
    };
    link(&image.loader, LOADER)?;
    if packed(&image.file, image.kind, spec, &directory.join(IMAGE))? {
        return Ok(());
    }
    link(&image.file, IMAGE)
}

/// The status that the machine gave to the debug-exit device, which makes an odd code of it; the
/// code 1 is also what QEMU itself fails with.
fn machine_status(ended: &Ended) -> Option<i32> {
    let code = ended.code.filter(|code| *code >= 3 && code % 2 == 1)?;
    Some(code >> 1)
}
