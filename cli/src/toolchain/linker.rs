//! The linker: LLVM's, because it alone comes with every toolchain and links bare ELF images.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host::Host;

/// LLVM's linker under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linker {
    /// The executable.
    pub program: PathBuf,
}

impl Linker {
    /// A command that links ELF, whatever name the program goes by: `rust-lld` has to be told.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        let generic = self
            .program
            .file_name()
            .is_some_and(|name| name == "rust-lld" || name == "lld");
        if generic {
            command.args(["-flavor", "gnu"]);
        }
        command
    }
}

/// Looks for the linker: the toolchain's own first, then the distribution's.
pub fn find_linker(host: &dyn Host, sysroot: &Path) -> Option<Linker> {
    let own = sysroot.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
    if host.is_file(&own) {
        return Some(Linker { program: own });
    }
    ["rust-lld", "ld.lld"]
        .iter()
        .find_map(|name| host.find_program(name))
        .or_else(|| versioned(host))
        .map(|program| Linker { program })
}

/// Debian's `lld-N` packages install `ld.lld-N` without the plain name.
fn versioned(host: &dyn Host) -> Option<PathBuf> {
    (14..=40)
        .rev()
        .find_map(|version| host.find_program(&format!("ld.lld-{version}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn program(host: &FakeHost) -> Option<String> {
        find_linker(host, Path::new("/tc")).map(|l| l.program.display().to_string())
    }

    #[test]
    fn the_toolchains_own_linker_comes_first() {
        let host = FakeHost::default()
            .env("PATH", "/usr/bin")
            .file("/usr/bin/ld.lld")
            .file("/tc/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
        assert!(program(&host).unwrap().ends_with("rust-lld"));
    }

    #[test]
    fn versioned_linkers_are_a_last_resort() {
        let host = FakeHost::default()
            .env("PATH", "/bin:/usr/bin")
            .file("/usr/bin/ld.lld-14")
            .file("/usr/bin/ld.lld-19");
        assert_eq!(program(&host).unwrap(), "/usr/bin/ld.lld-19");
        assert_eq!(
            program(&host.file("/usr/bin/ld.lld")).unwrap(),
            "/usr/bin/ld.lld"
        );
        assert_eq!(program(&FakeHost::default().env("PATH", "/bin")), None);
    }

    #[test]
    fn the_generic_driver_is_told_its_flavour() {
        let generic = Linker {
            program: "/usr/bin/rust-lld".into(),
        };
        let plain = Linker {
            program: "/usr/bin/ld.lld-14".into(),
        };
        assert_eq!(generic.command().get_args().count(), 2);
        assert_eq!(plain.command().get_args().count(), 0);
    }
}
