//! Starts an image under uhyve so that it waits for a debugger.

use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::nested::Nested;
use super::{Guest, Luggage, Place, UhyveImage, guest, start_on_host};
use crate::run::follow::TICK;
use crate::run::gdb::{Debuggee, Whereabouts};
use crate::run::os::Start;
use crate::spec::RunSpec;

/// What uhyve says when a debugger may come. Connecting to see whether it listens would not do: it
/// takes one connection only.
const LISTENS: &str = "Waiting for a local GDB connection";

/// The port in the emulated Linux, where nothing else has any.
const NESTED_PORT: u16 = 6677;

/// Starts the machine; `directory` is for what it needs while it runs.
pub(in crate::run) fn debug(
    image: &UhyveImage,
    spec: &RunSpec,
    directory: &Path,
) -> Result<Debuggee> {
    let guest = guest(image, spec, directory)?;
    match &image.place {
        Place::Host { uhyve } => on_host(uhyve, guest),
        Place::Nested { .. } if spec.cpus > 1 => bail!(
            "in the emulated Linux a debugger can have one processor, not {}: uhyve does not stop several at once",
            spec.cpus
        ),
        Place::Nested { qemu, parts } => {
            let luggage = Luggage::read(&guest)?;
            let linux = Nested::boot(qemu, parts, luggage.room(spec))?;
            in_nested(linux, guest, luggage)
        }
    }
}

fn on_host(uhyve: &Path, mut guest: Guest<'_>) -> Result<Debuggee> {
    let port = free_port()?;
    guest.gdb_port = Some(port);
    let start = Start {
        own_group: true,
        ..Start::default()
    };
    let mut monitor = start_on_host(uhyve, &mut guest, start)?;
    while !monitor.said().contains(LISTENS) {
        if let Some(ended) = monitor.ended() {
            bail!("uhyve cannot make the machine: {}", ended.complaint);
        }
        std::thread::sleep(TICK);
    }
    Ok(Debuggee::on_this_host(
        monitor,
        format!("127.0.0.1:{port}"),
        Whereabouts::Halted,
    ))
}

fn in_nested(mut linux: Nested, mut guest: Guest<'_>, luggage: Luggage) -> Result<Debuggee> {
    luggage.send(&mut linux, &mut guest)?;
    guest.gdb_port = Some(NESTED_PORT);
    let job = linux.start(&guest.arguments())?;
    loop {
        let said = linux.complaint()?;
        if said.contains(LISTENS) {
            break;
        }
        if job.ended() {
            bail!("uhyve cannot make the machine: {said}");
        }
        std::thread::sleep(TICK);
    }
    let port = linux.bridge(NESTED_PORT)?;
    Ok(Debuggee::in_nested(
        linux,
        job,
        luggage.files,
        format!("127.0.0.1:{port}"),
    ))
}

/// A port for a program that has to be given one.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port for the debugger")?;
    Ok(listener.local_addr()?.port())
}
