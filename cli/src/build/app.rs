//! Applications: any Cargo project with a binary.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::cargo::CargoRun;
use super::{Builder, build_kernel};

/// A binary of a Cargo package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The directory of the package's manifest.
    pub directory: PathBuf,
    /// The package.
    pub package: String,
    /// The binary.
    pub binary: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    default_run: Option<String>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Finds the binary that `directory` and `--bin` mean.
pub fn resolve_project(
    builder: &Builder,
    directory: &Path,
    binary: Option<&str>,
) -> Result<Project> {
    let directory = directory
        .canonicalize()
        .with_context(|| format!("cannot open {}", directory.display()))?;
    let manifest = directory.join("Cargo.toml");
    if !manifest.is_file() {
        bail!("{} is no Cargo project: it has no Cargo.toml", directory.display());
    }
    let output = builder
        .toolchain
        .cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(&directory)
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!(
            "cargo does not understand {}: {}",
            manifest.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo's metadata has an unknown form")?;
    choose(&metadata, &manifest, binary)
}

fn choose(metadata: &Metadata, manifest: &Path, binary: Option<&str>) -> Result<Project> {
    let directory = manifest.parent().unwrap_or(manifest).to_owned();
    let Some(package) = metadata
        .packages
        .iter()
        .find(|p| p.manifest_path == manifest)
    else {
        bail!(
            "{} is a workspace without a package of its own: name the folder of one of its packages",
            directory.display()
        );
    };
    let binaries: Vec<&str> = package
        .targets
        .iter()
        .filter(|t| t.kind.iter().any(|k| k == "bin"))
        .map(|t| t.name.as_str())
        .collect();
    let list = binaries.join(", ");
    let chosen = match (binary, binaries.as_slice()) {
        (Some(name), _) if binaries.contains(&name) => name,
        (Some(name), []) => bail!("{} has no binary, so not {name}", package.name),
        (Some(name), _) => bail!("{} has no binary {name}; it has {list}", package.name),
        (None, []) => bail!("{} has no binary to run", package.name),
        (None, [only]) => only,
        (None, _) => match &package.default_run {
            Some(name) => name,
            None => bail!("{} has several binaries: choose one with --bin ({list})", package.name),
        },
    };
    Ok(Project {
        directory,
        package: package.name.clone(),
        binary: chosen.to_owned(),
    })
}

/// Builds the project against the runtime and gives the image.
pub fn build_app(builder: &Builder, project: &Project) -> Result<PathBuf> {
    let library = build_kernel(builder)?;
    let title = format!("building {}", project.binary);
    CargoRun::new(builder, "rustc", &title)
        .directory(&project.directory)
        .args(["-p", &project.package, "--bin", &project.binary])
        .args(["--target", "x86_64-unknown-hermit", "-Zbuild-std=std,panic_abort"])
        .arg("--")
        // Only the final link gets it, so the standard library is not built again for a new runtime.
        .arg(format!("-Clink-arg={}", library.display()))
        .run(&project.binary)
}
