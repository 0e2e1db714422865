//! `compare`: every combination of modes, and a table.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;

use crate::cli::{AppOptions, RunOptions};
use crate::compare::{COMPARE_SCHEMA, Configuration, Row, matrix, table, verdict};
use crate::report::{RunReport, write_json};
use crate::run::{Console, Prepared, Sink, Tool, check_platform, prepare, run};
use crate::spec::{Platform, Thp};

/// Options of `compare`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ./dolmen compare equake
  ./dolmen compare equake --platform qemu,linux --cpus 1,2,4 --nodes 1,2 --runs 3 --json result.json
  ./dolmen compare path/to/project -- --size 1000

QEMU emulates its processors: read its times as ratios, and only against each other.
Status: 0 if every run ended well and equal thread counts gave equal checksums.")]
pub struct Options {
    #[command(flatten)]
    app: AppOptions,
    /// Huge pages: never, always
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        default_value = "never,always"
    )]
    thp: Vec<Thp>,
    /// Where the application runs
    #[arg(
        long,
        value_enum,
        value_name = "PLATFORMS",
        value_delimiter = ',',
        default_value = "qemu"
    )]
    platform: Vec<Platform>,
    /// Processors of the machine
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "4", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Vec<u32>,
    /// NUMA nodes of the machine
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u32).range(1..=16))]
    nodes: Vec<u32>,
    /// Runs of each combination; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Write the result as a page (not available yet)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    run: RunOptions,
}

/// Runs the whole matrix and prints table and verdict.
pub fn execute(tool: &Tool<'_>, options: &Options) -> Result<u8> {
    if options.html.is_some() {
        bail!("--html is not available yet: use --json");
    }
    for &platform in &options.platform {
        check_platform(platform)?;
    }
    let app = options.app.resolve(tool)?;
    let mut prepared: Vec<(Platform, Prepared)> = Vec::new();
    for &platform in &options.platform {
        if !prepared.iter().any(|(p, _)| *p == platform) {
            prepared.push((platform, prepare(tool, &app, platform)?));
        }
    }
    let combinations = matrix(
        &options.platform,
        &options.cpus,
        &options.nodes,
        &options.thp,
    );
    let rows = run_all(options, &prepared, &combinations)?;
    let verdict = verdict(&rows);
    let colour = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    println!("{}", table(&rows, colour));
    for sentence in notes(&rows).iter().chain(&verdict.sentences) {
        println!("{sentence}");
    }
    if let Some(path) = &options.run.json {
        write_json(
            path,
            &json!({
                "schema": COMPARE_SCHEMA,
                "app": prepared.first().map(|(_, p)| p.app()),
                "args": &options.run.args,
                "rows": rows,
                "verdict": verdict,
            }),
        )?;
    }
    Ok(u8::from(!verdict.good))
}

fn run_all(
    options: &Options,
    prepared: &[(Platform, Prepared)],
    combinations: &[Configuration],
) -> Result<Vec<Row>> {
    let total = combinations.len() * options.runs as usize;
    let started = Instant::now();
    let mut done = 0;
    let mut runs: Vec<Vec<RunReport>> = vec![Vec::new(); combinations.len()];
    // Round by round, so that a machine that grows slower or faster does not favour one mode.
    for _ in 0..options.runs {
        for (combination, runs) in combinations.iter().zip(&mut runs) {
            let Some((_, prepared)) = prepared.iter().find(|(p, _)| *p == combination.platform)
            else {
                bail!("nothing was built for {}", combination.platform);
            };
            let title = format!("[{}/{total}] {combination}", done + 1);
            eprintln!("{title}{}", estimate(started.elapsed(), done, total));
            runs.push(run_one(options, prepared, combination, &title)?);
            done += 1;
            if crate::interrupt::pending() {
                bail!("the comparison was interrupted");
            }
        }
    }
    Ok(combinations
        .iter()
        .zip(runs)
        .map(|(&combination, runs)| Row::new(combination, runs))
        .collect())
}

fn run_one(
    options: &Options,
    prepared: &Prepared,
    combination: &Configuration,
    title: &str,
) -> Result<RunReport> {
    let mut spec = options.run.spec(
        combination.platform,
        combination.cpus,
        combination.nodes,
        combination.thp,
    );
    spec.args = arguments(&options.app.app, spec.args, combination.cpus);
    let mut console = Console::new(Sink::Kept, title);
    let report = run(prepared, &spec, &mut console)?;
    if !report.succeeded() {
        let text = console.text();
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("{title} failed; the end of its output:");
        for line in lines.iter().skip(lines.len().saturating_sub(20)) {
            eprintln!("  {line}");
        }
    }
    Ok(report)
}

/// equake compares by itself: a mesh if none is given, and as many threads as the machine was to have
/// CPUs, because a Linux may have fewer and another number of threads computes other bits.
fn arguments(app: &str, mut args: Vec<String>, cpus: u32) -> Vec<String> {
    if app == "equake" {
        let given = |args: &[String], name: &str| {
            args.iter()
                .any(|a| a == name || a.strip_prefix(name).is_some_and(|r| r.starts_with('=')))
        };
        if !given(&args, "--mesh") && !given(&args, "--mesh-nodes") {
            args.extend(["--mesh-nodes".to_owned(), "7000".to_owned()]);
        }
        if !given(&args, "--threads") {
            args.extend(["--threads".to_owned(), cpus.to_string()]);
        }
    }
    args
}

fn estimate(elapsed: Duration, done: usize, total: usize) -> String {
    if done == 0 {
        return String::new();
    }
    let left = elapsed.as_secs_f64() / done as f64 * (total - done) as f64;
    format!(" (about {left:.0} s left)")
}

/// Every note once, however many runs gave it.
fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for run in rows.iter().flat_map(|row| &row.runs) {
        for note in &run.notes {
            let note = format!("Note ({}): {note}", run.platform);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equake(args: &[&str]) -> String {
        arguments("equake", args.iter().map(|&a| a.to_owned()).collect(), 4).join(" ")
    }

    #[test]
    fn equake_gets_a_mesh_and_threads_unless_told() {
        assert_eq!(equake(&[]), "--mesh-nodes 7000 --threads 4");
        assert_eq!(equake(&["--mesh", "x"]), "--mesh x --threads 4");
        assert_eq!(equake(&["--mesh-nodes=9"]), "--mesh-nodes=9 --threads 4");
        assert_eq!(
            equake(&["--threads", "2", "--mesh=x"]),
            "--threads 2 --mesh=x"
        );
        assert!(arguments("path", Vec::new(), 4).is_empty());
    }

    #[test]
    fn an_estimate_needs_a_finished_run() {
        assert_eq!(estimate(Duration::from_secs(9), 0, 4), "");
        assert_eq!(estimate(Duration::from_secs(9), 3, 4), " (about 3 s left)");
    }
}
