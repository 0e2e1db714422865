//! uhyve's own arguments.

use std::path::PathBuf;

use crate::spec::{MIB, RunSpec};

/// uhyve wants whole huge pages of memory.
const MEMORY_STEP: u64 = 2 * MIB;

/// What uhyve is to run.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    pub(super) spec: &'a RunSpec,
    /// The image, where uhyve finds it.
    pub(super) image: PathBuf,
    /// Whether it is an archive of files, which the guest is to unpack itself.
    pub(super) archive: bool,
    /// Files and folders where uhyve finds them, and the paths under which the guest does.
    pub(super) files: Vec<(PathBuf, String)>,
    /// The kernel's words and the application's arguments.
    pub(super) kernel: Vec<String>,
    pub(super) application: Vec<String>,
    /// Where uhyve waits for a debugger before the first instruction.
    pub(super) gdb_port: Option<u16>,
}

/// The memory that uhyve gives: what was asked for, rounded up.
pub(super) fn memory(spec: &RunSpec) -> u64 {
    spec.memory().next_multiple_of(MEMORY_STEP)
}

impl Guest<'_> {
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut args = Vec::new();
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        option("--memory-size", format!("{}MiB", memory(self.spec) / MIB));
        option("--cpu-count", self.spec.cpus.to_string());
        // uhyve puts an archive's own variables behind the kernel's words, where they would win.
        for variable in &self.spec.env {
            option("--env-vars", variable.clone());
        }
        if self.archive {
            option("--hermit-image-mode", "internal".to_owned());
        }
        for (host, guest) in &self.files {
            option("--file-mapping", format!("{}:{guest}", host.display()));
        }
        if let Some(port) = self.gdb_port {
            option("--gdb-port", port.to_string());
        }
        if self.spec.fixed_address {
            args.push("--no-aslr".to_owned());
        }
        args.push(self.image.display().to_string());
        // uhyve joins the words with spaces; the kernel splits them as a shell does.
        let quoted = |word: &String| shell_words::quote(word).into_owned();
        args.push("--".to_owned());
        args.extend(self.kernel.iter().map(quoted));
        args.push("--".to_owned());
        args.extend(self.application.iter().map(quoted));
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_quoted_for_the_guest() {
        let spec = RunSpec {
            cpus: 3,
            mem_bytes: Some(65 * MIB),
            fixed_address: true,
            env: vec!["A=two words".to_owned()],
            ..RunSpec::default()
        };
        let guest = Guest {
            spec: &spec,
            image: "/job/image".into(),
            archive: true,
            files: vec![("/files/0".into(), "/data".to_owned())],
            kernel: vec!["thp=never".to_owned()],
            application: vec!["two words".to_owned(), String::new(), "--".to_owned()],
            gdb_port: Some(7),
        };
        let args = guest.arguments().join("|");
        assert!(args.starts_with(
            "--memory-size|66MiB|--cpu-count|3|--env-vars|A=two words|--hermit-image-mode|internal|--file-mapping|/files/0:/data|--gdb-port|7|--no-aslr|/job/image|--|"
        ), "{args}");
        assert!(args.ends_with("|--|'two words'|''|--"), "{args}");
    }
}
