//! Where Dolmen's own sources and the results of its builds are.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::host::Host;

/// The checkout the tool works in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The checkout named by `DOLMEN_ROOT` (the `dolmen` script sets it), or else the one the tool
    /// was built from.
    pub fn locate(host: &dyn Host) -> Result<Self> {
        let root = host.env("DOLMEN_ROOT").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
            PathBuf::from,
        );
        let root = root.canonicalize().unwrap_or(root);
        if !host.is_file(&root.join("Cargo.toml")) {
            bail!(
                "Dolmen's sources are not at {}: start the tool as ./dolmen in its checkout",
                root.display()
            );
        }
        Ok(Self { root })
    }

    /// The directory of the checkout.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the checkout holds a crate in this folder.
    pub fn has_crate(&self, folder: &str) -> bool {
        self.root.join(folder).join("Cargo.toml").is_file()
    }

    /// Where everything that belongs to images is built: apart from the host's own builds, so that
    /// neither evicts the other.
    pub fn image_target(&self) -> PathBuf {
        let base = std::env::var_os("DOLMEN_TARGET_DIR")
            .map_or_else(|| self.root.join("target/dolmen"), PathBuf::from);
        if base.is_absolute() {
            base
        } else {
            self.root.join(base)
        }
    }
}
