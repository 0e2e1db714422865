//! Tells whether a file is an image, before a machine is started for it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};

/// The two forms of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A bare application.
    Application,
    /// Hermit's `.tar.gz`.
    Archive,
}

/// The note by which an application says that it enters by Hermit's protocol.
const ENTRY_NOTE: (&[u8], u32) = (b"HERMIT", 0x5a00);

/// Looks into an image and says what it is, or why it is none.
pub fn inspect(path: &Path) -> Result<ImageKind> {
    let data = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    match data.as_slice() {
        [0x7f, b'E', b'L', b'F', ..] => check_application(path, &data),
        [0x1f, 0x8b, ..] => check_archive(path),
        _ => bail!(
            "{} is no image: neither an ELF application nor a .tar.gz",
            path.display()
        ),
    }
}

fn check_application(path: &Path, data: &[u8]) -> Result<ImageKind> {
    let name = path.display();
    let Ok(file) = ElfFile64::<object::Endianness>::parse(data) else {
        bail!("{name} is damaged or not a 64-bit ELF file");
    };
    let header = file.elf_header();
    if header.e_machine(file.endian()) != elf::EM_X86_64 {
        bail!("{name} is not for x86-64");
    }
    let has_note = file.elf_program_headers().iter().any(|segment| {
        let Ok(Some(mut notes)) = segment.notes(file.endian(), data) else {
            return false;
        };
        std::iter::from_fn(|| notes.next().ok().flatten())
            .any(|note| (note.name(), note.n_type(file.endian())) == ENTRY_NOTE)
    });
    if !has_note {
        bail!(
            "{name} is an ELF file but no Dolmen or Hermit application: build it with ./dolmen build"
        );
    }
    Ok(ImageKind::Application)
}

fn check_archive(path: &Path) -> Result<ImageKind> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let damaged = || format!("{name} is a damaged .tar.gz");
    // All of it, because the checksum comes last.
    let mut unpacked = Vec::new();
    GzDecoder::new(file)
        .read_to_end(&mut unpacked)
        .with_context(damaged)?;
    let mut archive = tar::Archive::new(unpacked.as_slice());
    let mut config = None;
    let mut paths = Vec::new();
    for entry in archive.entries().with_context(damaged)? {
        let mut entry = entry.with_context(damaged)?;
        let entry_path = entry.path().with_context(damaged)?.into_owned();
        if entry_path == Path::new("hermit.toml") {
            let mut text = String::new();
            entry
                .read_to_string(&mut text)
                .with_context(|| format!("hermit.toml in {name} is no text"))?;
            config = Some(text);
        }
        paths.push(entry_path);
    }
    let Some(config) = config else {
        bail!("{name} is no Hermit image: it has no hermit.toml");
    };
    let config: toml::Table = config
        .parse()
        .with_context(|| format!("hermit.toml in {name} is not valid"))?;
    if config.get("version").and_then(toml::Value::as_str) != Some("1") {
        bail!("hermit.toml in {name} is not of version 1");
    }
    let Some(kernel) = config.get("kernel").and_then(toml::Value::as_str) else {
        bail!("hermit.toml in {name} names no kernel");
    };
    if !paths.iter().any(|p| p == Path::new(kernel)) {
        bail!("{name} lacks {kernel}, which its hermit.toml names as kernel");
    }
    Ok(ImageKind::Archive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::pack;

    #[test]
    fn what_is_no_image_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let error = |contents: &[u8]| {
            std::fs::write(&path, contents).unwrap();
            format!("{:#}", inspect(&path).unwrap_err())
        };
        assert!(error(b"").contains("is no image"));
        assert!(error(b"#!/bin/sh\n").contains("is no image"));
        assert!(error(b"\x7fELF\x02\x01\x01").contains("damaged"));
        assert!(error(b"\x1f\x8b\x08\x00garbage").contains("damaged .tar.gz"));
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(error(&own).contains("no Dolmen or Hermit application"));
        assert!(format!("{:#}", inspect(Path::new("/nowhere")).unwrap_err()).contains("/nowhere"));
    }

    #[test]
    fn a_packed_image_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let app = directory.path().join("app");
        let out = directory.path().join("out.tar.gz");
        std::fs::write(&app, "ELF").unwrap();
        pack(&app, ImageKind::Application, &[], &[], &out).unwrap();
        assert_eq!(inspect(&out).unwrap(), ImageKind::Archive);
        let mut cut = std::fs::read(&out).unwrap();
        cut.truncate(600);
        std::fs::write(&out, cut).unwrap();
        assert!(format!("{:#}", inspect(&out).unwrap_err()).contains("damaged"));
    }
}
