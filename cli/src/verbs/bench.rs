//! `bench`: builds the program of native benchmarks for this host and runs it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::build::CargoRun;
use crate::run::Tool;

/// The crate and its program.
const PROGRAM: &str = "dolmen-bench";

/// Options of `bench`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

/// What is measured.
#[derive(Debug, Subcommand)]
enum What {
    /// The frame allocator, in turn with others, on 1 and 2 threads
    Frames(Frames),
}

/// Options of `bench frames`. Where one is not given, the program's own default holds.
#[derive(Debug, Default, PartialEq, Eq, Args)]
#[command(after_help = "Examples:
  ./dolmen bench frames                          the loops
  ./dolmen bench frames --mixed --soak           the mixed load and fragmentation besides
  ./dolmen bench frames --llfree /tmp/llfree     the loops of LLFree's own bench, besides

The loops, for single frames (order 0) and huge pages (order 9):
  bulk      allocate all of memory but a sixteenth, then free it
  repeat    allocate one run and free it, with half of memory allocated
  random    allocate as in bulk, then free in random order what all threads allocated
The allocators: Dolmen's; a merging buddy behind a zone lock with lists of each processor in front,
as Linux had in 2018; the crates free-list (Hermit's) and buddy_system_allocator, each behind a
lock. All hand out numbers of frames of the same pretended memory, and nobody touches the frames.
A turn measures all of them one after the other; shown are medians of all turns, and ratios are
medians of each turn's own ratio.")]
struct Frames {
    /// Pretended memory in MiB, an even number [default: 512]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// How many turns [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: Option<u16>,
    /// Measure single frames beside huge pages, too, with 90 % of memory used
    #[arg(long)]
    mixed: bool,
    /// Do ten million allocations and frees of random order and lifetime, too, and see what is left
    /// of huge pages
    #[arg(long)]
    soak: bool,
    /// Compare with LLFree, too, whose checkout at DIR has its bench program built; in memory of
    /// whole GiB
    #[arg(long, value_name = "DIR")]
    llfree: Option<PathBuf>,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Frames {
    /// The program's command line.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["frames".into()];
        let numbers = [
            ("--memory", self.memory),
            ("--repetitions", self.repetitions.map(u64::from)),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                arguments.extend([name.into(), value.to_string().into()]);
            }
        }
        for (name, given) in [("--mixed", self.mixed), ("--soak", self.soak)] {
            if given {
                arguments.push(name.into());
            }
        }
        for (name, path) in [("--llfree", &self.llfree), ("--json", &self.json)] {
            if let Some(path) = path {
                arguments.extend([name.into(), path.into()]);
            }
        }
        arguments
    }
}

/// Builds the program, runs it where the user stands, and ends with its status.
pub fn execute(tool: &Tool<'_>, options: &Options) -> Result<u8> {
    let What::Frames(frames) = &options.what;
    if !tool.workspace.has_crate("bench") {
        bail!("the benchmarks are not in this checkout (bench/)");
    }
    let program = build(tool)?;
    run(&program, &frames.arguments())
}

fn build(tool: &Tool<'_>) -> Result<PathBuf> {
    let mut command = tool.host_cargo_command()?;
    command.arg("build");
    let target = tool.workspace.image_target().join("bench");
    CargoRun::new(command, &target, "building the benchmarks", tool.verbose)
        .directory(tool.workspace.root())
        .args(["-p", PROGRAM, "--bin", PROGRAM])
        .run(PROGRAM)
}

fn run(program: &Path, arguments: &[OsString]) -> Result<u8> {
    let mut command = Command::new(program);
    let status = command
        .args(arguments)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    match status.code() {
        Some(code) => Ok(crate::cli::exit_code(code)),
        None => bail!(
            "the benchmarks were ended by signal {}",
            status.signal().unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &str) -> Result<Vec<String>, String> {
        let words = std::iter::once("bench").chain(words.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let What::Frames(frames) = line.options.what;
        let arguments = frames.arguments().into_iter();
        Ok(arguments.map(|a| a.into_string().unwrap()).collect())
    }

    #[test]
    fn the_program_hears_what_was_said() {
        assert_eq!(parse("frames").unwrap(), ["frames"]);
        let all = "frames --memory 1024 --repetitions 7 --mixed --soak --llfree /x --json y";
        assert_eq!(parse(all).unwrap().join(" "), all);
    }

    #[test]
    fn bad_words_are_named() {
        assert!(parse("").unwrap_err().contains("frames"));
        assert!(parse("pages").unwrap_err().contains("'pages'"));
        assert!(parse("frames --memory lots").unwrap_err().contains("lots"));
        let zero = parse("frames --repetitions 0").unwrap_err();
        assert!(zero.contains("1..=1000"), "{zero}");
        let unknown = parse("frames --frobnicate").unwrap_err();
        assert!(unknown.contains("--frobnicate"));
    }

    #[test]
    fn the_programs_status_is_the_verbs() {
        let shell = Path::new("/bin/sh");
        let status = |script: &str| run(shell, &["-c".into(), script.into()]);
        assert_eq!(status("exit 0").unwrap(), 0);
        assert_eq!(status("exit 3").unwrap(), 3);
        let error = status("kill -9 $$").unwrap_err().to_string();
        assert!(error.contains("signal 9"), "{error}");
        assert!(run(Path::new("/nowhere/x"), &[]).is_err());
    }
}
