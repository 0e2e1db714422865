//! Runs an image on a machine that QEMU emulates.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::bootargs::command_line;
use super::machine::Machine;
use super::os::{Start, arrange};
use super::prepare::Image;
use super::shares::Shares;
use super::{Console, Filter};
use crate::image::{ImageKind, collect_files, pack};
use crate::report::{RunReport, status};
use crate::spec::RunSpec;

/// How long QEMU may take to end after the exit record.
const GRACE: Duration = Duration::from_secs(10);

/// How often a wait looks for interrupts and time limits.
const TICK: Duration = Duration::from_millis(50);

/// Names in the run's own directory: QEMU gives a meaning to spaces and commas in file names.
const LOADER: &str = "loader";
const IMAGE: &str = "image";

pub(super) fn run(
    image: &Image,
    spec: &RunSpec,
    console: &mut Console,
    report: &mut RunReport,
) -> Result<()> {
    let shares = Shares::new(&spec.files)?;
    shares.check(&image.qemu)?;
    let directory = RunDirectory::new()?;
    lay_out(image, spec, &directory.path)?;
    let command_line = command_line(spec, &shares.words);
    let machine = Machine {
        cpus: spec.cpus,
        nodes: spec.nodes,
        mem_bytes: spec.memory(),
        loader: LOADER,
        image: IMAGE,
        command_line: &command_line,
    };
    let mut command = Command::new(&image.qemu);
    command
        .args(machine.arguments())
        .args(shares.arguments()?)
        .current_dir(&directory.path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    arrange(&mut command, Start::default());
    let started = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", image.qemu.display()))?;
    let mut running = Running::new(child)?;
    let end = running.follow(spec, started, console, report);
    let ended = running.end();
    report.host_wall_s = started.elapsed().as_secs_f64();
    if report.wall_s == 0.0 {
        report.wall_s = report.host_wall_s;
    }
    judge(&end, spec, &ended, console, report);
    Ok(())
}

/// Puts the loader and the image, packed with the files it needs, where QEMU starts.
fn lay_out(image: &Image, spec: &RunSpec, directory: &Path) -> Result<()> {
    let here = std::env::current_dir().context("the current directory is gone")?;
    let files = collect_files(&here, &spec.files, &spec.args);
    let link = |from: &Path, name: &str| {
        std::os::unix::fs::symlink(from, directory.join(name))
            .with_context(|| format!("cannot link {}", from.display()))
    };
    link(&image.loader, LOADER)?;
    // An image that is no archive has nothing that could hide a mapped file.
    let hides_nothing = spec.files.is_empty() || image.kind == ImageKind::Application;
    if files.is_empty() && hides_nothing {
        return link(&image.file, IMAGE);
    }
    let output = directory.join(IMAGE);
    pack(&image.file, image.kind, &files, &spec.files, &output)
}

/// Why following a machine's output ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The output ended, or the exit record came.
    Stopped {
        exit_record: bool,
    },
    TimedOut,
    Interrupted,
}

/// How QEMU ended.
struct Ended {
    code: Option<i32>,
    complaint: String,
}

impl Ended {
    /// The status that the machine gave to the debug-exit device, which makes an odd code of it; the
    /// code 1 is also what QEMU itself fails with.
    fn machine_status(&self) -> Option<i32> {
        let code = self.code.filter(|code| *code >= 3 && code % 2 == 1)?;
        Some(code >> 1)
    }
}

fn judge(end: &End, spec: &RunSpec, ended: &Ended, console: &Console, report: &mut RunReport) {
    match end {
        End::Stopped { exit_record: true } => {
            if report.exit_status != 0 && console.fatal() {
                report.error = console.complaint().map(str::to_owned);
            }
        }
        End::Stopped { exit_record: false } => {
            report.exit_status = ended.machine_status().unwrap_or(status::NO_RECORD);
            // The loader, which gives no records, says why it refuses.
            let refused = console
                .complaint()
                .filter(|_| ended.machine_status().is_some());
            let said = ended.complaint.lines().last().unwrap_or_default();
            report.error = Some(match (refused, said) {
                (Some(reason), _) => reason.to_owned(),
                (None, "") => "the machine stopped without an exit record".to_owned(),
                (None, said) => {
                    format!("the machine stopped without an exit record (QEMU says: {said})")
                }
            });
        }
        End::TimedOut => {
            let limit = spec.timeout.unwrap_or_default().as_secs_f64();
            report.exit_status = status::TIMEOUT;
            report.error = Some(format!("the run took longer than {limit} s and was ended"));
        }
        End::Interrupted => {
            report.exit_status = status::INTERRUPTED;
            report.error = Some("the run was interrupted".to_owned());
        }
    }
}

/// A QEMU that runs. It does not outlive this value.
struct Running {
    child: Child,
    output: Receiver<Vec<u8>>,
    complaint: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    fn new(mut child: Child) -> Result<Self> {
        let mut stdout = child.stdout.take().context("QEMU has no output")?;
        let mut stderr = child.stderr.take().context("QEMU has no messages")?;
        let (sender, output) = sync_channel(64);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let complaint = std::thread::spawn(move || {
            let mut said = Vec::new();
            // Half a message is better than none.
            let _ = stderr.read_to_end(&mut said);
            String::from_utf8_lossy(&said).trim().to_owned()
        });
        Ok(Self {
            child,
            output,
            complaint: Some(complaint),
        })
    }

    fn follow(
        &mut self,
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
            match self.output.recv_timeout(TICK) {
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

    /// Makes sure that it has ended, and tells how. A machine that printed its last has a moment to
    /// end by itself, and with its own code.
    fn end(&mut self) -> Ended {
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

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A directory of one run, gone with this value.
struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    fn new() -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = std::env::temp_dir().join(format!(
            "dolmen-run-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // A leftover in the directory for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
