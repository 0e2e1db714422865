//! `run`: one run, live on the console.

use anyhow::Result;
use clap::Args;

use crate::cli::{AppOptions, RunOptions, exit_code};
use crate::report::write_json;
use crate::run::{Console, Sink, Tool, check_platform, prepare, run};
use crate::spec::{Platform, Thp};

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ./dolmen run equake --cpus 4 --nodes 2 --thp always
  ./dolmen run equake -- --mesh mesh.pack --steps 10
  ./dolmen run path/to/project --bin solver --mem 4G --timeout 60 --json result.json
  ./dolmen run path/to/project --platform linux

A file named in the application's arguments is packed into the image under the same path.
Status: the application's; 124 after --timeout, 125 if the machine could not run it.")]
pub struct Options {
    #[command(flatten)]
    app: AppOptions,
    /// Where the application runs
    #[arg(long, value_enum, default_value_t = Platform::Qemu)]
    platform: Platform,
    /// Processors of the machine
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// NUMA nodes of the machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: u32,
    /// Huge pages: never or always
    #[arg(long, value_name = "MODE", default_value = "always")]
    thp: Thp,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// Runs once and ends with the application's status.
pub fn execute(tool: &Tool<'_>, options: &Options) -> Result<u8> {
    check_platform(options.platform)?;
    let app = options.app.resolve(tool)?;
    let prepared = prepare(tool, &app, options.platform)?;
    let spec = options
        .run
        .spec(options.platform, options.cpus, options.nodes, options.thp);
    let mut console = Console::new(Sink::Live, prepared.app());
    let report = run(&prepared, &spec, &mut console)?;
    for note in &report.notes {
        eprintln!("dolmen: note: {note}");
    }
    // What the machine has said itself is not said again.
    if let Some(error) = report
        .error
        .as_deref()
        .filter(|e| console.complaint() != Some(e))
    {
        eprintln!("dolmen: {error}");
    }
    if let Some(path) = &options.run.json {
        write_json(path, &report)?;
    }
    Ok(exit_code(report.exit_status))
}
