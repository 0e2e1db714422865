//! `build`: makes an image and says where it is.

use anyhow::{Context, Result};
use clap::Args;

use crate::cli::AppOptions;
use crate::run::{Tool, build_image};

/// Options of `build`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ./dolmen build equake
  ./dolmen build path/to/project --bin solver --toolchain distro")]
pub struct Options {
    #[command(flatten)]
    app: AppOptions,
}

/// Builds the image and prints its path, alone on a line.
pub fn execute(tool: &Tool<'_>, options: &Options) -> Result<u8> {
    let app = options.app.resolve(tool)?;
    let builder = tool.builder()?;
    let (_, image) = build_image(&builder, &app)?;
    let size = std::fs::metadata(&image)
        .with_context(|| format!("cannot read {}", image.display()))?
        .len();
    eprintln!(
        "built with {} ({}), {} KiB:",
        builder.toolchain.description,
        builder.toolchain.origin,
        size.div_ceil(1024)
    );
    println!("{}", image.display());
    Ok(0)
}
