//! What uhyve needs to run: itself, and where KVM cannot be used, a Linux to run in.
//!
//! Nothing is installed. uhyve comes from the crate registry by `cargo install`, the kernel and
//! busybox are Debian's packages, downloaded and unpacked by its tools; all of it stays in a folder
//! of the build directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::host::Host;
use crate::progress::Progress;
use crate::run::Tool;

/// The version whose interface the runtime speaks.
pub const VERSION: &str = "0.10.0";

/// The package that depends on the newest kernel for virtual machines.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
const BUSYBOX_PACKAGE: &str = "busybox-static";

/// What to load, in this order, as far as it is not part of the kernel; `tun` because uhyve wants
/// its device even for guests without a network.
const MODULES: [&str; 10] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_console",
    "irqbypass",
    "kvm",
    "kvm-amd",
    "tun",
];

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

/// An installed uhyve of the right version: in `PATH`, in cargo's folder, or in the build directory.
pub fn find_uhyve(host: &dyn Host, cache: &Path) -> Option<PathBuf> {
    let home = host.env("HOME").map(PathBuf::from);
    let cargo = host
        .env("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(home?.join(".cargo")));
    [
        host.find_program("uhyve"),
        cargo.map(|cargo| cargo.join("bin/uhyve")),
        Some(cache.join("uhyve/bin/uhyve")),
    ]
    .into_iter()
    .flatten()
    .filter(|path| host.is_file(path))
    .find(|path| version(host, path).is_some_and(|version| serves(&version)))
}

/// The version that an uhyve says it has.
pub fn version(host: &dyn Host, path: &Path) -> Option<String> {
    let answer = host.output(path, &["--version"])?;
    Some(answer.trim().rsplit(' ').next()?.to_owned())
}

fn serves(version: &str) -> bool {
    let minor = VERSION.rsplit_once('.').map_or(VERSION, |(minor, _)| minor);
    version
        .strip_prefix(minor)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// The folder that keeps what was downloaded.
pub fn cache(tool: &Tool<'_>) -> PathBuf {
    tool.workspace.image_target().join("uhyve")
}

/// uhyve itself, which is built if there is none.
pub(super) fn uhyve(tool: &Tool<'_>) -> Result<PathBuf> {
    let cache = cache(tool);
    if let Some(path) = find_uhyve(tool.host, &cache) {
        return Ok(path);
    }
    let root = cache.join("uhyve");
    let mut command = tool.host_cargo_command()?;
    command
        .args([
            "install",
            "uhyve",
            "--locked",
            "--version",
            VERSION,
            "--root",
        ])
        .arg(&root)
        .arg("--target-dir")
        .arg(cache.join("build"));
    run(command, &format!("building uhyve {VERSION}, once"))?;
    // What it was built from is large and not needed again.
    let _ = fs::remove_dir_all(cache.join("build"));
    Ok(root.join("bin/uhyve"))
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

/// A kernel and the folder of its modules.
struct Linux {
    kernel: PathBuf,
    modules: PathBuf,
}

impl Linux {
    /// The kernel in an unpacked package.
    fn find(root: &Path) -> Result<Self> {
        let only = |folder: &Path, prefix: &str| {
            let entries = fs::read_dir(folder).ok()?.flatten();
            let mut names = entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
            names.next().map(|entry| entry.path())
        };
        let kernel = only(&root.join("boot"), "vmlinuz-");
        let modules = ["lib/modules", "usr/lib/modules"]
            .iter()
            .find_map(|folder| only(&root.join(folder), ""));
        match (kernel, modules) {
            (Some(kernel), Some(modules)) => Ok(Self { kernel, modules }),
            _ => bail!("{} holds no kernel with modules", root.display()),
        }
    }

    /// The modules that are needed. What is part of the kernel has no file.
    fn modules(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut folders = vec![self.modules.clone()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("cannot read {}", folder.display()))?;
            for entry in entries.flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    _ => found.push(path),
                }
            }
        }
        let file = |module: &str| {
            let plain = format!("{module}.ko");
            found
                .iter()
                .find(|path| path.file_name().is_some_and(|name| *name == *plain))
                .cloned()
        };
        let modules: Vec<PathBuf> = MODULES.iter().filter_map(|module| file(module)).collect();
        if !modules.iter().any(|path| path.ends_with("kvm-amd.ko")) {
            bail!(
                "{} holds no uncompressed kvm-amd.ko",
                self.modules.display()
            );
        }
        Ok(modules)
    }
}

