//! What uhyve needs to run: itself, and where KVM cannot be used, a Linux to run in.
//!
//! Nothing is installed. uhyve comes from the crate registry by `cargo install`, the kernel and
//! busybox are Debian's packages, downloaded and unpacked by its tools; all of it stays in a folder
//! of the build directory.

mod linux;
mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::host::Host;
use crate::progress::Progress;
use crate::run::Tool;

use linux::{BUSYBOX_PACKAGE, KERNEL_PACKAGE, Linux, kernel_package, package};
pub(super) use program::uhyve;
pub use program::{VERSION, find_uhyve, version};

/// Variables that name what cannot be downloaded on this machine.
const KERNEL_VARIABLE: &str = "DOLMEN_NESTED_KERNEL";
const MODULES_VARIABLE: &str = "DOLMEN_NESTED_MODULES";
const BUSYBOX_VARIABLE: &str = "DOLMEN_NESTED_BUSYBOX";

/// The files of the small Linux.
#[derive(Debug, Clone)]
pub struct Parts {
    pub(super) uhyve: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) busybox: PathBuf,
    /// Kernel modules in the order in which they are loaded.
    pub(super) modules: Vec<PathBuf>,
    /// The shared libraries that uhyve needs.
    pub(super) libraries: Vec<PathBuf>,
}

/// The folder that keeps what was downloaded.
pub fn cache(tool: &Tool<'_>) -> PathBuf {
    tool.workspace.image_target().join("uhyve")
}

/// Everything, downloaded where it is not there yet.
pub(super) fn all(tool: &Tool<'_>) -> Result<Parts> {
    let uhyve = uhyve(tool)?;
    let cache = cache(tool);
    let linux = match tool.host.env(KERNEL_VARIABLE) {
        Some(kernel) => Linux {
            kernel: kernel.into(),
            modules: tool.host.env(MODULES_VARIABLE).map_or_else(
                || bail_without(MODULES_VARIABLE),
                |folder| Ok(PathBuf::from(folder)),
            )?,
        },
        None => Linux::find(&package(&cache, "linux", kernel_package)?)?,
    };
    let busybox = match tool.host.env(BUSYBOX_VARIABLE) {
        Some(busybox) => busybox.into(),
        None => package(&cache, "busybox", || Ok(BUSYBOX_PACKAGE.to_owned()))?.join("bin/busybox"),
    };
    let libraries = libraries(tool.host, &uhyve)?;
    Ok(Parts {
        modules: linux.modules()?,
        kernel: linux.kernel,
        uhyve,
        busybox,
        libraries,
    })
}

/// How far the Linux for uhyve is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinuxState {
    /// All its parts are there.
    There(String),
    /// The first run gets what is missing.
    ToBeFetched(String),
    /// It cannot be had here.
    Unavailable(String),
}

/// Looks for the parts of the Linux for uhyve, and fetches nothing.
pub fn linux_state(host: &dyn Host, cache: &Path) -> LinuxState {
    let mut places = Vec::new();
    let mut packages = Vec::new();
    for (what, variables, package) in [
        (
            "linux",
            &[KERNEL_VARIABLE, MODULES_VARIABLE][..],
            KERNEL_PACKAGE,
        ),
        ("busybox", &[BUSYBOX_VARIABLE][..], BUSYBOX_PACKAGE),
    ] {
        if host.env(variables[0]).is_none() {
            let place = cache.join(what);
            if host.is_dir(&place) {
                places.push(place);
            } else {
                packages.push(package);
            }
            continue;
        }
        for variable in variables {
            let Some(named) = host.env(variable).map(PathBuf::from) else {
                return LinuxState::Unavailable(format!(
                    "{} is set, {variable} is not",
                    variables[0]
                ));
            };
            if !host.is_file(&named) && !host.is_dir(&named) {
                return LinuxState::Unavailable(format!(
                    "{variable} names {}, which is not there",
                    named.display()
                ));
            }
            places.push(named);
        }
    }
    let list = |places: Vec<PathBuf>| {
        let places: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        places.join(", ")
    };
    if packages.is_empty() {
        return LinuxState::There(list(places));
    }
    let packages = packages.join(" and ");
    let lacking = ["apt-get", "apt-cache", "dpkg-deb"]
        .into_iter()
        .find(|program| host.find_program(program).is_none());
    match lacking {
        None => LinuxState::ToBeFetched(format!(
            "the first run downloads {packages} to {}",
            cache.display()
        )),
        Some(program) => LinuxState::Unavailable(format!(
            "no {program} to download {packages}: {KERNEL_VARIABLE}, {MODULES_VARIABLE} and {BUSYBOX_VARIABLE} can name a kernel, the folder of its modules and a static busybox"
        )),
    }
}

