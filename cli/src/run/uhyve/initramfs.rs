//! The first file system of the small Linux: the programs, what they need, and nothing else.
//!
//! The format is cpio's "newc", written by the crate `cpio` (MIT, stable, no dependencies), so that
//! no tool of the host is needed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use cpio::newc::{self, Builder, ModeFileType};

use super::parts::Parts;

/// The first process.
const INIT: &str = include_str!("init.sh");

/// Writes the archive.
pub(super) fn write(parts: &Parts, out: &mut impl Write) -> Result<()> {
    let mut archive = Archive {
        out,
        directories: BTreeSet::new(),
        files: 0,
    };
    archive.file("init", INIT.as_bytes())?;
    archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")?;
    archive.file("etc/group", b"root:x:0:\n")?;
    archive.copy("bin/busybox", &parts.busybox)?;
    archive.copy("bin/uhyve", &parts.uhyve)?;
    for library in &parts.libraries {
        archive.copy(&library.display().to_string(), library)?;
    }
    let mut order = String::new();
    for module in &parts.modules {
        let name = module.file_name().unwrap_or_default().display().to_string();
        archive.copy(&format!("modules/{name}"), module)?;
        order.push_str(&name);
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes())?;
    newc::trailer(archive.out)?;
    Ok(())
}

struct Archive<'a, W> {
    out: &'a mut W,
    directories: BTreeSet<String>,
    files: u32,
}

impl<W: Write> Archive<'_, W> {
    fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        let contents = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(path, &contents)
    }

    /// An executable file, with the directories above it.
    fn file(&mut self, path: &str, contents: &[u8]) -> Result<()> {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            if self.directories.insert(path[..end].to_owned()) {
                self.entry(&path[..end], ModeFileType::Directory, &[])?;
            }
        }
        self.entry(path, ModeFileType::Regular, contents)
    }

    fn entry(&mut self, path: &str, kind: ModeFileType, contents: &[u8]) -> Result<()> {
        self.files += 1;
        let size = u32::try_from(contents.len())
            .with_context(|| format!("{path} is too large for the first file system"))?;
        let mut writer = Builder::new(path)
            .ino(self.files)
            .mode(0o755)
            .set_mode_file_type(kind)
            .write(&mut *self.out, size);
        writer.write_all(contents)?;
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn everything_is_in_the_archive_behind_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, name).unwrap();
            path
        };
        let parts = Parts {
            uhyve: file("u"),
            kernel: file("k"),
            busybox: file("b"),
            modules: vec![file("second.ko"), file("first.ko")],
            libraries: vec![file("libc.so")],
        };
        let mut bytes = Vec::new();
        write(&parts, &mut bytes).unwrap();
        let mut entries = Vec::new();
        let mut rest = bytes.as_slice();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let name = reader.entry().name().to_owned();
            let mut contents = String::new();
            reader.read_to_string(&mut contents).unwrap();
            entries.push((name, contents));
            rest = reader.finish().unwrap();
        }
        let at = |name: &str| entries.iter().position(|(n, _)| n == name).unwrap();
        assert!(at("bin") < at("bin/uhyve") && at("modules") < at("modules/first.ko"));
        assert_eq!(entries[at("bin/busybox")].1, "b");
        assert_eq!(entries[at("modules/order")].1, "second.ko\nfirst.ko\n");
        let library = parts.libraries[0].display().to_string();
        assert_eq!(entries[at(&library[1..])].1, "libc.so");
    }
}
