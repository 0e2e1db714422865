//! The search for a toolchain.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use super::{MINIMUM, Origin, Toolchain, Version, find_linker};
use crate::host::Host;

/// Which toolchain the user wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    /// The first that serves: rustup's active one, a rustup nightly, the distribution's.
    #[default]
    Any,
    /// Only rustup's.
    Rustup,
    /// Only the distribution's.
    Distribution,
    /// The one below this directory.
    Path(PathBuf),
}

impl Choice {
    /// Reads `rustup`, `distro` or a directory.
    pub fn parse(text: &str) -> Self {
        match text {
            "" | "auto" => Self::Any,
            "rustup" => Self::Rustup,
            "distro" => Self::Distribution,
            path => Self::Path(path.into()),
        }
    }
}

impl Choice {
    /// What [`Choice::parse`] reads as this choice.
    pub fn name(&self) -> &OsStr {
        match self {
            Self::Any => "auto".as_ref(),
            Self::Rustup => "rustup".as_ref(),
            Self::Distribution => "distro".as_ref(),
            Self::Path(path) => path.as_os_str(),
        }
    }
}

/// A toolchain that was found but does not serve, and what would help.
struct Unfit {
    reason: String,
    remedy: Option<String>,
}

/// Finds a compiler with its sources and a linker, or says in one sentence how to get one.
pub fn find(host: &dyn Host, choice: &Choice) -> Result<Toolchain> {
    let mut unfit = Vec::new();
    let mut search = |candidates: Vec<Candidate>| {
        candidates.into_iter().find_map(|candidate| {
            candidate
                .examine(host)
                .map_err(|reason| unfit.push(reason))
                .ok()
        })
    };
    let found = match choice {
        Choice::Any => search(rustup_candidates(host)).or_else(|| search(distribution(host))),
        Choice::Rustup => search(rustup_candidates(host)),
        Choice::Distribution => search(distribution(host)),
        Choice::Path(path) => {
            let sysroot = sysroot_of(path);
            if !host.is_dir(&sysroot) {
                bail!("there is no toolchain at {}", path.display());
            }
            search(vec![Candidate {
                origin: Origin::Path,
                rustc: sysroot.join("bin/rustc"),
                cargo: sysroot.join("bin/cargo"),
            }])
        }
    };
    found.ok_or_else(|| complaint(choice, &unfit))
}

/// `…/bin/rustc` and the directory above `bin` both name a toolchain.
fn sysroot_of(path: &Path) -> PathBuf {
    match path.parent().and_then(Path::parent) {
        Some(above) if path.ends_with("bin/rustc") => above.to_owned(),
        _ => path.to_owned(),
    }
}

fn complaint(choice: &Choice, unfit: &[Unfit]) -> anyhow::Error {
    let mut reasons: Vec<&str> = unfit.iter().map(|u| u.reason.as_str()).collect();
    let nothing = match choice {
        Choice::Rustup => "rustup is not installed",
        _ => "no Rust compiler was found",
    };
    if reasons.is_empty() {
        reasons.push(nothing);
    }
    let remedy = unfit
        .iter()
        .find_map(|u| u.remedy.as_deref())
        .filter(|_| *choice != Choice::Distribution)
        .map(|command| format!("`{command}`, or "))
        .unwrap_or_default();
    anyhow!(
        "no toolchain can build images: {}; install one with {remedy}on Debian and Ubuntu \
         `apt-get install rustc-web cargo-web rust-web-src lld`",
        reasons.join("; "),
    )
}

struct Candidate {
    origin: Origin,
    rustc: PathBuf,
    cargo: PathBuf,
}

impl Candidate {
    fn examine(self, host: &dyn Host) -> Result<Toolchain, Unfit> {
        let unfit = |reason: String| Unfit {
            reason,
            remedy: None,
        };
        let description = host
            .output(&self.rustc, &["--version"])
            .map(|text| text.trim().to_owned())
            .ok_or_else(|| unfit(format!("{} does not run", self.rustc.display())))?;
        let version = Version::parse(&description)
            .ok_or_else(|| unfit(format!("{} has no version", self.rustc.display())))?;
        if version < MINIMUM {
            return Err(unfit(format!(
                "{} is {version}, older than {MINIMUM}",
                self.rustc.display()
            )));
        }
        if !host.is_file(&self.cargo) {
            return Err(unfit(format!("{} is missing", self.cargo.display())));
        }
        let sysroot = host
            .output(&self.rustc, &["--print", "sysroot"])
            .map(|text| PathBuf::from(text.trim()))
            .ok_or_else(|| unfit(format!("{} names no sysroot", self.rustc.display())))?;
        let source = Toolchain::library_source(&sysroot);
        if !host.is_file(&source.join("std/Cargo.toml")) {
            let remedy = match &self.origin {
                Origin::Rustup(name) => {
                    Some(format!("rustup component add rust-src --toolchain {name}"))
                }
                Origin::Distribution | Origin::Path => None,
            };
            return Err(Unfit {
                reason: format!("{description} ({}) lacks its sources", self.origin),
                remedy,
            });
        }
        let linker = find_linker(host, &sysroot).ok_or_else(|| Unfit {
            reason: format!("{description} ({}) has no LLVM linker", self.origin),
            remedy: Some("apt-get install lld".to_owned()),
        })?;
        Ok(Toolchain {
            origin: self.origin,
            version,
            description,
            rustc: self.rustc,
            cargo: self.cargo,
            sysroot,
            linker,
        })
    }
}

/// rustup's active toolchain, then its nightlies.
fn rustup_candidates(host: &dyn Host) -> Vec<Candidate> {
    let Some(rustup) = find_rustup(host) else {
        return Vec::new();
    };
    let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let active = host
        .output(&rustup, &["show", "active-toolchain"])
        .and_then(|answer| first_word(&answer));
    let listed = host
        .output(&rustup, &["toolchain", "list"])
        .unwrap_or_default();
    let nightlies = listed
        .lines()
        .filter(|line| line.starts_with("nightly"))
        .filter_map(first_word)
        .filter(|name| active.as_ref() != Some(name));
    active
        .iter()
        .cloned()
        .chain(nightlies)
        .filter_map(|name| {
            let answer = host.output(&rustup, &["run", &name, "rustc", "--print", "sysroot"])?;
            let sysroot = PathBuf::from(answer.trim());
            Some(Candidate {
                origin: Origin::Rustup(name),
                rustc: sysroot.join("bin/rustc"),
                cargo: sysroot.join("bin/cargo"),
            })
        })
        .collect()
}

/// rustup in `PATH`, or where its installer puts it: a shell opened before may not know it yet.
fn find_rustup(host: &dyn Host) -> Option<PathBuf> {
    host.find_program("rustup").or_else(|| {
        let home = host
            .env("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| host.env("HOME").map(|home| Path::new(&home).join(".cargo")))?;
        let candidate = home.join("bin/rustup");
        host.is_file(&candidate).then_some(candidate)
    })
}

/// Compilers in `PATH` that are not rustup's proxies.
fn distribution(host: &dyn Host) -> Vec<Candidate> {
    let path = host.env("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for usual in ["/usr/bin", "/usr/local/bin"] {
        if !directories.iter().any(|d| d == Path::new(usual)) {
            directories.push(usual.into());
        }
    }
    directories
        .into_iter()
        .filter(|directory| host.is_file(&directory.join("rustc")))
        .filter(|directory| !host.is_file(&directory.join("rustup")))
        .map(|directory| Candidate {
            origin: Origin::Distribution,
            rustc: directory.join("rustc"),
            cargo: directory.join("cargo"),
        })
        .collect()
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
