//! The compiler that builds images.
//!
//! Images need `core` for `x86_64-unknown-none` and `std` for `x86_64-unknown-hermit`, both built
//! from source: a compiler serves only together with its `rust-src`. A stable one is enough, with
//! `RUSTC_BOOTSTRAP=1`.

mod find;
mod linker;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use find::{Choice, find};
pub use linker::{Linker, find_linker};

/// The oldest compiler that builds Dolmen.
pub const MINIMUM: Version = Version {
    major: 1,
    minor: 95,
};

/// A compiler's release, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// `1` of `1.95.0`.
    pub major: u32,
    /// `95` of `1.95.0`.
    pub minor: u32,
}

impl Version {
    /// Reads the answer of `rustc --version`: `rustc 1.95.0 (…)`.
    pub fn parse(answer: &str) -> Option<Self> {
        let number = answer.split_whitespace().nth(1)?;
        let mut parts = number.split(['.', '-']);
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Where a toolchain comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A rustup toolchain of this name.
    Rustup(String),
    /// The distribution's packages.
    Distribution,
    /// A directory the user named.
    Path,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rustup(name) => write!(f, "rustup {name}"),
            Self::Distribution => f.write_str("the distribution"),
            Self::Path => f.write_str("a given path"),
        }
    }
}

/// A compiler with its sources and a linker: all that an image needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Where it was found.
    pub origin: Origin,
    /// Its release.
    pub version: Version,
    /// The whole answer of `rustc --version`.
    pub description: String,
    /// The compiler.
    pub rustc: PathBuf,
    /// Cargo of the same release.
    pub cargo: PathBuf,
    /// The directory that holds `lib/rustlib`.
    pub sysroot: PathBuf,
    /// LLVM's linker.
    pub linker: Linker,
}

impl Toolchain {
    /// The standard library's sources below a sysroot.
    pub fn library_source(sysroot: &Path) -> PathBuf {
        sysroot.join("lib/rustlib/src/rust/library")
    }

    /// A short name for directories: builds of different compilers never share one.
    pub fn directory_name(&self) -> String {
        let origin = match &self.origin {
            Origin::Rustup(name) => name.split('-').next().unwrap_or("rustup").to_owned(),
            Origin::Distribution => "distro".to_owned(),
            Origin::Path => "path".to_owned(),
        };
        format!("{origin}-{}", self.version)
    }

    /// A Cargo command that uses this compiler and nothing of the surrounding session.
    ///
    /// `RUSTC` is named because a toolchain's own `cargo` would otherwise take `rustc` from `PATH`,
    /// which with rustup may be another release.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(&self.cargo);
        command
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("RUSTC_WRAPPER")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env_remove("CARGO_BUILD_TARGET")
            .env_remove("RUSTFLAGS")
            // Set and empty: no flag of the user's own configuration reaches kernel code, whose
            // target must stay without vector registers.
            .env("CARGO_ENCODED_RUSTFLAGS", "");
        for target in ["X86_64_UNKNOWN_NONE", "X86_64_UNKNOWN_HERMIT"] {
            command.env(
                format!("CARGO_TARGET_{target}_LINKER"),
                &self.linker.program,
            );
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        let stable = Version::parse("rustc 1.95.0 (59807616e 2026-04-14)").unwrap();
        let nightly = Version::parse("rustc 1.97.0-nightly (e50aa6fba 2026-05-19)").unwrap();
        assert_eq!(
            stable,
            Version {
                major: 1,
                minor: 95
            }
        );
        assert!(nightly > stable);
        assert!(Version::parse("rustc 1.63.0").unwrap() < MINIMUM);
        assert_eq!(Version::parse("rustc"), None);
        assert_eq!(Version::parse("rustc one.two"), None);
    }
}
