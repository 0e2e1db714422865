//! Measures everything in turn and says how it compares.

use anyhow::Result;
use serde::Serialize;

use crate::llfree::{GIB_FRAMES, LlfreeRow, Programs};
use crate::loops::{Fill, Loop, Size, Times, run};
use crate::mixed::{Mixed, Rate, mixed};
use crate::peers::{FreeMemory, HUGE, Peer, all};
use crate::soak::{Soaked, soak};
use crate::summary::{median, ratio};

/// The form of [`Report`].
pub const SCHEMA: &str = "dolmen-bench-frames-1";

/// The largest number of threads.
pub const THREADS: usize = 2;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Frames of the pretended memory, a multiple of 512.
    pub frames: u64,
    /// How often everything is measured; medians count.
    pub repetitions: usize,
    /// How often each thread does its part of a loop in a turn, for huge pages, which are few; once
    /// for single frames.
    pub huge_rounds: usize,
    /// Allocations by each task of the mixed load, where that is wanted.
    pub mixed_allocations: Option<u64>,
    /// Operations of the soak, where that is wanted.
    pub soak_operations: Option<u64>,
    /// LLFree's program and ours, where they are to be compared.
    pub llfree: Option<Programs>,
}

/// One kind of operation of one loop.
#[derive(Debug, Clone, Serialize)]
pub struct Operation {
    /// The median time, in ns for each thread.
    pub ns: f64,
    /// The lowest time.
    pub low: f64,
    /// The highest time.
    pub high: f64,
    /// This time through Dolmen's, the median turn by turn.
    pub to_dolmen: f64,
    /// Throughput of all threads through that of one, the median turn by turn.
    pub scaling: f64,
}

/// One row: one loop of one peer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The loop.
    #[serde(rename = "loop")]
    pub what: Loop,
    /// log2 of the frames of one allocation.
    pub order: u8,
    /// Threads at work.
    pub threads: usize,
    /// The allocator.
    pub allocator: &'static str,
    /// Allocations; pairs for [`Loop::Repeat`].
    pub get: Operation,
    /// Frees; nothing for [`Loop::Repeat`].
    pub put: Option<Operation>,
}

/// One task of the mixed load: medians of all repetitions.
#[derive(Debug, Clone, Serialize)]
pub struct Task {
    /// Allocations per second, alone.
    pub alone: f64,
    /// Allocations per second, beside the other task.
    pub beside: f64,
    /// The second through the first, turn by turn.
    pub kept: f64,
    /// The share of what it asked for, beside the other task, that was not to be had.
    pub refused: f64,
}

/// The mixed load of one peer.
#[derive(Debug, Clone, Serialize)]
pub struct MixedRow {
    /// The allocator.
    pub allocator: &'static str,
    /// The task with single frames.
    pub base: Task,
    /// The task with huge pages.
    pub huge: Task,
}

/// The soak of one peer.
#[derive(Debug, Clone, Serialize)]
pub struct SoakRow {
    /// The allocator.
    pub allocator: &'static str,
    /// Allocations and frees.
    pub operations: u64,
    /// Allocations that found no run.
    pub refused: u64,
    /// What is free at the end.
    pub free: FreeMemory,
    /// The share of free memory in whole blocks of 2 MiB.
    pub whole_share: f64,
}

/// The comparison with LLFree.
#[derive(Debug, Clone, Serialize)]
pub struct LlfreeReport {
    /// Frames of the pretended memory, of which half are used.
    pub frames: u64,
    /// The loops.
    pub loops: Vec<LlfreeRow>,
}

/// Everything. What was not asked for is null.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Frames of the pretended memory.
    pub frames: u64,
    /// Processors that this program may use. With fewer than threads, times say little.
    pub cpus: usize,
    /// How often each was measured.
    pub repetitions: usize,
    /// The loops.
    pub loops: Vec<Row>,
    /// The mixed load.
    pub mixed: Option<Vec<MixedRow>>,
    /// The soak.
    pub soak: Option<Vec<SoakRow>>,
    /// LLFree.
    pub llfree: Option<LlfreeReport>,
}

/// Measures; `progress` hears what comes next.
pub fn measure(plan: &Plan, mut progress: impl FnMut(&str)) -> Result<Report> {
    // First, since it is what can fail.
    let llfree = match &plan.llfree {
        Some(programs) => {
            let gib = plan.frames.div_ceil(GIB_FRAMES);
            let loops = programs.measure(gib, THREADS, plan.repetitions, &mut progress)?;
            let frames = gib * GIB_FRAMES;
            Some(LlfreeReport { frames, loops })
        }
        None => None,
    };
    let peers = all(plan.frames, THREADS);
    let mut loops = Vec::new();
    for order in [0, HUGE] {
        for what in Loop::ALL {
            progress(&format!("{} of order {order}", what.name()));
            loops.extend(rows(&peers, what, order, plan)?);
        }
    }
    let mixed = plan.mixed_allocations.map(|allocations| {
        progress("the mixed load");
        mixed_rows(&peers, plan, allocations)
    });
    let soak = plan.soak_operations.map(|operations| {
        let rows = peers.iter().map(|peer| {
            progress(&format!("the soak of {}", peer.name()));
            let soaked = soak(&**peer, plan.frames, operations, THREADS, 1);
            soak_row(peer.name(), soaked)
        });
        rows.collect()
    });
    Ok(Report {
        schema: SCHEMA,
        frames: plan.frames,
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        repetitions: plan.repetitions,
        loops,
        mixed,
        soak,
        llfree,
    })
}

