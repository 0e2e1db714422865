//! uhyve itself.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{cache, run};
use crate::host::Host;
use crate::run::Tool;

/// The version whose interface the runtime speaks.
pub const VERSION: &str = "0.10.0";

/// An installed uhyve of the right version: in `PATH`, in cargo's folder, or in the build directory.
pub fn find_uhyve(host: &dyn Host, cache: &Path) -> Option<PathBuf> {
    let home = host.env("HOME").map(PathBuf::from);
    let cargo = host
        .env("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(home?.join(".cargo")));
    [
        host.find_program("uhyve"),
        cargo.map(|cargo| cargo.join("bin/uhyve")),
        Some(cache.join("uhyve/bin/uhyve")),
    ]
    .into_iter()
    .flatten()
    .filter(|path| host.is_file(path))
    .find(|path| version(host, path).is_some_and(|version| serves(&version)))
}

/// The version that an uhyve says it has.
pub fn version(host: &dyn Host, path: &Path) -> Option<String> {
    let answer = host.output(path, &["--version"])?;
    Some(answer.trim().rsplit(' ').next()?.to_owned())
}

fn serves(version: &str) -> bool {
    let minor = VERSION.rsplit_once('.').map_or(VERSION, |(minor, _)| minor);
    version
        .strip_prefix(minor)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// uhyve itself, which is built if there is none.
pub(in crate::run::uhyve) fn uhyve(tool: &Tool<'_>) -> Result<PathBuf> {
    let cache = cache(tool);
    if let Some(path) = find_uhyve(tool.host, &cache) {
        return Ok(path);
    }
    let root = cache.join("uhyve");
    let mut command = tool.host_cargo_command()?;
    command
        .args([
            "install",
            "uhyve",
            "--locked",
            "--version",
            VERSION,
            "--root",
        ])
        .arg(&root)
        .arg("--target-dir")
        .arg(cache.join("build"));
    run(command, &format!("building uhyve {VERSION}, once"))?;
    // What it was built from is large and not needed again.
    let _ = fs::remove_dir_all(cache.join("build"));
    Ok(root.join("bin/uhyve"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn an_uhyve_of_another_version_does_not_serve() {
        let host = FakeHost::default()
            .env("PATH", "/usr/bin")
            .env("HOME", "/home/u")
            .file("/usr/bin/uhyve")
            .file("/home/u/.cargo/bin/uhyve")
            .command("/usr/bin/uhyve --version", "uhyve 0.9.1\n")
            .command("/home/u/.cargo/bin/uhyve --version", "uhyve 0.10.4\n");
        let found = find_uhyve(&host, Path::new("/cache")).unwrap();
        assert_eq!(found, Path::new("/home/u/.cargo/bin/uhyve"));
        assert!(!serves("0.1.0") && !serves("0.100.0") && serves("0.10.0"));
    }
}
