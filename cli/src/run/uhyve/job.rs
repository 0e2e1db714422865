//! One run of uhyve in the emulated Linux, seen through the port that carries its output.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::run::follow::TICK;

/// A uhyve that runs in the Linux.
pub(in crate::run) struct Job {
    output: Receiver<Vec<u8>>,
    end: JoinHandle<Option<i32>>,
}

impl Job {
    /// Follows `console` to the end that `token` marks.
    pub(super) fn new(console: UnixStream, token: &str) -> Self {
        let (sender, output) = sync_channel(64);
        let mut ending = Ending::new(token);
        let end = std::thread::spawn(move || {
            let mut console = console;
            let mut buffer = vec![0; 16 << 10];
            loop {
                let length = console
                    .read(&mut buffer)
                    .ok()
                    .filter(|&length| length > 0)?;
                let text = ending.feed(&buffer[..length]);
                // A run that nobody follows any more is still read to its end.
                let _ = sender.send(text);
                if let Some(status) = ending.status() {
                    return Some(status);
                }
            }
        });
        Self { output, end }
    }

    /// What the guest prints, until uhyve ends.
    pub(in crate::run) fn output(&self) -> &Receiver<Vec<u8>> {
        &self.output
    }

    /// Whether uhyve, or the Linux, has ended.
    pub(in crate::run) fn ended(&self) -> bool {
        self.end.is_finished()
    }

    /// Whether it ends before `limit` is over. Its output goes nowhere meanwhile.
    pub(super) fn ends_within(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if let Err(RecvTimeoutError::Disconnected) = self.output.recv_timeout(TICK) {
                return true;
            }
        }
        false
    }

    /// uhyve's status; `None` if the Linux has stopped.
    pub(in crate::run) fn status(self) -> Option<i32> {
        // The thread must not wait for somebody who takes its output.
        drop(self.output);
        self.end.join().ok().flatten()
    }
}

/// Finds the end of a job in its output: a line with the job's token and the status.
struct Ending {
    mark: Vec<u8>,
    /// What may be the beginning of the end.
    kept: Vec<u8>,
    status: Option<i32>,
}

impl Ending {
    fn new(token: &str) -> Self {
        Self {
            mark: format!("\x1f{token} ").into_bytes(),
            kept: Vec::new(),
            status: None,
        }
    }

    /// Takes output; returns what certainly is output.
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.kept.extend_from_slice(bytes);
        let mark = self.mark.as_slice();
        let starts = |at: &usize| {
            let rest = &self.kept[*at..];
            rest.starts_with(mark) || mark.starts_with(rest)
        };
        let Some(at) = (0..self.kept.len()).find(starts) else {
            return std::mem::take(&mut self.kept);
        };
        let rest = &self.kept[at..];
        if let Some(words) = rest.strip_prefix(mark)
            && let Some(end) = words.iter().position(|&byte| byte == b'\n')
        {
            let words = String::from_utf8_lossy(&words[..end]);
            self.status = Some(words.trim().parse().unwrap_or(1));
        }
        self.kept.drain(..at).collect()
    }

    fn status(&self) -> Option<i32> {
        self.status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_wherever_the_reads_end() {
        let stream = b"one\x1ftwo\x1fjob-1\n\x1fjob-12 3\n";
        for size in 1..=stream.len() {
            let mut ending = Ending::new("job-12");
            let mut text = Vec::new();
            for piece in stream.chunks(size) {
                assert_eq!(ending.status(), None);
                text.extend(ending.feed(piece));
            }
            assert_eq!(text, b"one\x1ftwo\x1fjob-1\n", "reads of {size}");
            assert_eq!(ending.status(), Some(3));
        }
    }
}
