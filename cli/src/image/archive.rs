//! Looks into Hermit's `.tar.gz`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;

/// The configuration of an image.
pub(super) fn config(image: &Path) -> Result<toml::Table> {
    let name = image.display();
    let config = entry(image, "hermit.toml")?;
    std::str::from_utf8(&config)
        .with_context(|| format!("hermit.toml in {name} is no text"))?
        .parse()
        .with_context(|| format!("hermit.toml in {name} is not valid"))
}

/// A file in an archive.
pub(super) fn entry(image: &Path, path: &str) -> Result<Vec<u8>> {
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
    bail!("{} lacks {path}", image.display())
}