/// A loop on all numbers of threads. A turn is all peers on all numbers of threads.
fn rows(peers: &[Box<dyn Peer>], what: Loop, order: u8, plan: &Plan) -> Result<Vec<Row>> {
    // By threads and peer, a time of every turn.
    let mut times: Vec<Vec<Vec<Times>>> = vec![vec![Vec::new(); peers.len()]; THREADS];
    for _ in 0..plan.repetitions {
        for (threads, times) in times.iter_mut().enumerate() {
            for (peer, times) in peers.iter().zip(times) {
                let size = Size {
                    frames: plan.frames,
                    threads: threads + 1,
                    order,
                    fill: Fill::All,
                    rounds: if order == HUGE { plan.huge_rounds } else { 1 },
                };
                times.push(run(&**peer, what, size)?);
            }
        }
    }
    let operation = |threads: usize, peer: usize, of: fn(&Times) -> Option<f64>| {
        let series = |threads: usize, peer: usize| -> Vec<f64> {
            times[threads][peer].iter().filter_map(of).collect()
        };
        let own = series(threads, peer);
        (!own.is_empty()).then(|| Operation {
            ns: median(own.iter().copied()),
            low: own.iter().copied().fold(f64::INFINITY, f64::min),
            high: own.iter().copied().fold(0.0, f64::max),
            to_dolmen: ratio(&own, &series(threads, 0)),
            scaling: (threads + 1) as f64 * ratio(&series(0, peer), &own),
        })
    };
    let mut rows = Vec::new();
    for threads in 0..THREADS {
        for (index, peer) in peers.iter().enumerate() {
            rows.extend(
                operation(threads, index, |times| Some(times.get)).map(|get| Row {
                    what,
                    order,
                    threads: threads + 1,
                    allocator: peer.name(),
                    get,
                    put: operation(threads, index, |times| times.put),
                }),
            );
        }
    }
    Ok(rows)
}

fn mixed_rows(peers: &[Box<dyn Peer>], plan: &Plan, allocations: u64) -> Vec<MixedRow> {
    let mut turns: Vec<Vec<Mixed>> = vec![Vec::new(); peers.len()];
    for _ in 0..plan.repetitions {
        for (peer, turns) in peers.iter().zip(&mut turns) {
            turns.push(mixed(&**peer, plan.frames, allocations));
        }
    }
    let task = |turns: &[Mixed], alone: fn(&Mixed) -> Rate, beside: fn(&Mixed) -> Rate| {
        let rates = |of: fn(&Mixed) -> Rate| -> Vec<f64> {
            turns.iter().map(|turn| of(turn).per_second).collect()
        };
        Task {
            alone: median(rates(alone)),
            beside: median(rates(beside)),
            kept: ratio(&rates(beside), &rates(alone)),
            refused: median(turns.iter().map(|turn| beside(turn).refused)),
        }
    };
    let rows = peers.iter().zip(&turns).map(|(peer, turns)| MixedRow {
        allocator: peer.name(),
        base: task(turns, |turn| turn.base_alone, |turn| turn.base_beside),
        huge: task(turns, |turn| turn.huge_alone, |turn| turn.huge_beside),
    });
    rows.collect()
}

fn soak_row(allocator: &'static str, soaked: Soaked) -> SoakRow {
    SoakRow {
        allocator,
        operations: soaked.operations,
        refused: soaked.refused,
        free: soaked.free,
        whole_share: soaked.whole_share(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Plan {
        Plan {
            frames: 16 * 512,
            repetitions: 2,
            huge_rounds: 2,
            mixed_allocations: None,
            soak_operations: None,
            llfree: None,
        }
    }

    #[test]
    fn every_loop_has_a_row_for_every_allocator() {
        let report = measure(&small(), |_| {}).unwrap();
        // 2 numbers of threads, 2 orders, 3 loops, 4 allocators.
        assert_eq!(report.loops.len(), 48);
        for row in &report.loops {
            let name = row.allocator;
            assert_eq!(row.put.is_none(), row.what == Loop::Repeat, "{name}");
            for operation in [Some(&row.get), row.put.as_ref()].into_iter().flatten() {
                assert!(operation.low <= operation.ns && operation.ns <= operation.high);
                assert!(operation.scaling > 0.0, "{name}");
                if name == "dolmen" {
                    assert_eq!(operation.to_dolmen, 1.0);
                }
                if row.threads == 1 {
                    assert_eq!(operation.scaling, 1.0);
                }
            }
        }
    }

    #[test]
    fn what_was_not_asked_for_is_null() {
        let value = serde_json::to_value(measure(&small(), |_| {}).unwrap()).unwrap();
        for key in ["mixed", "soak", "llfree"] {
            assert!(value.get(key).is_some_and(|value| value.is_null()), "{key}");
        }
    }
}
