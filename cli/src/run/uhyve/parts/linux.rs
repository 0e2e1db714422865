//! The kernel and the programs of the small Linux, as Debian packages them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{BUSYBOX_VARIABLE, KERNEL_VARIABLE, MODULES_VARIABLE, run};

/// The package that depends on the newest kernel for virtual machines.
pub(super) const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
pub(super) const BUSYBOX_PACKAGE: &str = "busybox-static";

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

/// A kernel and the folder of its modules.
pub(super) struct Linux {
    pub(super) kernel: PathBuf,
    pub(super) modules: PathBuf,
}

impl Linux {
    /// The kernel in an unpacked package.
    pub(super) fn find(root: &Path) -> Result<Self> {
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
    pub(super) fn modules(&self) -> Result<Vec<PathBuf>> {
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
pub(super) fn kernel_package() -> Result<String> {
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
pub(super) fn package(
    cache: &Path,
    folder: &str,
    name: impl Fn() -> Result<String>,
) -> Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
