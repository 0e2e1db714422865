//! What the user sees while something takes long: a bar on a terminal, plain lines on a pipe.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How much a pipe is told about work that goes on: one line per this time at most.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// One piece of long work.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    title: String,
    started: Instant,
    last_line: Instant,
    quiet: bool,
}

impl Progress {
    /// Starts a piece of work of unknown length.
    pub fn spinner(title: &str) -> Self {
        let progress = Self::new(title);
        if let Some(bar) = &progress.bar {
            bar.set_style(
                ProgressStyle::with_template("{spinner} {prefix} {wide_msg:.dim} {elapsed}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
        }
        progress
    }

    /// Starts a piece of work whose steps are counted by [`Progress::step`].
    pub fn counter(title: &str) -> Self {
        let progress = Self::new(title);
        if let Some(bar) = &progress.bar {
            bar.set_style(
                ProgressStyle::with_template(
                    "{spinner} {prefix} {bar:30} {pos}/{len} {msg} {elapsed} (about {eta} left)",
                )
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
        }
        progress
    }

    /// Work that is never shown.
    pub fn hidden() -> Self {
        Self {
            bar: None,
            title: String::new(),
            started: Instant::now(),
            last_line: Instant::now(),
            quiet: true,
        }
    }

    fn new(title: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_prefix(title.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            bar,
            title: title.to_owned(),
            started: Instant::now(),
            last_line: Instant::now(),
            quiet: false,
        }
    }

    /// Says what is being done now.
    pub fn message(&mut self, message: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(message.to_owned()),
            None => self.plain(|title| format!("{title}: {message}")),
        }
    }

    /// Says how far the work is.
    pub fn step(&mut self, done: u64, total: u64, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(what.to_owned());
            }
            None => self.plain(|title| format!("{title}: {what} {done} of {total}")),
        }
    }

    fn plain(&mut self, line: impl FnOnce(&str) -> String) {
        if !self.quiet && self.last_line.elapsed() >= PLAIN_INTERVAL {
            self.last_line = Instant::now();
            eprintln!("{}", line(&self.title));
        }
    }

    /// Runs `print` while no bar is on the screen, so that output and bar do not mix.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Ends the work; a pipe hears of it only if it took long.
    pub fn finish(self) {
        match &self.bar {
            Some(bar) => bar.finish_and_clear(),
            None if !self.quiet && self.started.elapsed() >= PLAIN_INTERVAL => {
                eprintln!(
                    "{}: {:.0} s",
                    self.title,
                    self.started.elapsed().as_secs_f64()
                );
            }
            None => {}
        }
    }
}
