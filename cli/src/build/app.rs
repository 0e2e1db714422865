//! Applications: any Cargo project with a binary.

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Finds the binary that `directory` and `--bin` mean, with the help of the given cargo.
pub fn resolve_project(cargo: &Path, directory: &Path, binary: Option<&str>) -> Result<Project> {
    let directory = directory
        .canonicalize()
        .with_context(|| format!("cannot open {}", directory.display()))?;
    let manifest = directory.join("Cargo.toml");
    if !manifest.is_file() {
        bail!(
            "{} is no Cargo project: it has no Cargo.toml",
            directory.display()
        );
    }
    let output = Command::new(cargo)
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
            None => bail!(
                "{} has several binaries: choose one with --bin ({list})",
                package.name
            ),
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
    CargoRun::for_image(builder, "rustc", &title)
        .directory(&project.directory)
        .args(["-p", &project.package, "--bin", &project.binary])
        .args([
            "--target",
            "x86_64-unknown-hermit",
            "-Zbuild-std=std,panic_abort",
        ])
        .arg("--")
        // The application's own part has what a debugger needs, whatever its profile says: functions,
        // lines and variables. It makes the file two per cent larger and changes no code.
        .arg("-Cdebuginfo=2")
        // Only the final link gets it, so the standard library is not built again for a new runtime.
        .arg(format!("-Clink-arg={}", library.display()))
        .run(&project.binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(binaries: &[&str], default_run: Option<&str>) -> Metadata {
        let target = |name: &str, kind: &str| Target {
            name: name.to_owned(),
            kind: vec![kind.to_owned()],
        };
        let mut targets = vec![target("lib", "lib"), target("check", "test")];
        targets.extend(binaries.iter().map(|name| target(name, "bin")));
        Metadata {
            packages: vec![Package {
                name: "p".to_owned(),
                manifest_path: "/p/Cargo.toml".into(),
                default_run: default_run.map(str::to_owned),
                targets,
            }],
        }
    }

    fn chosen(metadata: &Metadata, binary: Option<&str>) -> Result<String, String> {
        choose(metadata, Path::new("/p/Cargo.toml"), binary)
            .map(|project| project.binary)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_or_the_named_or_the_default_binary_is_chosen() {
        assert_eq!(chosen(&metadata(&["a"], None), None).unwrap(), "a");
        assert_eq!(
            chosen(&metadata(&["a", "b"], None), Some("b")).unwrap(),
            "b"
        );
        assert_eq!(
            chosen(&metadata(&["a", "b"], Some("b")), None).unwrap(),
            "b"
        );
    }

    #[test]
    fn doubt_is_resolved_by_a_sentence() {
        let several = chosen(&metadata(&["a", "b"], None), None).unwrap_err();
        assert!(several.contains("--bin (a, b)"), "{several}");
        let wrong = chosen(&metadata(&["a", "b"], None), Some("c")).unwrap_err();
        assert!(wrong.contains("it has a, b"), "{wrong}");
        assert!(
            chosen(&metadata(&[], None), None)
                .unwrap_err()
                .contains("no binary")
        );
        let virtual_workspace = choose(&metadata(&["a"], None), Path::new("/q/Cargo.toml"), None);
        assert!(
            virtual_workspace
                .unwrap_err()
                .to_string()
                .contains("/q is a workspace")
        );
    }
}
