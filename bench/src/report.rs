//! Measures everything in turn and says how it compares.

use std::time::Duration;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, LineStyle, Table};
use serde::Serialize;

use crate::loops::{Loop, Size, Times, run};
use crate::mixed::{Mixed, mixed};
use crate::peers::{HUGE, Peer, all};
use crate::soak::{Soaked, soak};

/// The form of [`Report`].
pub const SCHEMA: &str = "dolmen-bench-frames-1";

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Frames of the pretended memory, a multiple of 512.
    pub frames: u64,
    /// How often everything is measured; medians count.
    pub repetitions: usize,
    /// Operations of the soak; 0 for none.
    pub soak_operations: u64,
    /// Time of each part of the mixed load; zero for none.
    pub mixed_time: Duration,
}

/// One row: one loop of one peer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The loop.
    pub what: Loop,
    /// log2 of the frames of one allocation.
    pub order: u8,
    /// Threads at work.
    pub threads: usize,
    /// The allocator.
    pub peer: &'static str,
    /// Medians.
    pub median: Times,
    /// Lowest and highest time of an allocation (of a pair).
    pub get_range: [f64; 2],
}

/// The soak of one peer.
#[derive(Debug, Clone, Serialize)]
pub struct SoakRow {
    /// The allocator.
    pub peer: &'static str,
    /// What was found.
    pub soaked: Soaked,
    /// The share of free memory in whole blocks of 2 MiB.
    pub whole_share: f64,
}

/// The mixed load of one peer.
#[derive(Debug, Clone, Serialize)]
pub struct MixedRow {
    /// The allocator.
    pub peer: &'static str,
    /// Medians of all repetitions.
    pub mixed: Mixed,
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Frames of the pretended memory.
    pub frames: u64,
    /// How often each was measured.
    pub repetitions: usize,
    /// The loops.
    pub loops: Vec<Row>,
    /// The soak.
    pub soak: Vec<SoakRow>,
    /// The mixed load.
    pub mixed: Vec<MixedRow>,
}

/// The largest number of threads.
const THREADS: usize = 2;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Measures; `progress` hears what comes next.
pub fn measure(plan: &Plan, mut progress: impl FnMut(&str)) -> Report {
    let peers = all(plan.frames, THREADS);
    let mut loops = Vec::new();
    for threads in 1..=THREADS {
        for order in [0, HUGE] {
            for what in Loop::ALL {
                let size = Size {
                    frames: plan.frames,
                    threads,
                    order,
                };
                progress(&format!("{} order {order} threads {threads}", what.name()));
                loops.extend(rows(&peers, what, size, plan.repetitions));
            }
        }
    }
    let mut report = Report {
        schema: SCHEMA,
        frames: plan.frames,
        repetitions: plan.repetitions,
        loops,
        soak: Vec::new(),
        mixed: Vec::new(),
    };
    if !plan.mixed_time.is_zero() {
        progress("the mixed load");
        report.mixed = mixed_rows(&peers, plan);
    }
    if plan.soak_operations > 0 {
        for peer in &peers {
            progress(&format!("soak of {}", peer.name()));
            let soaked = soak(&**peer, plan.frames, plan.soak_operations, THREADS, 1);
            report.soak.push(SoakRow {
                peer: peer.name(),
                whole_share: soaked.whole_share(),
                soaked,
            });
        }
    }
    report
}

fn rows(peers: &[Box<dyn Peer>], what: Loop, size: Size, repetitions: usize) -> Vec<Row> {
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); peers.len()];
    // The first round warms caches up and does not count.
    for repetition in 0..=repetitions {
        for (peer, times) in peers.iter().zip(&mut times) {
            let time = run(&**peer, what, size);
            if repetition > 0 {
                times.push(time);
            }
        }
    }
    let row = |(peer, times): (&dyn Peer, &Vec<Times>)| {
        let gets = || times.iter().map(|times| times.get);
        Row {
            what,
            order: size.order,
            threads: size.threads,
            peer: peer.name(),
            median: Times {
                get: median(gets().collect()),
                put: median(times.iter().map(|times| times.put).collect()),
            },
            get_range: [
                gets().fold(f64::INFINITY, f64::min),
                gets().fold(0.0, f64::max),
            ],
        }
    };
    let peers = peers.iter().map(|peer| &**peer);
    peers.zip(&times).map(row).collect()
}

fn mixed_rows(peers: &[Box<dyn Peer>], plan: &Plan) -> Vec<MixedRow> {
    let mut all: Vec<Vec<Mixed>> = vec![Vec::new(); peers.len()];
    for _ in 0..plan.repetitions {
        for (peer, all) in peers.iter().zip(&mut all) {
            all.push(mixed(&**peer, plan.frames, plan.mixed_time));
        }
    }
    let row = |(peer, all): (&dyn Peer, &Vec<Mixed>)| {
        let of = |field: fn(&Mixed) -> f64| median(all.iter().map(field).collect());
        MixedRow {
            peer: peer.name(),
            mixed: Mixed {
                base_alone: of(|mixed| mixed.base_alone),
                base_beside: of(|mixed| mixed.base_beside),
                huge_alone: of(|mixed| mixed.huge_alone),
                huge_beside: of(|mixed| mixed.huge_beside),
                huge_refused: of(|mixed| mixed.huge_refused),
            },
        }
    };
    let peers = peers.iter().map(|peer| &**peer);
    peers.zip(&all).map(row).collect()
}

