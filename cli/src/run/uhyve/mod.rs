//! Runs an image under the hypervisor uhyve: on this host's KVM if that can run guests, and in a
//! small emulated Linux otherwise.

mod bridge;
mod command;
mod debug;
mod files;
mod initramfs;
mod job;
mod nested;
mod parts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::Console;
use super::bootargs;
use super::follow::{End, follow, judge};
use super::monitor::Monitor;
use super::os::Start;
use super::packing::packed;
use super::prepare::Tool;
use super::run_directory::RunDirectory;
use crate::host::Host;
use crate::image::{ImageKind, words_of_image};
use crate::report::RunReport;
use crate::spec::{MIB, RunSpec};

use command::Guest;
pub(super) use debug::debug;
pub(super) use files::Files;
pub(super) use job::Job;
pub(super) use nested::Nested;
pub use parts::{LinuxState, Parts, VERSION, cache, find_uhyve, linux_state, version};

/// The variable that overrides where uhyve runs.
pub const PLACE_VARIABLE: &str = "DOLMEN_UHYVE";

/// The first Linux with which uhyve 0.10.0 cannot start: KVM refuses bits of EFER that the guest's
/// CPUID, which uhyve sets later, does not show yet ("KVM: x86: Check EFER validity on
/// KVM_SET_SREGS").
pub const FIRST_BROKEN_LINUX: (u32, u32, u32) = (6, 12, 113);

/// An image ready to run under uhyve.
#[derive(Debug, Clone)]
pub struct UhyveImage {
    /// The application's name.
    pub app: String,
    /// The image.
    pub file: PathBuf,
    /// Its form.
    pub kind: ImageKind,
    /// Where uhyve runs.
    pub place: Place,
}

/// Where uhyve runs.
#[derive(Debug, Clone)]
pub enum Place {
    /// On this host's KVM.
    Host {
        /// uhyve.
        uhyve: PathBuf,
    },
    /// In an emulated Linux.
    Nested {
        /// The emulator.
        qemu: PathBuf,
        /// What the Linux is made of.
        parts: Parts,
    },
}

/// Whether this host's KVM can run uhyve's guests; if not, why.
pub fn kvm_serves(host: &dyn Host, cpuinfo: &str, linux: &str) -> Result<(), String> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let virtualises = flags
        .unwrap_or_default()
        .split_whitespace()
        .any(|flag| flag == "vmx" || flag == "svm");
    if !host.can_open(Path::new("/dev/kvm")) {
        return Err("/dev/kvm is not there or may not be opened".to_owned());
    }
    if !virtualises {
        return Err("/dev/kvm is there, but the CPU shows neither vmx nor svm".to_owned());
    }
    starts_on(linux)
}

/// Whether uhyve can start on a host with this Linux; if not, why.
pub fn starts_on(linux: &str) -> Result<(), String> {
    let (major, minor, patch) = FIRST_BROKEN_LINUX;
    match linux_version(linux) {
        Some(version) if version >= FIRST_BROKEN_LINUX => Err(format!(
            "uhyve {VERSION} cannot start on Linux {major}.{minor}.{patch} and later (this is {})",
            linux.trim()
        )),
        _ => Ok(()),
    }
}

/// The three numbers in front of a Linux's version.
fn linux_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// Finds out where uhyve can run here, and gets what is needed for it.
pub fn place(tool: &Tool<'_>) -> Result<Place> {
    let on_host = match tool.host.env(PLACE_VARIABLE).as_deref() {
        None | Some("" | "auto") => {
            let read = |path| std::fs::read_to_string(path).unwrap_or_default();
            let linux = read("/proc/sys/kernel/osrelease");
            kvm_serves(tool.host, &read("/proc/cpuinfo"), &linux).is_ok()
        }
        Some("kvm") => true,
        Some("nested") => false,
        Some(other) => {
            bail!("{PLACE_VARIABLE} cannot be '{other}' (allowed: auto, kvm, nested)")
        }
    };
    if on_host {
        return Ok(Place::Host {
            uhyve: parts::uhyve(tool)?,
        });
    }
    Ok(Place::Nested {
        qemu: tool.qemu()?,
        parts: parts::all(tool)?,
    })
}

/// Runs `image`.
pub(super) fn run(
    image: &UhyveImage,
    spec: &RunSpec,
    console: &mut Console,
    report: &mut RunReport,
) -> Result<()> {
    if command::memory(spec) != spec.memory() {
        report.mem_bytes = Some(command::memory(spec));
        report.notes.push(format!(
            "uhyve's memory comes in steps of 2 MiB: the machine has {} MiB",
            command::memory(spec) / MIB
        ));
    }
    let directory = RunDirectory::new()?;
    let guest = guest(image, spec, &directory.path)?;
    match &image.place {
        Place::Host { uhyve } => on_host(uhyve, guest, console, report),
        Place::Nested { qemu, parts } => in_nested(qemu, parts, guest, console, report),
    }
}