/// The package of the newest kernel itself.
fn kernel_package() -> Result<String> {
    let output = Command::new("apt-cache")
        .args(["depends", KERNEL_PACKAGE])
        .output()
        .context("apt-cache cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .map(|version| format!("linux-image-{version}"))
        .with_context(|| format!("apt does not know {KERNEL_PACKAGE}: `apt-get update`?"))
}

/// The folder with the contents of a package, which is downloaded once.
fn package(cache: &Path, folder: &str, name: impl Fn() -> Result<String>) -> Result<PathBuf> {
    let place = cache.join(folder);
    if place.is_dir() {
        return Ok(place);
    }
    let without = || {
        format!(
            "uhyve needs a Linux to run in, and Debian's packages {KERNEL_PACKAGE} and {BUSYBOX_PACKAGE} for it cannot be had here: {KERNEL_VARIABLE}, {MODULES_VARIABLE} and {BUSYBOX_VARIABLE} can name a kernel, the folder of its modules and a static busybox"
        )
    };
    // Two of these at the same time must not meet, and half a package is none.
    let work = cache.join(format!("{folder}.{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let result = fetch(&work, &name).with_context(without);
    if result.is_ok() {
        // Whoever came first has the same.
        let _ = fs::rename(work.join("contents"), &place);
    }
    let _ = fs::remove_dir_all(&work);
    result?;
    Ok(place)
}

/// Downloads a package into `work` and unpacks it to `contents` there.
fn fetch(work: &Path, name: &impl Fn() -> Result<String>) -> Result<()> {
    let download = || -> Result<()> {
        let name = name()?;
        let mut command = Command::new("apt-get");
        command.args(["download", &name]).current_dir(work);
        run(command, &format!("downloading {name}, once"))
    };
    if download().is_err() {
        // A fresh machine has no lists of packages yet.
        let mut update = Command::new("apt-get");
        update.arg("update");
        run(update, "updating the lists of packages")?;
        download()?;
    }
    let package = fs::read_dir(work)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get has downloaded nothing")?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(package).arg(work.join("contents"));
    run(unpack, "unpacking it")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn an_uhyve_of_another_version_does_not_serve() {
        let host = FakeHost::default()
            .env("PATH", "/usr/bin")
            .env("HOME", "/home/u")
            .file("/usr/bin/uhyve")
            .file("/home/u/.cargo/bin/uhyve")
            .command("/usr/bin/uhyve --version", "uhyve 0.9.1\n")
            .command("/home/u/.cargo/bin/uhyve --version", "uhyve 0.10.4\n");
        let found = find_uhyve(&host, Path::new("/cache")).unwrap();
        assert_eq!(found, Path::new("/home/u/.cargo/bin/uhyve"));
        assert!(!serves("0.1.0") && !serves("0.100.0") && serves("0.10.0"));
    }

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

    #[test]
    fn modules_are_found_in_their_order() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/modules/6.1/kernel/deep");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(root.path().join("boot")).unwrap();
        fs::write(root.path().join("boot/vmlinuz-6.1"), "").unwrap();
        assert!(Linux::find(root.path()).unwrap().modules().is_err());
        for module in ["tun.ko", "kvm-amd.ko", "kvm.ko", "other.ko"] {
            fs::write(folder.join(module), "").unwrap();
        }
        let names: Vec<String> = Linux::find(root.path())
            .unwrap()
            .modules()
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["kvm.ko", "kvm-amd.ko", "tun.ko"]);
    }
}
