//! How an image is made.
//!
//! ```text
//! dolmen-runtime  ──cargo──> staticlib ──link, localise──> runtime.o  ┐
//! dolmen-builtins ──cargo──> staticlib ──link, localise──> builtins.o ┴─> libhermit.a
//! application     ──cargo, real std, final link with libhermit.a──> the image
//! dolmen-loader   ──cargo──> what QEMU's -kernel boots
//! ```
//!
//! The kernel is compiled for a target without vector registers, the application for one with them:
//! two copies of `core` meet in one program. [`localise`] is what keeps them apart.

mod app;
mod archive;
mod cargo;
mod kernel;
mod loader;
mod localise;

pub use app::{Project, build_app, resolve_project};
pub use cargo::CargoRun;
pub use kernel::build_kernel;
pub use loader::build_loader;

use std::path::PathBuf;

use crate::toolchain::Toolchain;
use crate::workspace::Workspace;

/// Everything a build needs to know.
#[derive(Debug, Clone)]
pub struct Builder {
    /// Dolmen's checkout.
    pub workspace: Workspace,
    /// The compiler to use.
    pub toolchain: Toolchain,
    /// Whether cargo's own output is shown as it comes.
    pub verbose: bool,
}

impl Builder {
    /// The directory for everything this toolchain builds for images.
    pub fn target_dir(&self) -> PathBuf {
        self.workspace
            .image_target()
            .join(self.toolchain.directory_name())
    }
}