fn bail_without<T>(variable: &str) -> Result<T> {
    bail!("{KERNEL_VARIABLE} is set, so {variable} has to name the folder of its modules")
}

/// The shared libraries of a program, and the one that loads them.
fn libraries(host: &dyn Host, program: &Path) -> Result<Vec<PathBuf>> {
    let list = host
        .output(Path::new("ldd"), &[&program.display().to_string()])
        .with_context(|| format!("ldd does not list the libraries of {}", program.display()))?;
    Ok(list
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

/// Runs a command, with what it says only if it fails.
fn run(mut command: Command, title: &str) -> Result<()> {
    let program = command.get_program().display().to_string();
    let progress = Progress::spinner(title);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} cannot be started"));
    progress.finish();
    let output = output?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{title}: {program} failed: {}", said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn the_parts_of_the_linux_are_found_or_can_be_got() {
        let state = |host: &FakeHost| linux_state(host, Path::new("/cache"));
        let bare = FakeHost::default().env("PATH", "/usr/bin");
        let LinuxState::Unavailable(why) = state(&bare) else {
            panic!("there is no apt-get");
        };
        assert!(
            why.contains("apt-get") && why.contains(BUSYBOX_VARIABLE),
            "{why}"
        );
        let debian = ["apt-get", "apt-cache", "dpkg-deb"]
            .iter()
            .fold(bare.clone(), |host, program| {
                host.file(&format!("/usr/bin/{program}"))
            });
        let with_linux = debian.clone().file("/cache/linux/boot/vmlinuz-6.1");
        assert_eq!(
            state(&with_linux),
            LinuxState::ToBeFetched("the first run downloads busybox-static to /cache".to_owned())
        );
        let both = with_linux.file("/cache/busybox/bin/busybox");
        let places = "/cache/linux, /cache/busybox".to_owned();
        assert_eq!(state(&both), LinuxState::There(places));

        let half = debian.file("/k").env(KERNEL_VARIABLE, "/k");
        let LinuxState::Unavailable(why) = state(&half) else {
            panic!("no modules are named");
        };
        assert!(why.contains("DOLMEN_NESTED_MODULES is not"), "{why}");
        let named = half
            .file("/m/kvm.ko")
            .env(MODULES_VARIABLE, "/m")
            .env(BUSYBOX_VARIABLE, "/b");
        let LinuxState::Unavailable(why) = state(&named) else {
            panic!("there is no /b");
        };
        assert!(why.contains("/b, which is not there"), "{why}");
        assert_eq!(
            state(&named.file("/b")),
            LinuxState::There("/k, /m, /b".to_owned())
        );
    }

    #[test]
    fn libraries_are_what_ldd_names() {
        let host = FakeHost::default().command(
            "ldd /u",
            "\tlinux-vdso.so.1 (0x7ffe)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n",
        );
        let found = libraries(&host, Path::new("/u")).unwrap();
        assert_eq!(
            found,
            [Path::new("/lib/x/libc.so.6"), Path::new("/lib64/ld.so.2")]
        );
    }
}