impl Report {
    fn time(&self, like: &Row, peer: &str, threads: usize) -> Option<Times> {
        let row = self.loops.iter().find(|row| {
            (row.what, row.order, row.threads, row.peer) == (like.what, like.order, threads, peer)
        })?;
        Some(row.median)
    }

    /// The tables for a terminal.
    pub fn tables(&self) -> String {
        let mut text = format!(
            "{} MiB of pretended memory, medians of {} repetitions, ns for one operation of one thread\n{}\n",
            self.frames / 256,
            self.repetitions,
            self.loop_table()
        );
        if !self.mixed.is_empty() {
            text.push_str(&format!(
                "\nSingle frames beside huge pages, 90 % of memory used, in millions of allocations per second\n{}\n",
                self.mixed_table()
            ));
        }
        if !self.soak.is_empty() {
            text.push_str(&format!(
                "\nAfter many allocations of random order and lifetime at 75 % occupancy\n{}\n",
                self.soak_table()
            ));
        }
        text
    }

    fn loop_table(&self) -> Table {
        let mut table = table(&[
            "loop",
            "order",
            "threads",
            "allocator",
            "get",
            "put",
            "x dolmen get",
            "x dolmen put",
            "scaling",
        ]);
        for row in &self.loops {
            let dolmen = self.time(row, "dolmen", row.threads).unwrap_or(row.median);
            let put = |value: f64, digits: usize| {
                if row.what == Loop::Repeat {
                    String::new()
                } else {
                    format!("{value:.digits$}")
                }
            };
            let scaling = self.time(row, row.peer, 1).filter(|_| row.threads > 1);
            let total = |times: Times| times.get + times.put;
            table.add_row([
                row.what.name().to_owned(),
                row.order.to_string(),
                row.threads.to_string(),
                row.peer.to_owned(),
                format!("{:.1}", row.median.get),
                put(row.median.put, 1),
                format!("{:.1}", row.median.get / dolmen.get),
                put(row.median.put / dolmen.put, 1),
                scaling.map_or_else(String::new, |one| {
                    format!("{:.2}", row.threads as f64 * total(one) / total(row.median))
                }),
            ]);
        }
        table
    }

    fn mixed_table(&self) -> Table {
        let mut table = table(&[
            "allocator",
            "4K alone",
            "4K beside",
            "kept",
            "2M alone",
            "2M beside",
            "kept",
            "2M refused",
        ]);
        for row in &self.mixed {
            let mixed = row.mixed;
            let millions = |rate: f64| format!("{:.2}", rate / 1e6);
            let kept = |beside: f64, alone: f64| format!("{:.0} %", 100.0 * beside / alone);
            table.add_row([
                row.peer.to_owned(),
                millions(mixed.base_alone),
                millions(mixed.base_beside),
                kept(mixed.base_beside, mixed.base_alone),
                millions(mixed.huge_alone),
                millions(mixed.huge_beside),
                kept(mixed.huge_beside, mixed.huge_alone),
                format!("{:.1} %", 100.0 * mixed.huge_refused),
            ]);
        }
        table
    }

    fn soak_table(&self) -> Table {
        let mut table = table(&[
            "allocator",
            "operations",
            "refused",
            "free",
            "in whole 2 MiB blocks",
        ]);
        for row in &self.soak {
            table.add_row([
                row.peer.to_owned(),
                row.soaked.operations.to_string(),
                row.soaked.refused.to_string(),
                format!("{} MiB", row.soaked.free.frames / 256),
                format!("{:.1} %", 100.0 * row.whole_share),
            ]);
        }
        table
    }
}

fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_header(heads);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_plan_gives_every_row_and_key() {
        let plan = Plan {
            frames: 256 * 512,
            repetitions: 1,
            soak_operations: 1000,
            mixed_time: Duration::from_millis(1),
        };
        let report = measure(&plan, |_| {});
        // 2 thread counts, 2 orders, 3 loops, 4 peers.
        assert_eq!(report.loops.len(), 48);
        assert_eq!((report.soak.len(), report.mixed.len()), (4, 4));
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(value["schema"], SCHEMA);
        for key in ["what", "order", "threads", "peer", "median", "get_range"] {
            assert!(value["loops"][0].get(key).is_some(), "{key}");
        }
        let text = report.tables();
        assert!(text.contains("zone lock, merging") && text.contains("512 MiB"));
    }
}
