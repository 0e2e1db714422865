//! The machine the tool runs on, seen through one small trait.
//!
//! Everything that looks for programs goes through [`Host`], so that the searches can be tested with
//! machines that do not exist: other directories, other `PATH`s, other answers of `rustup`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a search may ask the machine.
pub trait Host {
    /// Whether `path` is a regular file (symbolic links followed).
    fn is_file(&self, path: &Path) -> bool;
    /// Whether `path` is a directory (symbolic links followed).
    fn is_dir(&self, path: &Path) -> bool;
    /// Whether `path` can be opened for reading and writing.
    fn can_open(&self, path: &Path) -> bool;
    /// An environment variable, if it is set and is valid text.
    fn env(&self, name: &str) -> Option<String>;
    /// Standard output of a command that ended well; `None` if it could not start or failed.
    fn output(&self, program: &Path, args: &[&str]) -> Option<String>;

    /// The first directory of `PATH` that holds `name`, joined with it.
    fn find_program(&self, name: &str) -> Option<PathBuf> {
        let path = self.env("PATH")?;
        std::env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|candidate| self.is_file(candidate))
    }
}

/// The machine itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealHost;

impl Host for RealHost {
    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn can_open(&self, path: &Path) -> bool {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).open(path).is_ok()
    }

    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
        let output = Command::new(program).args(args).output().ok()?;
        if !output.status.success() {
            return None;
        }
        String::from_utf8(output.stdout).ok()
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! A machine made of two tables.

    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A machine with exactly the files, variables and commands it was given.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct FakeHost {
        files: BTreeSet<PathBuf>,
        env: BTreeMap<String, String>,
        outputs: BTreeMap<String, String>,
    }

    impl FakeHost {
        pub(crate) fn file(mut self, path: &str) -> Self {
            self.files.insert(path.into());
            self
        }

        pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
            self.env.insert(name.into(), value.into());
            self
        }

        /// `command` is the program's path and its arguments, separated by single spaces.
        pub(crate) fn command(mut self, command: &str, output: &str) -> Self {
            self.outputs.insert(command.into(), output.into());
            self
        }
    }

    impl Host for FakeHost {
        fn is_file(&self, path: &Path) -> bool {
            self.files.contains(path)
        }

        fn is_dir(&self, path: &Path) -> bool {
            self.files
                .iter()
                .any(|file| file != path && file.starts_with(path))
        }

        fn can_open(&self, path: &Path) -> bool {
            self.is_file(path)
        }

        fn env(&self, name: &str) -> Option<String> {
            self.env.get(name).cloned()
        }

        fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
            let mut command = program.display().to_string();
            for arg in args {
                command.push(' ');
                command.push_str(arg);
            }
            self.outputs.get(&command).cloned()
        }
    }
}
