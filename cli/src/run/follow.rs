//! Following a machine: its output, split into text and records, until it stops or is ended.

use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::{Console, Filter};
use crate::report::{RunReport, status};
use crate::spec::RunSpec;

/// How long a machine may take to end after the exit record.
const GRACE: Duration = Duration::from_secs(10);

/// How often a wait looks for interrupts and time limits.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// Pieces of output that are read ahead of whoever follows it.
const PIECES: usize = 64;

/// Why following a machine's output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The output ended, or the exit record came.
    Stopped {
        exit_record: bool,
    },
    TimedOut,
    Interrupted,
}

/// Reads everything from `source` in a thread of its own. The channel closes where it ends.
pub(super) fn read_ahead(mut source: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, output) = sync_channel(PIECES);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = source.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    output
}

/// Hands output on to `console` and `report` until it ends, the run has taken too long or the user
/// wants no more.
pub(super) fn follow(
    output: &Receiver<Vec<u8>>,
    spec: &RunSpec,
    started: Instant,
    console: &mut Console,
    report: &mut RunReport,
) -> End {
    let mut filter = Filter::default();
    let mut exit_at: Option<Instant> = None;
    loop {
        if crate::interrupt::pending() {
            return End::Interrupted;
        }
        if exit_at.is_some_and(|at| at.elapsed() > GRACE) {
            return End::Stopped { exit_record: true };
        }
        if exit_at.is_none() && spec.timeout.is_some_and(|limit| started.elapsed() > limit) {
            return End::TimedOut;
        }
        let mut text = Vec::new();
        match output.recv_timeout(TICK) {
            Ok(bytes) => {
                for record in filter.feed(&bytes, &mut text) {
                    if record.get("dolmen").is_some_and(|kind| kind == "exit") {
                        exit_at = Some(Instant::now());
                    }
                    if let Some(step) = report.take(record) {
                        console.step(&step);
                    }
                }
                console.write(&text);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                filter.finish(&mut text);
                console.write(&text);
                return End::Stopped {
                    exit_record: exit_at.is_some(),
                };
            }
        }
    }
}

/// The line of a monitor's complaints that tells most: what a panic says, or else the last one that
/// is no warning.
fn telling_line(said: &str) -> &str {
    let is_warning = |line: &&str| line.contains("WARN ") || line.contains("warning: ");
    let mut lines = said.lines();
    match lines.find(|line| line.starts_with("thread '") && line.contains("panicked at")) {
        Some(place) => lines.next().unwrap_or(place),
        None => said
            .lines()
            .rfind(|line| !is_warning(line))
            .unwrap_or_default(),
    }
}

/// Says in the report how the run ended. Of a machine that stopped without an exit record the
/// caller knows `own_status`, if it gave one, and what `monitor` (its name, and what it `said`)
/// complained about.
pub(super) fn judge(
    end: End,
    spec: &RunSpec,
    own_status: Option<i32>,
    monitor: &str,
    said: &str,
    console: &Console,
    report: &mut RunReport,
) {
    match end {
        End::Stopped { exit_record: true } => {
            if report.exit_status != 0 && console.fatal() {
                report.error = console.complaint().map(str::to_owned);
            }
        }
        End::Stopped { exit_record: false } => {
            report.exit_status = own_status.unwrap_or(status::NO_RECORD);
            // The loader, which gives no records, says why it refuses.
            let refused = console.complaint().filter(|_| own_status.is_some());
            let said = telling_line(said);
            report.error = Some(match (refused, said) {
                (Some(reason), _) => reason.to_owned(),
                (None, "") => "the machine stopped without an exit record".to_owned(),
                (None, said) => {
                    format!("the machine stopped without an exit record ({monitor} says: {said})")
                }
            });
        }
        End::TimedOut => report.timed_out(spec),
        End::Interrupted => report.interrupted(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_telling_line_is_a_panics_message_or_the_last() {
        assert_eq!(telling_line(""), "");
        assert_eq!(telling_line("one\ncannot open it"), "cannot open it");
        let warned = "cannot open it\n[WARN  a::b] a race\nqemu: warning: old";
        assert_eq!(telling_line(warned), "cannot open it");
        let panic = "WARN x\nthread 'main' (1) panicked at src/a.rs:1:2:\nno such thing\nnote: run with\nnote: more";
        assert_eq!(telling_line(panic), "no such thing");
    }
}