/// What uhyve is to run, but for the files of the host.
fn guest<'a>(image: &UhyveImage, spec: &'a RunSpec, directory: &Path) -> Result<Guest<'a>> {
    let (file, archive) = lay_out(image, spec, directory)?;
    let mut words = words_of_image(&image.file, image.kind)?;
    words.kernel.extend(bootargs::kernel_words(spec));
    // uhyve's machines have one node; the kernel divides it.
    if spec.nodes > 1 {
        words.kernel.push(format!("numa-fake={}", spec.nodes));
    }
    if !spec.args.is_empty() {
        words.application = spec.args.clone();
    }
    Ok(Guest {
        spec,
        image: file,
        archive,
        files: Vec::new(),
        kernel: words.kernel,
        application: words.application,
        gdb_port: None,
    })
}

/// The image with the files that the arguments name, and whether it is an archive.
fn lay_out(image: &UhyveImage, spec: &RunSpec, directory: &Path) -> Result<(PathBuf, bool)> {
    let output = directory.join("image");
    if packed(&image.file, image.kind, spec, &output)? {
        return Ok((output, true));
    }
    Ok((image.file.clone(), image.kind == ImageKind::Archive))
}

fn on_host(
    uhyve: &Path,
    mut guest: Guest<'_>,
    console: &mut Console,
    report: &mut RunReport,
) -> Result<()> {
    let started = Instant::now();
    let mut monitor = start_on_host(uhyve, &mut guest, Start::default())?;
    let end = follow(monitor.output(), guest.spec, started, console, report);
    let ended = monitor.end();
    report.host_wall(started.elapsed());
    let said = ended.complaint;
    judge(end, guest.spec, None, "uhyve", &said, console, report);
    Ok(())
}

/// Starts uhyve as a process of this host, with the host's own files.
fn start_on_host(uhyve: &Path, guest: &mut Guest<'_>, start: Start) -> Result<Monitor> {
    guest.files = guest
        .spec
        .files
        .iter()
        .map(|file| (file.host.clone(), format!("/{}", file.guest)))
        .collect();
    let mut command = Command::new(uhyve);
    command.args(guest.arguments());
    Monitor::start(command, start)
}

/// The Linux that the runs of this process share.
static LINUX: Mutex<Option<Nested>> = Mutex::new(None);

/// What a run needs in the emulated Linux.
struct Luggage {
    image: Vec<u8>,
    files: Files,
}

impl Luggage {
    fn read(guest: &Guest<'_>) -> Result<Self> {
        let image = std::fs::read(&guest.image)
            .with_context(|| format!("cannot read {}", guest.image.display()))?;
        Ok(Self {
            image,
            files: Files::read(&guest.spec.files)?,
        })
    }

    /// The memory that a Linux has to have for it.
    fn room(&self, spec: &RunSpec) -> u64 {
        nested::memory(
            command::memory(spec),
            self.files.bytes() + self.image.len() as u64,
        )
    }

    /// Brings it there, and tells `guest` where it is.
    fn send(&self, linux: &mut Nested, guest: &mut Guest<'_>) -> Result<()> {
        linux.put("/job/image", &self.image)?;
        guest.image = "/job/image".into();
        guest.files = self.files.send(linux)?;
        Ok(())
    }
}

fn in_nested(
    qemu: &Path,
    parts: &Parts,
    mut guest: Guest<'_>,
    console: &mut Console,
    report: &mut RunReport,
) -> Result<()> {
    let spec = guest.spec;
    let luggage = Luggage::read(&guest)?;
    let room = luggage.room(spec);
    let mut shared = LINUX.lock().unwrap_or_else(PoisonError::into_inner);
    // Only one that ended its last job well is put back.
    let mut linux = if let Some(mut linux) = shared.take()
        && linux.serves(room)
    {
        linux
    } else {
        Nested::boot(qemu, parts, room)?
    };
    linux.clean()?;
    luggage.send(&mut linux, &mut guest)?;
    // The Linux is not part of the run.
    let started = Instant::now();
    let job = linux.start(&guest.arguments())?;
    let end = follow(job.output(), spec, started, console, report);
    if !matches!(end, End::Stopped { exit_record: false }) {
        linux.kill(&job)?;
    }
    report.host_wall(started.elapsed());
    if job.status().is_none() {
        bail!("the Linux in which uhyve ran has stopped");
    }
    let said = linux.complaint()?;
    judge(end, spec, None, "uhyve", &said, console, report);
    luggage.files.receive(&mut linux)?;
    *shared = Some(linux);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn kvm_needs_the_device_the_processor_and_an_older_linux() {
        let with = FakeHost::default().file("/dev/kvm");
        let without = FakeHost::default();
        let amd = "processor: 0\nflags\t\t: fpu svm lm\n";
        let plain = "processor: 0\nflags\t\t: fpu lm\n";
        let why = |host, cpuinfo, linux| kvm_serves(host, cpuinfo, linux).unwrap_err();
        assert_eq!(kvm_serves(&with, amd, "6.1.0-57-cloud-amd64\n"), Ok(()));
        assert_eq!(kvm_serves(&with, amd, "6.12.112"), Ok(()));
        assert!(why(&with, amd, "6.12.113-generic").contains("cannot start on Linux 6.12.113"));
        assert!(why(&with, amd, "7.0.0").contains("this is 7.0.0"));
        assert!(why(&with, plain, "6.1.0").contains("neither vmx nor svm"));
        assert!(why(&without, amd, "6.1.0").contains("/dev/kvm"));
    }
}
