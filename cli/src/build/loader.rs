//! The loader that QEMU boots.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::Builder;
use super::cargo::CargoRun;

/// Builds the loader and gives its path.
pub fn build_loader(builder: &Builder) -> Result<PathBuf> {
    if !builder.workspace.has_crate("loader") {
        bail!("this checkout has no dolmen-loader (loader/): images cannot be booted from it");
    }
    CargoRun::for_image(builder, "build", "building the loader")
        .directory(builder.workspace.root())
        .args(["-p", "dolmen-loader", "--target", "x86_64-unknown-none"])
        .args([
            "-Zbuild-std=core,alloc",
            "-Zbuild-std-features=compiler-builtins-mem",
        ])
        .run("dolmen-loader")
}
