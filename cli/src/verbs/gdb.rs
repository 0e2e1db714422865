//! `gdb`: an application on a machine, with gdb attached.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cli::{AppOptions, exit_code, parse_variable};
use crate::image::FileMapping;
use crate::run::{Console, Session, Sink, Tool, check_platform, debug, prepare};
use crate::spec::{Platform, RunSpec, Thp, parse_memory};

/// Options of `gdb`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ./dolmen gdb equake -- --steps 3
  ./dolmen gdb path/to/project --bin solver --platform uhyve --cpus 2
  ./dolmen gdb path/to/project --batch -x commands.gdb

gdb starts with the application stopped in its `main`. The machine ends with gdb.
Status: the application's if it came to its end, else gdb's; 1 if there was nothing to debug.")]
pub struct Options {
    #[command(flatten)]
    app: AppOptions,
    /// Where the application runs: qemu or uhyve
    #[arg(long, value_enum, default_value_t = Platform::Qemu)]
    platform: Platform,
    /// Processors of the machine; gdb shows each as a thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// NUMA nodes of the machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// Memory of the machine, such as 512M or 4G [default: 1G, or 512M per node]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    mem: Option<u64>,
    /// Huge pages: never or always
    #[arg(long, value_name = "MODE", default_value = "always")]
    thp: Thp,
    /// Let the application see a file of this host; files named in its arguments it sees anyway
    #[arg(long = "file", value_name = "HOST:GUEST")]
    files: Vec<FileMapping>,
    /// Set a variable in the application's environment
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    env: Vec<String>,
    /// Let gdb execute a file of commands once the application has stopped in `main`
    #[arg(short = 'x', long = "commands", value_name = "FILE")]
    scripts: Vec<PathBuf>,
    /// End gdb behind its commands, and let it ask nothing
    #[arg(long)]
    batch: bool,
    /// The application's arguments
    #[arg(last = true, value_name = "ARGUMENTS")]
    args: Vec<String>,
}

/// Debugs until gdb ends.
pub fn execute(tool: &Tool<'_>, options: &Options) -> Result<u8> {
    check_platform(options.platform)?;
    if options.platform == Platform::Linux {
        bail!("./dolmen gdb debugs machines: on linux, start gdb itself");
    }
    let gdb = tool
        .host
        .find_program("gdb")
        .context("gdb is not installed: on Debian and Ubuntu `apt-get install gdb`")?;
    for script in &options.scripts {
        std::fs::File::open(script).with_context(|| format!("cannot open {}", script.display()))?;
    }
    let app = options.app.resolve(tool)?;
    let prepared = prepare(tool, &app, options.platform)?;
    let spec = RunSpec {
        platform: options.platform,
        cpus: options.cpus,
        nodes: options.nodes,
        mem_bytes: options.mem,
        thp: options.thp,
        files: options.files.clone(),
        env: options.env.clone(),
        args: options.args.clone(),
        ..RunSpec::default()
    };
    let mut console = Console::new(Sink::Live, prepared.app());
    let session = Session {
        gdb,
        scripts: options.scripts.clone(),
        batch: options.batch,
    };
    Ok(exit_code(debug(&prepared, &spec, &session, &mut console)?))
}
