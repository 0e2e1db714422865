//! Starts an image under uhyve so that it waits for a debugger.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::nested::Nested;
use super::{Guest, Place, UhyveImage, command, files, guest, start_on_host};
use crate::run::gdb::{Debuggee, Whereabouts};
use crate::run::os::Start;
use crate::spec::RunSpec;

/// What uhyve says when a debugger may come. Connecting to see whether it listens would not do: it
/// takes one connection only.
const LISTENS: &str = "Waiting for a local GDB connection";

/// The port in the emulated Linux, where nothing else has any.
const NESTED_PORT: u16 = 6677;

/// How often a wait looks again.
const TICK: Duration = Duration::from_millis(50);

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
            let contents = std::fs::read(&guest.image)
                .with_context(|| format!("cannot read {}", guest.image.display()))?;
            let files = files::Files::read(&spec.files)?;
            let file_bytes = files.bytes() + contents.len() as u64;
            let linux = Nested::boot(qemu, parts, command::memory(spec), file_bytes)?;
            in_nested(linux, guest, &contents, files)
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

fn in_nested(
    mut linux: Nested,
    mut guest: Guest<'_>,
    image: &[u8],
    files: files::Files,
) -> Result<Debuggee> {
    linux.put("/job/image", image)?;
    guest.image = "/job/image".into();
    guest.files = files.send(&mut linux)?;
    guest.gdb_port = Some(NESTED_PORT);
    let job = linux.start(&guest.arguments())?;
    loop {
        let complaint = linux.get("/tmp/complaint")?.unwrap_or_default();
        let said = String::from_utf8_lossy(&complaint);
        if said.contains(LISTENS) {
            break;
        }
        if job.ended() {
            bail!("uhyve cannot make the machine: {}", said.trim());
        }
        std::thread::sleep(TICK);
    }
    let port = linux.bridge(NESTED_PORT)?;
    Ok(Debuggee::in_nested(
        linux,
        job,
        files,
        format!("127.0.0.1:{port}"),
    ))
}

/// A port for a program that has to be given one.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port for the debugger")?;
    Ok(listener.local_addr()?.port())
}
