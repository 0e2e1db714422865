//! `dolmen-bench`: see `--help`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use dolmen_bench::peers::HUGE_FRAMES;
use dolmen_bench::report::{Plan, measure};

/// Native benchmarks of Dolmen's memory manager against its peers.
#[derive(Debug, Parser)]
#[command(name = "bench", bin_name = "./dolmen bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The frame allocator, against a merging buddy behind a zone lock, free-list and
    /// buddy_system_allocator
    Frames(Frames),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ./dolmen bench frames                       all loops on 1 and 2 threads
  ./dolmen bench frames --mixed --soak        the mixed load and fragmentation besides

All allocators hand out numbers of frames of the same pretended memory and are measured in turn.")]
struct Frames {
    /// Pretended memory in MiB, an even number
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u64,
    /// How often each loop is measured; medians are shown
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
    /// Measure single frames beside huge pages, too
    #[arg(long)]
    mixed: bool,
    /// Do ten million allocations and frees of random size and lifetime, too
    #[arg(long)]
    soak: bool,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Operations of the soak.
const SOAK_OPERATIONS: u64 = 10_000_000;
/// Each part of the mixed load.
const MIXED_TIME: Duration = Duration::from_millis(500);
/// The smallest memory: 90 % of it is to be used, and the rest has to hold blocks for everybody.
const LEAST_MIB: u64 = 256;

fn main() -> ExitCode {
    let Cli {
        what: What::Frames(options),
    } = Cli::parse();
    match frames(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dolmen: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn frames(options: &Frames) -> Result<()> {
    let frames = options.memory.checked_mul(256).context("too much memory")?;
    if options.memory < LEAST_MIB || !frames.is_multiple_of(HUGE_FRAMES) {
        bail!("--memory has to be an even number of at least {LEAST_MIB} MiB");
    }
    if frames > u64::from(u32::MAX) {
        bail!("--memory has to be below 16 TiB");
    }
    let plan = Plan {
        frames,
        repetitions: options.repetitions.into(),
        soak_operations: if options.soak { SOAK_OPERATIONS } else { 0 },
        mixed_time: if options.mixed {
            MIXED_TIME
        } else {
            Duration::ZERO
        },
    };
    let report = measure(&plan, |next| eprintln!("measuring {next}"));
    print!("{}", report.tables());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
