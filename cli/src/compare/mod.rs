//! Comparing: which runs are made, and what they say together.

mod table;
mod verdict;

pub use table::table;
pub use verdict::{Verdict, verdict};

use std::fmt;

use serde::Serialize;

use crate::report::RunReport;
use crate::spec::{Platform, Thp};

/// The form of what `compare --json` writes.
pub const COMPARE_SCHEMA: &str = "dolmen-compare-1";

/// One combination of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// Where.
    pub platform: Platform,
    /// Processors.
    pub cpus: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Huge pages.
    pub thp: Thp,
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, thp {}", self.place(), self.thp)
    }
}

impl Configuration {
    /// The machine without the mode.
    pub fn place(&self) -> String {
        let plural = |n: u32, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        if self.platform == Platform::Linux {
            return format!("{}, {}", self.platform, plural(self.cpus, "CPU"));
        }
        format!(
            "{}, {}, {}",
            self.platform,
            plural(self.cpus, "CPU"),
            plural(self.nodes, "node")
        )
    }
}

/// All combinations, in the order of the table: modes of one machine stand together. A Linux process
/// has the machine's own nodes, so the numbers of nodes make no more runs of it.
pub fn matrix(
    platforms: &[Platform],
    cpus: &[u32],
    nodes: &[u32],
    thp: &[Thp],
) -> Vec<Configuration> {
    let mut all = Vec::new();
    for &platform in platforms {
        let nodes = if platform == Platform::Linux {
            &[1]
        } else {
            nodes
        };
        for &cpus in cpus {
            for &nodes in nodes {
                for &thp in thp {
                    let configuration = Configuration {
                        platform,
                        cpus,
                        nodes,
                        thp,
                    };
                    if !all.contains(&configuration) {
                        all.push(configuration);
                    }
                }
            }
        }
    }
    all
}

/// All runs of one combination, summed up.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The combination.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// 0 if every run ended well, else the first other status.
    pub exit_status: i32,
    /// Median wall time.
    pub wall_s: f64,
    /// Every wall time, in the order of the runs.
    pub wall_all_s: Vec<f64>,
    /// Median time to `main`.
    pub boot_s: Option<f64>,
    /// Median CPU time in the application.
    pub user_s: Option<f64>,
    /// Median CPU time in the memory manager.
    pub sys_s: Option<f64>,
    /// Faults served by 4 KiB pages, in the run of the median.
    pub faults_4k: Option<u64>,
    /// Faults served by 2 MiB pages.
    pub faults_2m: Option<u64>,
    /// Interrupts sent to flush other TLBs.
    pub ipis: Option<u64>,
    /// The share of accesses to other nodes, if the application reports it.
    pub remote_share: Option<f64>,
    /// The application's checksum, if it reports one; all of them if its runs differ.
    pub checksum: Option<String>,
    /// How many threads the application says it had, or else the number of CPUs.
    pub threads: u64,
    /// The runs.
    pub runs: Vec<RunReport>,
}

impl Row {
    /// Sums up the runs of one combination, of which there is at least one.
    pub fn new(configuration: Configuration, runs: Vec<RunReport>) -> Self {
        let of = |value: fn(&RunReport) -> Option<f64>| {
            median(&runs.iter().filter_map(value).collect::<Vec<_>>())
        };
        let mut order: Vec<&RunReport> = runs.iter().collect();
        order.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
        let middle = order.get(order.len().saturating_sub(1) / 2).copied();
        let mut checksums: Vec<String> =
            runs.iter().filter_map(|r| r.app_text("checksum")).collect();
        checksums.sort();
        checksums.dedup();
        let number = |key: &str| middle.and_then(|r| r.app_report.get(key));
        Self {
            configuration,
            exit_status: runs
                .iter()
                .filter(|r| !r.succeeded())
                .map(|r| if r.exit_status == 0 { 1 } else { r.exit_status })
                .next()
                .unwrap_or(0),
            wall_s: of(|r| Some(r.wall_s)).unwrap_or(0.0),
            wall_all_s: runs.iter().map(|r| r.wall_s).collect(),
            boot_s: of(|r| r.boot_s),
            user_s: of(|r| r.user_s),
            sys_s: of(|r| r.sys_s),
            faults_4k: middle.and_then(RunReport::faults_4k),
            faults_2m: middle.and_then(RunReport::faults_2m),
            ipis: middle.and_then(RunReport::ipis),
            remote_share: number("remote_share").and_then(serde_json::Value::as_f64),
            checksum: (!checksums.is_empty()).then(|| checksums.join(" / ")),
            threads: number("threads")
                .and_then(serde_json::Value::as_u64)
                .unwrap_or_else(|| configuration.cpus.into()),
            runs,
        }
    }
}

/// The middle value, or the mean of the two middle ones.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    Some((sorted.get(sorted.len() / 2 - 1)? + upper) / 2.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::spec::RunSpec;
    use serde_json::json;

    pub(crate) fn run(wall_s: f64, checksum: &str) -> RunReport {
        let mut report = RunReport::new("equake", &RunSpec::default());
        report.exit_status = 0;
        report.wall_s = wall_s;
        report.app_report = json!({"checksum": checksum, "threads": 4, "remote_share": 0.25})
            .as_object()
            .unwrap()
            .clone();
        report.counters =
            json!({"fault_4k_node0": 12345, "fault_2m_node0": 7, "nr_tlb_remote_flush": 3})
                .as_object()
                .unwrap()
                .clone();
        report
    }

    pub(crate) fn row(platform: Platform, thp: Thp, runs: Vec<RunReport>) -> Row {
        Row::new(
            Configuration {
                platform,
                cpus: 4,
                nodes: 2,
                thp,
            },
            runs,
        )
    }

    #[test]
    fn the_matrix_is_whole_and_has_no_doubles() {
        let all = matrix(
            &[Platform::Qemu, Platform::Linux],
            &[1, 4, 4],
            &[1, 2],
            &[Thp::Never, Thp::Always],
        );
        assert_eq!(all.len(), 2 * 2 * 2 + 2 * 2);
        assert_eq!(all[0].thp, Thp::Never);
        assert_eq!(all[1].thp, Thp::Always);
        assert_eq!(all[1].nodes, 1);
        assert_eq!(all[2].nodes, 2);
    }

    #[test]
    fn medians_ignore_outliers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 100.0, 1.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn a_row_sums_up_its_runs() {
        let row = row(
            Platform::Qemu,
            Thp::Never,
            vec![run(3.0, "a"), run(1.0, "a"), run(2.0, "a")],
        );
        assert_eq!(row.wall_s, 2.0);
        assert_eq!(row.wall_all_s, [3.0, 1.0, 2.0]);
        assert_eq!(row.faults_4k, Some(12345));
        assert_eq!(row.checksum.as_deref(), Some("a"));
        assert_eq!((row.exit_status, row.threads), (0, 4));
    }

    #[test]
    fn one_bad_run_spoils_the_row() {
        let mut bad = run(1.0, "b");
        bad.exit_status = 7;
        let row = row(Platform::Qemu, Thp::Never, vec![run(1.0, "a"), bad]);
        assert_eq!(row.exit_status, 7);
        assert_eq!(row.checksum.as_deref(), Some("a / b"));
    }
}
