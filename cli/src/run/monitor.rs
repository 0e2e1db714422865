//! The process that runs a machine: QEMU or uhyve.

use std::io::Read;
use std::process::Child;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::follow::{TICK, read_ahead};

/// How a monitor ended.
pub(super) struct Ended {
    /// Its exit code, if it ended by itself.
    pub(super) code: Option<i32>,
    /// What it wrote to standard error.
    pub(super) complaint: String,
}

/// A monitor that runs. It does not outlive this value.
pub(super) struct Monitor {
    child: Child,
    output: Receiver<Vec<u8>>,
    complaint: Option<JoinHandle<String>>,
}

impl Monitor {
    /// Takes over `child`, whose output and error are piped.
    pub(super) fn new(mut child: Child) -> Result<Self> {
        let stdout = child.stdout.take().context("the machine has no output")?;
        let mut stderr = child.stderr.take().context("the machine has no messages")?;
        let complaint = std::thread::spawn(move || {
            let mut said = Vec::new();
            // Half a message is better than none.
            let _ = stderr.read_to_end(&mut said);
            String::from_utf8_lossy(&said).trim().to_owned()
        });
        Ok(Self {
            child,
            output: read_ahead(stdout),
            complaint: Some(complaint),
        })
    }

    /// What the machine prints.
    pub(super) fn output(&self) -> &Receiver<Vec<u8>> {
        &self.output
    }

    /// Makes sure that it has ended, and tells how. A machine that printed its last has a moment to
    /// end by itself, and with its own code.
    pub(super) fn end(&mut self) -> Ended {
        let patience = Instant::now();
        let mut code = None;
        while code.is_none() && patience.elapsed() < TICK {
            code = self.child.try_wait().ok().flatten().and_then(|s| s.code());
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stop();
        let complaint = self
            .complaint
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        Ended { code, complaint }
    }

    fn stop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop();
    }
}
