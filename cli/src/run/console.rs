//! What an application prints, and how far it says it is.

use std::io::{IsTerminal, Write};

use crate::progress::Progress;
use crate::report::Step;

/// Where an application's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// To standard output as it comes.
    Live,
    /// Kept, to be shown if the run fails.
    Kept,
}

/// Receives output and progress of a run.
#[derive(Debug)]
pub struct Console {
    sink: Sink,
    /// All output if it is kept; otherwise a line that a bar keeps from being shown.
    buffer: Vec<u8>,
    progress: Option<Progress>,
    title: String,
    shows_progress: bool,
    /// The line that is being printed, and what the runtime said last about itself.
    line: Vec<u8>,
    complaint: Option<String>,
}

/// How lines of the runtime and the loader begin, which an application's do not.
const SIGNATURES: [&str; 2] = ["dolmen: ", "dolmen-loader: "];

/// How the sentence begins that says why the runtime ended a run; details follow it.
const FATAL: &str = "fatal: ";

/// No sentence of the runtime is longer.
const LONGEST_LINE: usize = 4096;

impl Console {
    /// A console; `title` stands in front of progress.
    pub fn new(sink: Sink, title: &str) -> Self {
        Self {
            sink,
            buffer: Vec::new(),
            progress: None,
            title: title.to_owned(),
            shows_progress: true,
            line: Vec::new(),
            complaint: None,
        }
    }

    /// A console that keeps everything and shows nothing.
    pub fn silent() -> Self {
        Self {
            shows_progress: false,
            ..Self::new(Sink::Kept, "")
        }
    }

    /// Takes a piece of output.
    pub fn write(&mut self, bytes: &[u8]) {
        self.listen(bytes);
        match (self.sink, &self.progress) {
            (Sink::Kept, _) => self.buffer.extend_from_slice(bytes),
            (Sink::Live, None) => show(bytes),
            (Sink::Live, Some(progress)) => {
                // On a terminal the bar takes the line the output would stand on: whole lines only.
                self.buffer.extend_from_slice(bytes);
                let whole = if std::io::stdout().is_terminal() {
                    self.buffer
                        .iter()
                        .rposition(|&b| b == b'\n')
                        .map_or(0, |at| at + 1)
                } else {
                    self.buffer.len()
                };
                let lines: Vec<u8> = self.buffer.drain(..whole).collect();
                if !lines.is_empty() {
                    progress.suspend(|| show(&lines));
                }
            }
        }
    }

    fn listen(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte != b'\n' {
                if self.line.len() < LONGEST_LINE {
                    self.line.push(byte);
                }
                continue;
            }
            let line = String::from_utf8_lossy(&self.line);
            let line = line.trim_end();
            if let Some(said) = SIGNATURES.iter().find_map(|by| line.strip_prefix(by))
                && !self.fatal()
            {
                self.complaint = Some(said.to_owned());
            }
            self.line.clear();
        }
    }

    /// What the runtime or the loader said last about itself; or why it ended the run.
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// Whether [`Console::complaint`] says why the run was ended.
    pub fn fatal(&self) -> bool {
        self.complaint().is_some_and(|said| said.starts_with(FATAL))
    }

    /// Takes a step.
    pub fn step(&mut self, step: &Step) {
        if self.shows_progress {
            self.progress
                .get_or_insert_with(|| Progress::counter(&self.title))
                .step(step.done, step.total, &step.what);
        }
    }

    /// The run is over.
    pub fn finish(&mut self) {
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
        if self.sink == Sink::Live {
            show(&std::mem::take(&mut self.buffer));
        }
    }

    /// The output that was kept.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }
}

fn show(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A reader that went away ends the output, not the run.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_that_ends_a_run_is_remembered() {
        let mut console = Console::silent();
        console.write(b"dolmen: a no");
        console.write(b"te\nsays dolmen: nothing\n");
        assert_eq!(console.complaint(), Some("a note"));
        console.write(b"dolmen-loader: the image is no image\n");
        assert_eq!(console.complaint(), Some("the image is no image"));
        assert!(!console.fatal());
        console.write(b"dolmen: fatal: it broke\r\ndolmen: at 0x12\n");
        assert_eq!(console.complaint(), Some("fatal: it broke"));
        assert!(console.fatal());
    }
}
