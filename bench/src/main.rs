//! `dolmen-bench`: see `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use dolmen_bench::llfree::{GIB_FRAMES, Programs};
use dolmen_bench::loops::{Fill, Loop, Size, run};
use dolmen_bench::peers::{Dolmen, HUGE_FRAMES};
use dolmen_bench::report::{Plan, measure};

/// Native benchmarks of Dolmen's memory manager against its peers.
#[derive(Debug, Parser)]
#[command(name = "dolmen-bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The frame allocator, against a merging buddy behind a zone lock, free-list and
    /// buddy_system_allocator; `./dolmen bench frames --help` says more
    Frames(Frames),
    /// One loop once, in a process of its own; prints the times as JSON
    #[command(hide = true)]
    Alone(Alone),
}

#[derive(Debug, clap::Args)]
struct Frames {
    /// Pretended memory in MiB, an even number
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u64,
    /// How often everything is measured; medians are shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
    /// Rounds of each loop with huge pages in a turn
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=4096))]
    huge_rounds: u16,
    /// The mixed load, too, with so many allocations by each task
    #[arg(long, value_name = "ALLOCATIONS", num_args = 0..=1, default_missing_value = "2000000", value_parser = clap::value_parser!(u64).range(1..))]
    mixed: Option<u64>,
    /// The fragmentation soak, too, with so many operations
    #[arg(long, value_name = "OPERATIONS", num_args = 0..=1, default_missing_value = "10000000", value_parser = clap::value_parser!(u64).range(1..))]
    soak: Option<u64>,
    /// A checkout of LLFree whose bench program is built
    #[arg(long, value_name = "DIR")]
    llfree: Option<PathBuf>,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Alone {
    what: Loop,
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    order: u8,
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=16384))]
    gib: u64,
}

/// The smallest memory: 90 % of it is to be used, and the rest has to hold blocks for everybody.
const LEAST_MIB: u64 = 64;

fn main() -> ExitCode {
    let result = match Cli::parse().what {
        What::Frames(options) => frames(&options),
        What::Alone(options) => alone(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dolmen: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn frames(options: &Frames) -> Result<()> {
    if options.memory < LEAST_MIB || !options.memory.is_multiple_of(2) {
        bail!("--memory has to be an even number of at least {LEAST_MIB} MiB");
    }
    let frames = options.memory.checked_mul(256);
    let Some(frames) = frames.filter(|&frames| frames <= u64::from(u32::MAX)) else {
        bail!("--memory has to be below 16 TiB");
    };
    debug_assert!(frames.is_multiple_of(HUGE_FRAMES));
    let plan = Plan {
        frames,
        repetitions: options.repetitions.into(),
        huge_rounds: options.huge_rounds.into(),
        mixed_allocations: options.mixed,
        soak_operations: options.soak,
        llfree: options.llfree.as_deref().map(Programs::find).transpose()?,
    };
    let report = measure(&plan, |next| eprintln!("measuring {next}"))?;
    print!("{}", report.tables());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn alone(options: &Alone) -> Result<()> {
    let threads = usize::from(options.threads);
    let frames = options.gib * GIB_FRAMES;
    let size = Size {
        frames,
        threads,
        order: options.order,
        fill: Fill::Half,
        // As many as LLFree's program does.
        rounds: 1 << options.order,
    };
    let dolmen = Dolmen::new(frames, threads);
    let times = run(&dolmen, options.what, size)?;
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}
