//! What a comparison says in words.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Row;
use crate::spec::Thp;

/// The sentences below the table, and whether all is well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// No run failed, and equal thread counts gave equal checksums.
    pub good: bool,
    /// Whether checksums agree; absent if the application reports none.
    pub checksums_agree: Option<bool>,
    /// One sentence each.
    pub sentences: Vec<String>,
}

/// Judges the rows.
pub fn verdict(rows: &[Row]) -> Verdict {
    let mut sentences = failures(rows);
    let failed = !sentences.is_empty();
    let (checksums_agree, about_checksums) = checksums(rows);
    sentences.extend(about_checksums);
    sentences.extend(ratios(rows));
    sentences.extend(fastest(rows));
    Verdict {
        good: !failed && checksums_agree != Some(false),
        checksums_agree,
        sentences,
    }
}

fn failures(rows: &[Row]) -> Vec<String> {
    rows.iter()
        .filter(|row| row.exit_status != 0)
        .map(|row| {
            let reason = row.runs.iter().find_map(|run| run.error.as_deref());
            format!(
                "FAILED: {}: {}",
                row.configuration,
                reason.map_or_else(|| format!("status {}", row.exit_status), str::to_owned)
            )
        })
        .collect()
}

/// The same threads must compute the same bits, whatever the mode and the platform. Another number of
/// threads adds in another order.
fn checksums(rows: &[Row]) -> (Option<bool>, Vec<String>) {
    let mut by_threads: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.exit_status == 0) {
        if let Some(checksum) = &row.checksum {
            by_threads.entry(row.threads).or_default().insert(checksum);
        }
    }
    if by_threads.is_empty() {
        return (None, Vec::new());
    }
    let differing: Vec<String> = by_threads
        .iter()
        .filter(|(_, sums)| sums.len() > 1 || sums.iter().any(|sum| sum.contains(" / ")))
        .map(|(threads, sums)| {
            let sums: Vec<&str> = sums.iter().copied().collect();
            format!(
                "CHECKSUMS DIFFER with {threads} threads: {}.",
                sums.join(", ")
            )
        })
        .collect();
    if differing.is_empty() {
        let sentence = match rows.len() {
            1 => Vec::new(),
            _ => vec!["Checksums agree.".to_owned()],
        };
        return (Some(true), sentence);
    }
    (Some(false), differing)
}

/// Each mode against `never`, or the first one, on the same machine.
fn ratios(rows: &[Row]) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for row in rows {
        let place = row.configuration.place();
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
        .iter()
        .filter_map(|place| {
            let here: Vec<&Row> = rows
                .iter()
                .filter(|row| row.exit_status == 0 && row.configuration.place() == *place)
                .collect();
            let base = here
                .iter()
                .find(|row| row.configuration.thp == Thp::Never)
                .or(here.first())?;
            let others: Vec<String> = here
                .iter()
                .filter(|row| row.configuration != base.configuration && base.wall_s > 0.0)
                .map(|row| {
                    format!(
                        "thp {} takes {:.2} times the wall time of {}",
                        row.configuration.thp,
                        row.wall_s / base.wall_s,
                        base.configuration.thp
                    )
                })
                .collect();
            (!others.is_empty()).then(|| format!("On {place}, {}.", others.join(" and ")))
        })
        .collect()
}

/// The best combination of each platform: times of different platforms are not comparable, one of
/// them is emulated.
fn fastest(rows: &[Row]) -> Vec<String> {
    let mut seen = Vec::new();
    let mut sentences = Vec::new();
    for row in rows {
        let platform = row.configuration.platform;
        if seen.contains(&platform) {
            continue;
        }
        seen.push(platform);
        let mut of_platform: Vec<&Row> = rows
            .iter()
            .filter(|r| r.configuration.platform == platform && r.exit_status == 0)
            .collect();
        of_platform.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
        if let [best, _, ..] = of_platform.as_slice() {
            sentences.push(format!(
                "Fastest on {platform}: {} ({:.2} s).",
                best.configuration, best.wall_s
            ));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::super::tests::{row, run};
    use super::*;
    use crate::spec::Platform;

    #[test]
    fn good_runs_get_a_ratio_and_a_winner() {
        let verdict = verdict(&[
            row(Platform::Qemu, Thp::Never, vec![run(4.0, "a")]),
            row(Platform::Qemu, Thp::Always, vec![run(3.0, "a")]),
            row(Platform::Linux, Thp::Never, vec![run(1.0, "a")]),
        ]);
        assert!(verdict.good);
        assert_eq!(
            verdict.sentences,
            [
                "Checksums agree.",
                "On qemu, 4 CPUs, 2 nodes, thp always takes 0.75 times the wall time of never.",
                "Fastest on qemu: qemu, 4 CPUs, 2 nodes, thp always (3.00 s).",
            ]
        );
    }

    #[test]
    fn different_checksums_are_an_alarm_only_for_the_same_threads() {
        let mut other = run(1.0, "b");
        let rows = |other| {
            [
                row(Platform::Qemu, Thp::Never, vec![run(1.0, "a")]),
                row(Platform::Qemu, Thp::Always, vec![other]),
            ]
        };
        let bad = verdict(&rows(other.clone()));
        assert!(!bad.good);
        assert_eq!(bad.checksums_agree, Some(false));
        assert!(bad.sentences[0].starts_with("CHECKSUMS DIFFER with 4 threads: a, b"));
        other.app_report.insert("threads".into(), 2.into());
        assert!(verdict(&rows(other)).good);
    }

    #[test]
    fn runs_of_one_row_must_agree_too() {
        let rows = [row(
            Platform::Qemu,
            Thp::Never,
            vec![run(1.0, "a"), run(1.0, "b")],
        )];
        assert_eq!(verdict(&rows).checksums_agree, Some(false));
    }

    #[test]
    fn failures_come_first_and_spoil_everything() {
        let mut bad = run(1.0, "a");
        bad.exit_status = 134;
        bad.error = Some("it broke".into());
        let verdict = verdict(&[row(Platform::Qemu, Thp::Never, vec![bad])]);
        assert!(!verdict.good);
        assert_eq!(
            verdict.sentences[0],
            "FAILED: qemu, 4 CPUs, 2 nodes, thp never: it broke"
        );
        assert_eq!(verdict.checksums_agree, None);
    }
}
