//! Images with the files that a run needs.

use std::path::Path;

use anyhow::{Context, Result};

use crate::image::{ImageKind, collect_files, pack};
use crate::spec::RunSpec;

/// Writes to `output` the image `file` with the files that the arguments name, and without what
/// would hide a mapped file; returns whether that was needed.
pub(super) fn packed(file: &Path, kind: ImageKind, spec: &RunSpec, output: &Path) -> Result<bool> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let files = collect_files(&here, &spec.files, &spec.args);
    // An image that is no archive has nothing that could hide a mapped file.
    let hides_nothing = spec.files.is_empty() || kind == ImageKind::Application;
    if files.is_empty() && hides_nothing {
        return Ok(false);
    }
    pack(file, kind, &files, &spec.files, output)?;
    Ok(true)
}
