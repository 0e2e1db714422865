//! The application in an image.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{ImageKind, archive};

/// The ELF file that runs when `image` is booted: the image itself, or what its archive names as
/// kernel, which is then written to `copy`.
pub fn application(image: &Path, kind: ImageKind, copy: &Path) -> Result<PathBuf> {
    if kind == ImageKind::Application {
        return Ok(image.to_owned());
    }
    let config = archive::config(image)?;
    let kernel = config
        .get("kernel")
        .and_then(toml::Value::as_str)
        .with_context(|| format!("hermit.toml in {} names no kernel", image.display()))?;
    let contents = archive::entry(image, kernel)?;
    std::fs::write(copy, contents).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy.to_owned())
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
        let error = archive::entry(&path("image"), "absent").unwrap_err();
        assert!(error.to_string().ends_with("lacks absent"));
    }
}
