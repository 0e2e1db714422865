//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::host::RealHost;
use crate::image::FileMapping;
use crate::run::{App, Tool};
use crate::spec::{Numa, Platform, RunSpec, Thp, parse_memory};
use crate::toolchain::Choice;
use crate::verbs;
use crate::workspace::Workspace;

/// Dolmen: run an HPC application as its own operating system, and compare how memory is managed.
#[derive(Debug, Parser)]
#[command(name = "dolmen", bin_name = "./dolmen", version, max_term_width = 100)]
#[command(after_help = "Examples:
  ./dolmen doctor                          what this machine has and lacks
  ./dolmen compare equake                  the main job under both THP modes, as a table
  ./dolmen run equake --cpus 4 --nodes 2 --thp always -- --mesh mesh.pack
  ./dolmen run path/to/project --platform linux
  ./dolmen bench frames                    the frame allocator against others
  ./dolmen test --fast")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

/// Options of every verb.
#[derive(Debug, Args)]
struct Common {
    /// Compiler for images: auto, rustup, distro, or the directory of a toolchain
    #[arg(
        long,
        global = true,
        value_name = "WHICH",
        env = "DOLMEN_TOOLCHAIN",
        default_value = "auto"
    )]
    toolchain: String,
    /// Show all of cargo's output
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say what was found on this machine, and what is missing with the command that installs it
    Doctor,
    /// Build an application's image and say where it is
    Build(verbs::build::Options),
    /// Run an application once; ends with its exit status
    Run(verbs::run::Options),
    /// Run an application in every combination of modes and show a table
    Compare(verbs::compare::Options),
    /// Run an application with gdb attached, stopped in its `main`
    Gdb(verbs::gdb::Options),
    /// Measure parts of Dolmen natively, in turn with others that do the same work
    Bench(verbs::bench::Options),
    /// Run all tests: the crates' own, then the ones that boot images
    Test(verbs::test::Options),
}

/// The application of `build`, `run`, `compare` and `gdb`.
#[derive(Debug, Args)]
pub struct AppOptions {
    /// equake, microbench, the folder of a Cargo project, or an image file
    pub app: String,
    /// The project's binary, where it has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
}

impl AppOptions {
    /// The application that is meant.
    pub fn resolve(&self, tool: &Tool<'_>) -> Result<App> {
        App::resolve(&tool.workspace, &self.app, self.bin.as_deref())
    }
}

/// Options that `run` and `compare` share.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Memory of the machine, such as 512M or 4G [default: 1G, or 512M per node]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub mem: Option<u64>,
    /// Processor that QEMU emulates, such as qemu64 or EPYC,-xsave [default: max]
    #[arg(long = "cpu", value_name = "MODEL")]
    pub cpu_model: Option<String>,
    /// Machine that QEMU emulates, such as q35 [default: QEMU's own]
    #[arg(long, value_name = "TYPE")]
    pub machine: Option<String>,
    /// Where fresh memory is placed: local
    #[arg(long, value_name = "POLICY", default_value = "local")]
    pub numa: Numa,
    /// End a run after so many seconds, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,
    /// Under uhyve, put the guest's memory at 4 GiB instead of at a random address
    #[arg(long)]
    pub fixed_address: bool,
    /// Fill freed frames with a pattern, and end the run if a frame is used or freed after that; slow
    #[arg(long)]
    pub debug_frames: bool,
    /// Let the application see a file or folder of this host; what it writes there is on the host.
    /// Files named in its arguments it sees anyway, to read
    #[arg(long = "file", value_name = "HOST:GUEST")]
    pub files: Vec<FileMapping>,
    /// Set a variable in the application's environment
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub env: Vec<String>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The application's arguments
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub args: Vec<String>,
}

impl RunOptions {
    /// The part of a run that these options say.
    pub fn spec(&self, platform: Platform, cpus: u32, nodes: u32, thp: Thp) -> RunSpec {
        RunSpec {
            platform,
            cpus,
            cpu_model: self.cpu_model.clone(),
            machine: self.machine.clone(),
            nodes,
            mem_bytes: self.mem,
            thp,
            numa: self.numa,
            fixed_address: self.fixed_address,
            debug_frames: self.debug_frames,
            timeout: self.timeout,
            files: self.files.clone(),
            env: self.env.clone(),
            args: self.args.clone(),
        }
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is no number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) if !limit.is_zero() => Ok(limit),
        _ => Err(format!("'{text}' is no time limit")),
    }
}

pub(crate) fn parse_variable(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("'{text}' is not of the form NAME=VALUE")),
    }
}

/// What an application's status is as the tool's own: a status beyond a byte must not become 0.
pub(crate) fn exit_code(status: i32) -> u8 {
    let code = u8::try_from(status & 0xff).unwrap_or(1);
    if code == 0 && status != 0 { 1 } else { code }
}

/// Runs the verb of the command line and gives the tool's exit status.
pub fn execute(cli: Cli) -> ExitCode {
    // A run that could not be started must not look like a run that ended with the status 1.
    let failed = match &cli.verb {
        Verb::Run(_) => crate::report::status::NO_RECORD as u8,
        _ => 1,
    };
    match dispatch(cli) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("dolmen: {error:#}");
            ExitCode::from(failed)
        }
    }
}

fn dispatch(cli: Cli) -> Result<u8> {
    let host = RealHost;
    let tool = Tool {
        host: &host,
        workspace: Workspace::locate(&host)?,
        choice: Choice::parse(&cli.common.toolchain),
        verbose: cli.common.verbose,
    };
    match cli.verb {
        Verb::Doctor => verbs::doctor::execute(&tool),
        Verb::Build(options) => verbs::build::execute(&tool, &options),
        Verb::Run(options) => verbs::run::execute(&tool, &options),
        Verb::Compare(options) => verbs::compare::execute(&tool, &options),
        Verb::Gdb(options) => verbs::gdb::execute(&tool, &options),
        Verb::Bench(options) => verbs::bench::execute(&tool, &options),
        Verb::Test(options) => verbs::test::execute(&tool, &options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_failure_becomes_a_success() {
        assert_eq!([0, 3, 256, -1].map(exit_code), [0, 3, 1, 255]);
    }

    #[test]
    fn bad_words_are_named() {
        let error = |words: &str| {
            Cli::try_parse_from(words.split(' '))
                .unwrap_err()
                .to_string()
        };
        assert!(error("dolmen run x --thp sometimes").contains("unknown THP mode 'sometimes'"));
        assert!(error("dolmen run x --frobnicate").contains("--frobnicate"));
        assert!(error("dolmen run x --platform vax").contains("vax"));
        assert!(error("dolmen run x --mem lots").contains("'lots' is no size"));
        assert!(error("dolmen run x --cpus 0").contains('0'));
        assert!(error("dolmen run x --timeout -1").contains("-1"));
        assert!(error("dolmen run x --env novalue").contains("NAME=VALUE"));
        assert!(error("dolmen frolic").contains("frolic"));
    }

    #[test]
    fn the_applications_arguments_are_its_own() {
        let cli = Cli::try_parse_from([
            "dolmen", "run", "equake", "--cpus", "2", "--", "--thp", "x", "--", "y",
        ])
        .unwrap();
        let Verb::Run(options) = cli.verb else {
            panic!("not a run");
        };
        assert_eq!(options.run.args, ["--thp", "x", "--", "y"]);
    }
}
