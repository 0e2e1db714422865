//! Files of the host on an emulated machine: folders shared over 9P, and where the kernel is to
//! show them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::image::FileMapping;

/// The most folders: each is a device in one of the 30 free slots of the machine's bus.
const MOST: usize = 30;
/// The model of the device.
const DEVICE: &str = "virtio-9p-pci";

/// What a run shares.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Folders of the host, each once. Their numbers are in their tags.
    folders: Vec<PathBuf>,
    /// Words for the kernel.
    pub(super) words: Vec<String>,
}

impl Shares {
    /// What `files` need. A single file is shared with its folder, of which the kernel shows
    /// nothing else.
    pub(super) fn new(files: &[FileMapping]) -> Result<Self> {
        let mut shares = Self::default();
        for (number, mapping) in files.iter().enumerate() {
            let twin = files[..number].iter().find(|f| f.guest == mapping.guest);
            if twin.is_some_and(|twin| twin.host != mapping.host) {
                bail!("two different files are both to be /{}", mapping.guest);
            }
            let place = mapping.place()?;
            let known = shares.folders.iter().position(|f| *f == place.folder);
            let number = known.unwrap_or_else(|| {
                shares.folders.push(place.folder.clone());
                shares.folders.len() - 1
            });
            let mut word = format!("mount={}:/{}", tag(number), escaped(&mapping.guest));
            if let Some(file) = &place.file {
                word.push(':');
                word.push_str(&escaped(plain(file)?));
            }
            shares.words.push(word);
        }
        if shares.folders.len() > MOST {
            bail!(
                "files of {} folders are to be seen; QEMU's machine has room for {MOST}",
                shares.folders.len()
            );
        }
        Ok(shares)
    }

    /// QEMU's options for the devices.
    pub(super) fn arguments(&self) -> Result<Vec<String>> {
        let mut arguments = Vec::new();
        for (number, folder) in self.folders.iter().enumerate() {
            let tag = tag(number);
            // A comma ends a value unless it is doubled.
            let path = plain(folder)?.replace(',', ",,");
            arguments.extend([
                "-fsdev".to_owned(),
                format!("local,id={tag},path={path},security_model=none,multidevs=remap"),
                "-device".to_owned(),
                format!("{DEVICE},fsdev={tag},mount_tag={tag}"),
            ]);
        }
        Ok(arguments)
    }

    /// Fails if anything is shared and this QEMU cannot.
    pub(super) fn check(&self, qemu: &Path) -> Result<()> {
        if self.folders.is_empty() {
            return Ok(());
        }
        let output = Command::new(qemu)
            .args(["-device", "help"])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", qemu.display()))?;
        if !String::from_utf8_lossy(&output.stdout).contains(DEVICE) {
            bail!(
                "{} has no {DEVICE} device, which files of the host need",
                qemu.display()
            );
        }
        Ok(())
    }
}

fn tag(number: usize) -> String {
    format!("dolmen{number}")
}

/// A part of a boot argument whose parts are separated by colons.
fn escaped(part: &str) -> String {
    part.replace('\\', "\\\\").replace(':', "\\:")
}

fn plain(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("the name of {} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_is_one_device() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a,b")).unwrap();
        let mapping = |host: &str, guest: &str| FileMapping {
            host: root.join(host),
            guest: guest.to_owned(),
        };
        let shares = Shares::new(&[
            mapping("a,b", "data"),
            mapping("new:1", "in/of test"),
            mapping("a,b/\\", "x"),
        ])
        .unwrap();
        assert_eq!(
            shares.words,
            [
                r"mount=dolmen0:/data",
                r"mount=dolmen1:/in/of test:new\:1",
                r"mount=dolmen0:/x:\\",
            ]
        );
        let arguments = shares.arguments().unwrap();
        assert_eq!(arguments.len(), 8);
        let path = root.display().to_string();
        assert_eq!(
            arguments[1],
            format!("local,id=dolmen0,path={path}/a,,b,security_model=none,multidevs=remap")
        );
        assert_eq!(
            arguments[3],
            "virtio-9p-pci,fsdev=dolmen0,mount_tag=dolmen0"
        );
        assert!(Shares::new(&[]).unwrap().arguments().unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = |files: &[FileMapping]| Shares::new(files).unwrap_err().to_string();
        let mapping = |host: &str, guest: &str| FileMapping {
            host: directory.path().join(host),
            guest: guest.to_owned(),
        };
        assert!(error(&[mapping("a", "x"), mapping("b", "x")]).contains("/x"));
        assert!(Shares::new(&[mapping("a", "x"), mapping("a", "x")]).is_ok());
        assert!(error(&[mapping("none/a", "x")]).contains("there is no folder"));
        let many: Vec<FileMapping> = (0..31)
            .map(|n| {
                std::fs::create_dir(directory.path().join(n.to_string())).unwrap();
                mapping(&n.to_string(), &n.to_string())
            })
            .collect();
        assert!(error(&many).contains("31 folders"));
        assert!(Shares::new(&many[..MOST]).is_ok());
        let shares = Shares::new(&many[..1]).unwrap();
        let error = shares.check(Path::new("/bin/true")).unwrap_err();
        assert!(error.to_string().contains("/bin/true has no virtio-9p-pci"));
    }
}
