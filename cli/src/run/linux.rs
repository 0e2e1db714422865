//! Runs an application as an ordinary process of this Linux.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use super::Console;
use super::os::{Start, Usage, arrange, try_wait};
use super::prepare::Process;
use crate::image::FileMapping;
use crate::report::{RunReport, Step};
use crate::spec::{RunSpec, Thp};

const TICK: Duration = Duration::from_millis(2);
const THP_SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

pub(super) fn run(
    process: &Process,
    spec: &RunSpec,
    console: &mut Console,
    report: &mut RunReport,
) -> Result<()> {
    check_files(&spec.files)?;
    let records = Records::new();
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    report.notes = notes(
        spec,
        available,
        std::fs::read_to_string(THP_SETTING).ok().as_deref(),
    );
    let mut command = Command::new(&process.executable);
    command
        .args(&spec.args)
        .env("DOLMEN_REPORT", &records.path)
        .envs(spec.env.iter().filter_map(|v| v.split_once('=')))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    arrange(
        &mut command,
        Start {
            thp_disabled: spec.thp == Thp::Never,
            own_group: false,
            cpus: Some(spec.cpus as usize).filter(|&cpus| cpus < available),
        },
    );
    let huge_before = huge_faults();
    let started = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", process.executable.display()))?;
    let mut running = Running::new(child)?;
    let end = running.follow(spec, started, &records, console)?;
    report.wall_s = started.elapsed().as_secs_f64();
    report.host_wall_s = report.wall_s;
    for record in records.read() {
        report.take(record);
    }
    match end {
        End::Exited(exit, usage) => {
            let huge = huge_faults().zip(huge_before).map(|(now, then)| now - then);
            account(exit, &usage, huge, report);
        }
        End::TimedOut => report.timed_out(spec),
        End::Interrupted => report.interrupted(),
    }
    Ok(())
}

/// Fails if the application would not find a file where it is told to: a process sees the host's
/// files, and each under its own path.
fn check_files(files: &[FileMapping]) -> Result<()> {
    for mapping in files {
        let there = mapping.place()?.path();
        let seen = [Path::new("/"), Path::new("")].map(|start| FileMapping {
            host: start.join(&mapping.guest),
            guest: String::new(),
        });
        if !seen
            .iter()
            .any(|seen| seen.place().is_ok_and(|place| place.path() == there))
        {
            bail!(
                "on linux files have their own paths only: /{} is not {}",
                mapping.guest,
                mapping.host.display()
            );
        }
    }
    Ok(())
}

/// Where this Linux cannot be what was asked for.
fn notes(spec: &RunSpec, available: usize, thp_setting: Option<&str>) -> Vec<String> {
    let mut notes = Vec::new();
    if spec.cpus as usize > available {
        notes.push(format!(
            "{} CPUs were asked for, this machine has {available}",
            spec.cpus
        ));
    }
    if spec.nodes > 1 {
        notes.push("--nodes has no meaning on linux: the machine's own nodes are used".to_owned());
    }
    if spec.mem_bytes.is_some() {
        notes.push("--mem has no meaning on linux".to_owned());
    }
    if spec.debug_frames {
        notes.push("--debug-frames has no meaning on linux".to_owned());
    }
    for (option, given) in [("--cpu", &spec.cpu_model), ("--machine", &spec.machine)] {
        if given.is_some() {
            notes.push(format!(
                "{option} has no meaning on linux: this machine is used"
            ));
        }
    }
    if spec.thp == Thp::Always && !thp_setting.is_some_and(|s| s.contains("[always]")) {
        notes.push(match thp_setting {
            Some(setting) => format!(
                "this Linux does not give huge pages everywhere ({THP_SETTING} is {}): `echo always > {THP_SETTING}` as root changes it",
                setting.trim()
            ),
            None => "this Linux has no transparent huge pages".to_owned(),
        });
    }
    notes
}

fn account(exit: ExitStatus, usage: &Usage, huge: Option<u64>, report: &mut RunReport) {
    use std::os::unix::process::ExitStatusExt;
    report.exit_status = match (exit.code(), exit.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or(0),
    };
    if let Some(signal) = exit.signal() {
        report.error = Some(format!("the application was ended by signal {signal}"));
    }
    report.user_s = Some(usage.user.as_secs_f64());
    report.sys_s = Some(usage.system.as_secs_f64());
    let mut counter = |name: &str, value: u64| {
        report.counters.insert(name.to_owned(), value.into());
    };
    counter("pgfault", usage.minor_faults + usage.major_faults);
    counter("pgmajfault", usage.major_faults);
    counter("voluntary_ctxt_switches", usage.voluntary_switches);
    counter("nonvoluntary_ctxt_switches", usage.involuntary_switches);
    // Linux counts huge faults for the whole system: what else runs at the time is in it too.
    if let Some(huge) = huge {
        let huge = huge.min(usage.minor_faults);
        counter("thp_fault_alloc", huge);
        counter("fault_4k", usage.minor_faults - huge);
    }
}

