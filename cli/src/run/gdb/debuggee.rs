//! A machine that waits for a debugger, or has one.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::run::monitor::Monitor;
use crate::run::uhyve::{Files, Job, Nested};
use crate::run::{Console, Filter};

/// How long a machine whose debugger is gone may go on before it is ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// The statuses with which QEMU and uhyve themselves fail.
const FAILURES: [i32; 2] = [1, 101];

/// How a debugger learns where in memory the image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) enum Whereabouts {
    /// From this loader, when it enters the image.
    Loader(PathBuf),
    /// The machine has halted at the image's first instruction.
    Halted,
}

/// The machine. It does not outlive this value.
pub(in crate::run) struct Debuggee {
    machine: Machine,
    /// What gdb connects to.
    pub(super) target: String,
    pub(super) whereabouts: Whereabouts,
    filter: Filter,
    /// Since when the machine prints no more, which is its end.
    silent: Option<Instant>,
    /// What the application has ended with.
    status: Option<i32>,
}

enum Machine {
    Own(Monitor),
    Nested {
        linux: Nested,
        job: Job,
        files: Files,
    },
}

impl Debuggee {
    /// A machine whose monitor is a process of this host.
    pub(in crate::run) fn on_this_host(
        monitor: Monitor,
        target: String,
        whereabouts: Whereabouts,
    ) -> Self {
        Self::new(Machine::Own(monitor), target, whereabouts)
    }

    /// A machine under uhyve in an emulated Linux.
    pub(in crate::run) fn in_nested(linux: Nested, job: Job, files: Files, target: String) -> Self {
        let machine = Machine::Nested { linux, job, files };
        Self::new(machine, target, Whereabouts::Halted)
    }

    fn new(machine: Machine, target: String, whereabouts: Whereabouts) -> Self {
        Self {
            machine,
            target,
            whereabouts,
            filter: Filter::default(),
            silent: None,
            status: None,
        }
    }

    fn output(&self) -> &Receiver<Vec<u8>> {
        match &self.machine {
            Machine::Own(monitor) => monitor.output(),
            Machine::Nested { job, .. } => job.output(),
        }
    }

    /// Shows what the machine prints during the next `time`.
    pub(super) fn show(&mut self, time: Duration, console: &mut Console) {
        if let Some(since) = self.silent {
            // uhyve tells gdb how it ends, unless it fails: then nobody would.
            if let Machine::Nested { linux, .. } = &self.machine
                && since.elapsed() > PATIENCE
            {
                linux.unbridge();
            }
            std::thread::sleep(time);
            return;
        }
        let mut text = Vec::new();
        match self.output().recv_timeout(time) {
            Ok(bytes) => {
                // The other records are for the reports of whole runs.
                for record in self.filter.feed(&bytes, &mut text) {
                    if record.get("dolmen").is_some_and(|kind| kind == "exit") {
                        let status = record.get("status").and_then(Value::as_i64);
                        self.status = status.and_then(|status| i32::try_from(status).ok());
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.filter.finish(&mut text);
                self.silent = Some(Instant::now());
            }
        }
        console.write(&text);
    }

    /// Ends the machine, which has a moment to end by itself; shows the rest of what it prints and
    /// brings back the files that it has written.
    pub(super) fn end(mut self, console: &mut Console) -> Result<Ended> {
        let begin = Instant::now();
        while self.silent.is_none() && begin.elapsed() < PATIENCE {
            self.show(PATIENCE / 100, console);
        }
        let (code, said) = match self.machine {
            Machine::Own(mut monitor) => {
                let ended = monitor.end();
                (ended.code, ended.complaint)
            }
            Machine::Nested {
                mut linux,
                job,
                files,
            } => {
                linux.kill(&job)?;
                let code = job.status();
                let said = linux.complaint()?;
                files.receive(&mut linux)?;
                (code, said)
            }
        };
        let failed = code.is_some_and(|code| FAILURES.contains(&code));
        Ok(Ended {
            status: self.status,
            complaint: (failed && self.status.is_none() && !said.is_empty()).then_some(said),
        })
    }
}

/// How it ended.
pub(super) struct Ended {
    /// The application's status, if it came to its end.
    pub(super) status: Option<i32>,
    /// What the monitor says, if it was the monitor that failed.
    pub(super) complaint: Option<String>,
}
