//! `test`: the crates' own tests, then the system tests, and one line of counts at the end.

use std::io::{BufRead, BufReader};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};
use clap::Args;

use crate::run::Tool;

/// Options of `test`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ./dolmen test            everything
  ./dolmen test --fast     without the tests that boot many images

The last line is `N passed, N failed`; the status is not 0 if anything failed.")]
pub struct Options {
    /// Leave out the system tests that boot many images
    #[arg(long)]
    fast: bool,
}

/// The system tests' programs, and whether each is part of the fast selection.
const SYSTEM_TESTS: [(&str, bool); 5] = [
    ("protocol", true),
    ("guest", true),
    ("machines", false),
    ("uhyve", false),
    ("gdb", false),
];

/// Runs the tests.
pub fn execute(tool: &Tool<'_>, options: &Options) -> Result<u8> {
    let mut counts = Counts::default();
    counts.add(&run(tool, &["--no-fail-fast"])?);
    if tool.workspace.has_crate("tests") {
        let mut args = vec!["-p", "dolmen-tests", "--no-fail-fast", "--lib"];
        for (name, fast) in SYSTEM_TESTS {
            if fast || !options.fast {
                args.extend(["--test", name]);
            }
        }
        counts.add(&run(tool, &args)?);
    }
    println!("{}", counts.line());
    Ok(u8::from(counts.failed > 0))
}

/// Runs `cargo test`, shows what it says, and counts.
fn run(tool: &Tool<'_>, args: &[&str]) -> Result<Counts> {
    println!("cargo test {}", args.join(" "));
    let mut command = tool.host_cargo_command()?;
    command
        .arg("test")
        .args(args)
        .current_dir(tool.workspace.root())
        .env("DOLMEN_ROOT", tool.workspace.root())
        // The system tests use the toolchain that this command was given.
        .env("DOLMEN_TOOLCHAIN", tool.choice.name())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut counts = Counts::default();
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        counts.read(&line);
    }
    let status = child.wait().context("cannot wait for cargo")?;
    counts.end(status);
    Ok(counts)
}

/// Results of tests, added up.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Reads the closing line of one test program:
    /// `test result: ok. 15 passed; 0 failed; 1 ignored; …`
    fn read(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let results = result.split_once(". ").map_or(result, |(_, counts)| counts);
        for part in results.split("; ") {
            if let Some((number, what)) = part.split_once(' ')
                && let Ok(number) = number.parse::<u64>()
            {
                match what {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.ignored += number,
                    _ => {}
                }
            }
        }
    }

    /// A failure that no test accounts for, such as code that does not compile, counts as one.
    fn end(&mut self, status: ExitStatus) {
        if !status.success() && self.failed == 0 {
            self.failed = 1;
        }
    }

    fn line(&self) -> String {
        let mut line = format!("{} passed, {} failed", self.passed, self.failed);
        if self.ignored > 0 {
            line.push_str(&format!(", {} skipped", self.ignored));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn closing_lines_are_added_up() {
        let mut counts = Counts::default();
        counts.read("running 15 tests");
        counts.read("test result: ok. 15 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        counts.read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s");
        assert_eq!(counts.line(), "18 passed, 2 failed, 1 skipped");
        counts.end(ExitStatus::from_raw(1 << 8));
        assert_eq!(counts.failed, 2);
    }

    #[test]
    fn code_that_does_not_compile_is_a_failure() {
        let mut counts = Counts::default();
        counts.end(ExitStatus::from_raw(101 << 8));
        assert_eq!(counts.line(), "0 passed, 1 failed");
        let mut good = Counts::default();
        good.end(ExitStatus::from_raw(0));
        assert_eq!(good.line(), "0 passed, 0 failed");
    }
}
