//! Runs cargo for an image: quietly unless it takes long, with everything it said if it fails.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Builder;
use crate::progress::Progress;

/// One run of cargo.
#[derive(Debug)]
pub struct CargoRun {
    command: Command,
    title: String,
    verbose: bool,
}

/// The part of cargo's messages that says what was built.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    target: Option<Target>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    #[serde(default)]
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl CargoRun {
    /// A release build by `command`, which names cargo and its verb, into the directory `target`.
    pub fn new(mut command: Command, target: &Path, title: &str, verbose: bool) -> Self {
        command
            .args(["--release", "--message-format=json-render-diagnostics"])
            // Cargo would strip an application without debug information, and the runtime with it:
            // a report of a fault needs the lines.
            .env("CARGO_PROFILE_RELEASE_STRIP", "false")
            .env("CARGO_TARGET_DIR", target);
        Self {
            command,
            title: title.to_owned(),
            verbose,
        }
    }

    /// `cargo VERB …` for an image, with the given title on the progress line.
    pub fn for_image(builder: &Builder, verb: &str, title: &str) -> Self {
        let mut command = builder.toolchain.cargo();
        command.arg(verb);
        Self::new(command, &builder.target_dir(), title, builder.verbose)
    }

    /// Adds arguments.
    pub fn args<S: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Sets the directory cargo starts in.
    pub fn directory(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Runs, and gives the file that was built for `target`: the executable, or the static library.
    pub fn run(mut self, target: &str) -> Result<PathBuf> {
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.command.get_program().display()))?;
        let stdout = child.stdout.take().context("cargo has no output")?;
        let messages = std::thread::spawn(move || {
            BufReader::new(stdout)
                .lines()
                .map_while(Result::ok)
                .filter_map(|line| serde_json::from_str::<Message>(&line).ok())
                .collect::<Vec<_>>()
        });
        let said = follow(
            BufReader::new(child.stderr.take().context("cargo has no messages")?),
            &self.title,
            self.verbose,
        );
        let status = child.wait().context("cannot wait for cargo")?;
        let messages = messages.join().unwrap_or_default();
        if !status.success() {
            if !self.verbose {
                eprintln!("{}", said.join("\n"));
            }
            bail!("{} failed: see cargo's messages above", self.title);
        }
        artifact(&messages, target)
            .with_context(|| format!("{}: cargo built no file for {target}", self.title))
    }
}

/// Reads cargo's lines to the end, showing the latest.
fn follow(lines: impl BufRead, title: &str, verbose: bool) -> Vec<String> {
    let mut progress = Progress::spinner(title);
    let mut said = Vec::new();
    for line in lines.lines().map_while(Result::ok) {
        if verbose {
            progress.suspend(|| eprintln!("{line}"));
        } else {
            progress.message(line.trim());
        }
        said.push(line);
    }
    progress.finish();
    said
}

fn artifact(messages: &[Message], target: &str) -> Option<PathBuf> {
    let same = |name: &str| name.replace('-', "_") == target.replace('-', "_");
    messages
        .iter()
        .filter(|m| m.reason == "compiler-artifact")
        .filter(|m| m.target.as_ref().is_some_and(|t| same(&t.name)))
        .filter_map(|m| {
            m.executable.clone().or_else(|| {
                m.filenames
                    .iter()
                    .find(|f| f.extension().is_some_and(|e| e == "a"))
                    .cloned()
            })
        })
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(lines: &[&str]) -> Vec<Message> {
        lines
            .iter()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }

    #[test]
    fn the_artifact_is_found_by_its_target() {
        let messages = messages(&[
            r#"{"reason":"compiler-artifact","target":{"name":"core"},"filenames":["/t/libcore.rlib"]}"#,
            r#"{"reason":"build-script-executed"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"dolmen_runtime"},"filenames":["/t/libr.a"],"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"hello"},"filenames":["/t/hello"],"executable":"/t/hello"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ]);
        assert_eq!(
            artifact(&messages, "hello").unwrap(),
            PathBuf::from("/t/hello")
        );
        assert_eq!(
            artifact(&messages, "dolmen-runtime").unwrap(),
            PathBuf::from("/t/libr.a")
        );
        assert_eq!(artifact(&messages, "core"), None);
        assert_eq!(artifact(&messages, "absent"), None);
    }
}
