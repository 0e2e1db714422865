//! The process that runs a machine: QEMU or uhyve.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::follow::{TICK, read_ahead};
use super::os::{Start, arrange};

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
    complaint: Arc<Mutex<Vec<u8>>>,
    listener: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts `command`, arranged like this.
    pub(super) fn start(mut command: Command, start: Start) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        arrange(&mut command, start);
        let program = command.get_program().display().to_string();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let stdout = child.stdout.take().context("the machine has no output")?;
        let mut stderr = child.stderr.take().context("the machine has no messages")?;
        let complaint = Arc::new(Mutex::new(Vec::new()));
        let heard = complaint.clone();
        let listener = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Half a message is better than none.
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.extend_from_slice(&buffer[..length]);
            }
        });
        Ok(Self {
            child,
            output: read_ahead(stdout),
            complaint,
            listener: Some(listener),
        })
    }

    /// What the machine prints.
    pub(super) fn output(&self) -> &Receiver<Vec<u8>> {
        &self.output
    }

    /// What it has written to standard error so far.
    pub(super) fn said(&self) -> String {
        let heard = self.complaint.lock();
        let heard = heard.unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&heard).trim().to_owned()
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
        if let Some(listener) = self.listener.take() {
            // It cannot panic, and what it heard counts anyway.
            let _ = listener.join();
        }
        Ended {
            code,
            complaint: self.said(),
        }
    }

    /// How it ended, if it has ended by itself.
    pub(super) fn ended(&mut self) -> Option<Ended> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(Ended {
            code: status.code(),
            ..self.end()
        })
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
