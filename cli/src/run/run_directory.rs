//! A place for the files of one run.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// A directory of one run, gone with this value.
pub(super) struct RunDirectory {
    pub(super) path: PathBuf,
}

impl RunDirectory {
    /// Makes one among the temporary files.
    pub(super) fn new() -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = std::env::temp_dir().join(format!(
            "dolmen-run-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // A leftover in the directory for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