/// Huge faults of the system so far.
fn huge_faults() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("thp_fault_alloc "))?
        .parse()
        .ok()
}

enum End {
    Exited(ExitStatus, Usage),
    TimedOut,
    Interrupted,
}

/// A process that runs. It does not outlive this value.
struct Running {
    child: Child,
    output: Receiver<Vec<u8>>,
    reaped: bool,
}

impl Running {
    fn new(mut child: Child) -> Result<Self> {
        let mut stdout = child.stdout.take().context("the process has no output")?;
        let (sender, output) = sync_channel(64);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            output,
            reaped: false,
        })
    }

    fn follow(
        &mut self,
        spec: &RunSpec,
        started: Instant,
        records: &Records,
        console: &mut Console,
    ) -> Result<End> {
        let mut looked = Instant::now();
        loop {
            while let Ok(bytes) = self.output.try_recv() {
                console.write(&bytes);
            }
            if let Some((exit, usage)) = try_wait(&self.child).context("cannot wait")? {
                self.reaped = true;
                // The pipe ends with the process, unless it left children behind.
                while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
                    console.write(&bytes);
                }
                return Ok(End::Exited(exit, usage));
            }
            if crate::interrupt::pending() {
                return Ok(End::Interrupted);
            }
            if spec.timeout.is_some_and(|limit| started.elapsed() > limit) {
                return Ok(End::TimedOut);
            }
            if looked.elapsed() > Duration::from_millis(200) {
                looked = Instant::now();
                if let Some(step) = records.read().iter().rev().find_map(Step::of) {
                    console.step(&step);
                }
            }
            std::thread::sleep(TICK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            // Both fail only if it has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The file an application appends its records to, gone with this value.
struct Records {
    path: PathBuf,
}

impl Records {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "dolmen-report-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        Self {
            path: std::env::temp_dir().join(name),
        }
    }

    /// All records so far; an application that reports nothing makes no file.
    fn read(&self) -> Vec<Map<String, Value>> {
        read_records(&self.path)
    }
}

fn read_records(path: &Path) -> Vec<Map<String, Value>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

impl Drop for Records {
    fn drop(&mut self) {
        // It is not there if nothing was reported.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status;

    fn run_sh(script: &str, spec: RunSpec) -> (RunReport, String) {
        let process = Process {
            app: "sh".to_owned(),
            executable: "/bin/sh".into(),
        };
        let spec = RunSpec {
            platform: crate::spec::Platform::Linux,
            args: vec!["-c".to_owned(), script.to_owned()],
            ..spec
        };
        let mut console = Console::silent();
        let mut report = RunReport::new("sh", &spec);
        run(&process, &spec, &mut console, &mut report).unwrap();
        (report, console.text())
    }

    #[test]
    fn output_status_and_records_come_through() {
        let (report, text) = run_sh(
            r#"echo '{"dolmen":"app","report":{"a":1}}' >> "$DOLMEN_REPORT"; echo "hi $X"; exit 3"#,
            RunSpec {
                env: vec!["X=y".to_owned()],
                ..RunSpec::default()
            },
        );
        assert_eq!(text, "hi y\n");
        assert_eq!(report.exit_status, 3);
        assert_eq!(report.app_report["a"], 1);
        assert!(report.counter("pgfault").unwrap() > 0);
        assert!(report.user_s.is_some());
        assert_eq!(report.error, None);
    }

    #[test]
    fn signals_and_time_limits_are_told() {
        let (report, _) = run_sh("kill -SEGV $$", RunSpec::default());
        assert_eq!(report.exit_status, 139);
        assert!(report.error.unwrap().contains("signal 11"));
        let (report, _) = run_sh(
            "exec sleep 100",
            RunSpec {
                timeout: Some(Duration::from_millis(50)),
                ..RunSpec::default()
            },
        );
        assert_eq!(report.exit_status, status::TIMEOUT);
    }

    #[test]
    fn files_under_other_paths_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mapping = |host: &str, guest: &Path| FileMapping {
            host: directory.path().join(host),
            guest: guest.to_str().unwrap().trim_start_matches('/').to_owned(),
        };
        let own = directory.path().join("new");
        assert!(check_files(&[mapping("new", &own), mapping("", directory.path())]).is_ok());
        let error = check_files(&[mapping("new", Path::new("/data"))]).unwrap_err();
        assert!(error.to_string().contains("/data is not "), "{error}");
    }

    #[test]
    fn what_linux_cannot_do_is_noted() {
        let spec = RunSpec {
            cpus: 8,
            cpu_model: Some("qemu64".to_owned()),
            nodes: 2,
            thp: Thp::Always,
            ..RunSpec::default()
        };
        let all = notes(&spec, 2, Some("always [madvise] never\n"));
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(all[2].contains("--cpu has no meaning"));
        assert!(all[3].contains("echo always"));
        assert!(notes(&RunSpec::default(), 4, Some("[always] madvise never")).is_empty());
    }
}
