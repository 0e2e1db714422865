//! LLFree's own bench program in turn with the same loops of ours.
//!
//! The program is built by its user, outside of this repository; nothing of it is here. Ours runs in
//! a process of its own for each measurement, as LLFree's does, so that both start equally cold. Its
//! times are whole nanoseconds, rounded down. Its threads sleep while they wait for each other, so
//! in short loops they are at work at the same time for less of it than ours.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::loops::{Loop, Times};
use crate::peers::HUGE;
use crate::summary::{median, ratio};

/// Frames of a GiB, the unit in which LLFree's program takes its memory.
pub const GIB_FRAMES: u64 = 1 << 18;

/// Both programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// LLFree's `bench`.
    pub llfree: PathBuf,
    /// Our own, whose command `alone` measures one loop once.
    pub own: PathBuf,
}

/// One measurement, by either program.
#[derive(Debug, Clone, Copy)]
struct Measurement {
    what: Loop,
    order: u8,
    threads: usize,
    gib: u64,
}

/// One loop of both allocators: medians, and ratios to LLFree turn by turn.
#[derive(Debug, Clone, Serialize)]
pub struct LlfreeRow {
    /// The loop.
    #[serde(rename = "loop")]
    pub what: Loop,
    /// log2 of the frames of one allocation.
    pub order: u8,
    /// Threads at work.
    pub threads: usize,
    /// Dolmen's times in ns.
    pub dolmen: Times,
    /// LLFree's times in ns.
    pub llfree: Times,
    /// Dolmen's time through LLFree's.
    pub ratio: Times,
}

impl Programs {
    /// The program built in `directory`, a checkout of LLFree, and the one that is running.
    pub fn find(directory: &Path) -> Result<Self> {
        let llfree = directory.join("target/release/bench");
        if !llfree.is_file() {
            bail!(
                "there is no {}: build it by `cargo build --release -p llfree-eval --bin bench` in {}",
                llfree.display(),
                directory.display()
            );
        }
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        Ok(Self { llfree, own })
    }

    /// Measures all loops on 1 to `threads` threads with `gib` GiB; `progress` hears what is next.
    pub fn measure(
        &self,
        gib: u64,
        threads: usize,
        repetitions: usize,
        mut progress: impl FnMut(&str),
    ) -> Result<Vec<LlfreeRow>> {
        let mut rows = Vec::new();
        for order in [0, HUGE] {
            for what in Loop::ALL {
                for threads in 1..=threads {
                    progress(&format!(
                        "{} of order {order} on {threads} threads beside LLFree",
                        what.name()
                    ));
                    let measurement = Measurement {
                        what,
                        order,
                        threads,
                        gib,
                    };
                    rows.push(self.row(measurement, repetitions)?);
                }
            }
        }
        Ok(rows)
    }

    fn row(&self, measurement: Measurement, repetitions: usize) -> Result<LlfreeRow> {
        let (mut dolmen, mut llfree) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            dolmen.push(self.own(measurement)?);
            llfree.push(self.llfree(measurement)?);
        }
        let get = |times: &[Times]| -> Vec<f64> { times.iter().map(|t| t.get).collect() };
        let put = |times: &[Times]| -> Vec<f64> { times.iter().filter_map(|t| t.put).collect() };
        let puts = measurement.what != Loop::Repeat;
        let medians = |times: &[Times]| Times {
            get: median(get(times)),
            put: puts.then(|| median(put(times))),
        };
        Ok(LlfreeRow {
            what: measurement.what,
            order: measurement.order,
            threads: measurement.threads,
            dolmen: medians(&dolmen),
            llfree: medians(&llfree),
            ratio: Times {
                get: ratio(&get(&dolmen), &get(&llfree)),
                put: puts.then(|| ratio(&put(&dolmen), &put(&llfree))),
            },
        })
    }

    fn own(&self, measurement: Measurement) -> Result<Times> {
        let mut command = Command::new(&self.own);
        command
            .args(["alone", measurement.what.name()])
            .args(["--order", &measurement.order.to_string()])
            .args(["--threads", &measurement.threads.to_string()])
            .args(["--gib", &measurement.gib.to_string()]);
        let output = output(&mut command)?;
        serde_json::from_slice(&output).context("this program's own figures cannot be read")
    }

    fn llfree(&self, measurement: Measurement) -> Result<Times> {
        let figures = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        let threads = measurement.threads.to_string();
        let mut command = Command::new(&self.llfree);
        command
            .arg(match measurement.what {
                Loop::Bulk => "bulk",
                Loop::Repeat => "repeat",
                Loop::Random => "rand",
            })
            .arg("LLFree")
            // Its threads share the half of memory, however many of them are at work.
            .args(["-x", &threads, "-t", &threads, "-i", "1"])
            .args(["-s", &measurement.order.to_string()])
            .args(["-m", &measurement.gib.to_string()])
            .arg("-o")
            .arg(figures.path());
        output(&mut command)?;
        let text = std::fs::read_to_string(figures.path())
            .with_context(|| format!("cannot read {}", figures.path().display()))?;
        parse(&text, measurement.what).context("LLFree's figures cannot be read")
    }
}

/// Runs to a good end and gives what was printed.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        bail!("{program} failed: {}", last.unwrap_or("without a word"));
    }
    Ok(output.stdout)
}

/// The slowest thread's times in a table with one row.
fn parse(csv: &str, what: Loop) -> Result<Times> {
    let mut lines = csv.lines();
    let (Some(heads), Some(row), None) = (lines.next(), lines.next(), lines.next()) else {
        bail!("a line of heads and one of figures were expected");
    };
    let field = |name: &str| -> Result<f64> {
        let mut fields = heads.split(',').zip(row.split(','));
        let (_, value) = fields
            .find(|(head, _)| *head == name)
            .with_context(|| format!("there is no {name}"))?;
        match value.parse::<f64>() {
            Ok(time) if time > 0.0 => Ok(time),
            _ => bail!("{name} is '{value}', which is no time"),
        }
    };
    Ok(Times {
        get: field("get_max")?,
        put: match what {
            Loop::Repeat => None,
            Loop::Bulk | Loop::Random => Some(field("put_max")?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_name() {
        let csv = "alloc,x,get_min,get_max,put_max\nLLFree,1,10,12,14\n";
        let times = parse(csv, Loop::Bulk).unwrap();
        assert_eq!((times.get, times.put), (12.0, Some(14.0)));
        assert_eq!(parse(csv, Loop::Repeat).unwrap().put, None);
    }

    #[test]
    fn what_are_no_figures_is_refused() {
        let error = |csv| parse(csv, Loop::Bulk).unwrap_err().to_string();
        assert!(error("").contains("expected"));
        assert!(error("get_max,put_max\n").contains("expected"));
        assert!(error("get_max\n5\n").contains("no put_max"));
        assert!(error("get_max,put_max\n5,soon\n").contains("'soon'"));
        assert!(error("get_max,put_max\n0,5\n").contains("no time"));
    }

    #[test]
    fn a_missing_program_is_told_with_the_command() {
        let error = Programs::find(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("--bin bench` in /nowhere"));
    }
}
