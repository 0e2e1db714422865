//! The application in an image.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;

use super::ImageKind;

/// The ELF file that runs when `image` is booted: the image itself, or what its archive names as
/// kernel, which is then written to `copy`.
pub fn application(image: &Path, kind: ImageKind, copy: &Path) -> Result<PathBuf> {
    if kind == ImageKind::Application {
        return Ok(image.to_owned());
    }
    let name = image.display();
    let config = entry(image, "hermit.toml")?;
    let config: toml::Table = std::str::from_utf8(&config)
        .with_context(|| format!("hermit.toml in {name} is no text"))?
        .parse()
        .with_context(|| format!("hermit.toml in {name} is not valid"))?;
    let kernel = config
        .get("kernel")
        .and_then(toml::Value::as_str)
        .with_context(|| format!("hermit.toml in {name} names no kernel"))?;
    let contents = entry(image, kernel)?;
    std::fs::write(copy, contents).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy.to_owned())
}

/// A file in an archive.
fn entry(image: &Path, path: &str) -> Result<Vec<u8>> {
    let damaged = || format!("{} is damaged", image.display());
    let file = File::open(image).with_context(|| format!("cannot open {}", image.display()))?;
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    for entry in archive.entries().with_context(damaged)? {
        let mut entry = entry.with_context(damaged)?;
        if *entry.path().with_context(damaged)? == *Path::new(path) {
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).with_context(damaged)?;
            return Ok(contents);
        }
    }
    anyhow::bail!("{} lacks {path}", image.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::pack;

    #[test]
    fn the_application_is_taken_out_of_an_archive() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("app"), "ELF").unwrap();
        let itself = application(&path("app"), ImageKind::Application, &path("copy")).unwrap();
        assert_eq!(itself, path("app"));
        pack(
            &path("app"),
            ImageKind::Application,
            &[],
            &[],
            &path("image"),
        )
        .unwrap();
        let copy = application(&path("image"), ImageKind::Archive, &path("copy")).unwrap();
        assert_eq!(std::fs::read(copy).unwrap(), b"ELF");
        let error = entry(&path("image"), "absent").unwrap_err();
        assert!(error.to_string().ends_with("lacks absent"));
    }
}
