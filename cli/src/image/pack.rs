//! Packs an application and files into Hermit's image format.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::{FileMapping, ImageKind};

const CONFIG: &str = "hermit.toml";
const KERNEL: &str = ".dolmen/application";

/// Writes to `output` an image that holds everything of `base` and `files` besides. What `base` has
/// in the places of `mapped` is left out, since the image's own files hide the host's.
///
/// The archive is stored, not compressed: an emulated machine unpacks it, and is slow at that.
pub fn pack(
    base: &Path,
    kind: ImageKind,
    files: &[FileMapping],
    mapped: &[FileMapping],
    output: &Path,
) -> Result<()> {
    let cannot = || format!("cannot write {}", output.display());
    let file = File::create(output).with_context(cannot)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::none()));
    match kind {
        ImageKind::Application => {
            let config = format!(
                "version = \"1\"\nkernel = \"{KERNEL}\"\n\n[input]\nkernel_args = []\napp_args = []\nenv_vars = []\n"
            );
            append(&mut archive, CONFIG, config.as_bytes())?;
            let application =
                std::fs::read(base).with_context(|| format!("cannot read {}", base.display()))?;
            append(&mut archive, KERNEL, &application)?;
        }
        ImageKind::Archive => {
            let replaced = |guest: &str| {
                files.iter().any(|file| file.guest == guest)
                    || mapped.iter().any(|mapping| mapping.holds(guest))
            };
            copy(&mut archive, base, replaced)?;
        }
    }
    for file in files.iter().chain(mapped) {
        if file.holds(CONFIG) || file.holds(KERNEL) {
            bail!(
                "a file cannot be put at /{}: the image needs it",
                file.guest
            );
        }
    }
    for file in files {
        let contents = std::fs::read(&file.host)
            .with_context(|| format!("cannot read {}", file.host.display()))?;
        append(&mut archive, &file.guest, &contents)?;
    }
    archive
        .into_inner()
        .and_then(GzEncoder::finish)
        .and_then(|mut file| file.flush())
        .with_context(cannot)
}

/// Copies the entries of an archive, except those that are replaced.
fn copy(
    archive: &mut tar::Builder<impl Write>,
    base: &Path,
    replaced: impl Fn(&str) -> bool,
) -> Result<()> {
    let damaged = || format!("{} is damaged", base.display());
    let file = File::open(base).with_context(|| format!("cannot open {}", base.display()))?;
    let mut source = tar::Archive::new(GzDecoder::new(file));
    for entry in source.entries().with_context(damaged)? {
        let mut entry = entry.with_context(damaged)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path().with_context(damaged)?.into_owned();
        let Some(guest) = super::guest_path(&path) else {
            continue;
        };
        if replaced(&guest) {
            continue;
        }
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).with_context(damaged)?;
        append(archive, &guest, &contents)?;
    }
    Ok(())
}

/// One entry, the same for the same contents whoever packs it and when.
fn append(archive: &mut tar::Builder<impl Write>, path: &str, contents: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header
        .set_path(path)
        .with_context(|| format!("the path {path} is too long for an image"))?;
    header.set_size(contents.len() as u64);
    header.set_mode(0o444);
    header.set_mtime(0);
    header.set_cksum();
    archive
        .append(&header, contents)
        .with_context(|| format!("cannot pack {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
        archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut data = Vec::new();
                entry.read_to_end(&mut data).unwrap();
                (entry.path().unwrap().display().to_string(), data)
            })
            .collect()
    }

    #[test]
    fn an_application_is_packed_with_its_files_and_repacked() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("app"), "ELF").unwrap();
        std::fs::write(path("data"), "first").unwrap();
        std::fs::write(path("other"), "second").unwrap();
        let file = |host: &str, guest: &str| FileMapping {
            host: path(host),
            guest: guest.to_owned(),
        };
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
        pack(
            &path("app"),
            ImageKind::Application,
            &[file("data", "in/data"), file("other", &long)],
            &[],
            &path("one"),
        )
        .unwrap();
        let one = contents(&path("one"));
        assert_eq!(one[KERNEL], b"ELF");
        assert_eq!(one["in/data"], b"first");
        assert_eq!(one[&long], b"second");
        let config: toml::Table = std::str::from_utf8(&one[CONFIG]).unwrap().parse().unwrap();
        assert_eq!(config["version"].as_str(), Some("1"));
        assert_eq!(config["kernel"].as_str(), Some(KERNEL));
        assert!(
            config["input"]["kernel_args"]
                .as_array()
                .unwrap()
                .is_empty()
        );

        pack(
            &path("one"),
            ImageKind::Archive,
            &[file("other", "in/data")],
            &[],
            &path("two"),
        )
        .unwrap();
        let two = contents(&path("two"));
        assert_eq!(two.len(), 4);
        assert_eq!(two["in/data"], b"second");

        let mapped = [file("data", "in")];
        pack(
            &path("one"),
            ImageKind::Archive,
            &[],
            &mapped,
            &path("three"),
        )
        .unwrap();
        let three = contents(&path("three"));
        assert_eq!(three.len(), 3);
        assert!(!three.contains_key("in/data"));
    }

    #[test]
    fn the_images_own_files_cannot_be_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let app = directory.path().join("app");
        std::fs::write(&app, "ELF").unwrap();
        let out = directory.path().join("out");
        let refused = |guest: &str, mapped: bool| {
            let file = [FileMapping {
                host: app.clone(),
                guest: guest.to_owned(),
            }];
            let (files, mapped) = if mapped {
                (&[][..], &file[..])
            } else {
                (&file[..], &[][..])
            };
            let error = pack(&app, ImageKind::Application, files, mapped, &out);
            error.unwrap_err().to_string()
        };
        assert!(refused(CONFIG, false).contains("/hermit.toml"));
        assert!(refused(".dolmen", true).contains("/.dolmen"));
    }
}
