//! One run, described briefly and judged with words that say what went wrong.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dolmen_cli::host::RealHost;
use dolmen_cli::report::RunReport;
use dolmen_cli::run::{App, Console, Prepared, Session, Tool, debug, prepare, run, uhyve};
use dolmen_cli::spec::{MIB, Platform, RunSpec, Thp};
use dolmen_cli::toolchain::Choice;
use dolmen_cli::workspace::Workspace;
use object::{Object, ObjectSegment};

/// Not a measure of anything: a machine that hangs must not hang the tests.
const LIMIT: Duration = Duration::from_secs(240);

/// Held while a machine runs or something is built.
static ONE_AT_A_TIME: Mutex<BTreeMap<String, Prepared>> = Mutex::new(BTreeMap::new());

fn one_at_a_time() -> MutexGuard<'static, BTreeMap<String, Prepared>> {
    // A test that failed while it held the lock broke nothing the next one needs.
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run to be made.
#[derive(Debug, Clone)]
pub struct Boot {
    what: What,
    spec: RunSpec,
    toolchain: Choice,
}

#[derive(Debug, Clone)]
enum What {
    /// A test application, or `equake`.
    App(String),
    /// Something prepared by the test itself.
    Prepared(Prepared),
}

impl Boot {
    /// Boots a binary of `tests/apps`, or `equake`: 4 CPUs, 1 node, THP always.
    pub fn app(name: &str) -> Self {
        Self::new(What::App(name.to_owned()))
    }

    /// Boots what is already there.
    pub fn prepared(prepared: Prepared) -> Self {
        Self::new(What::Prepared(prepared))
    }

    fn new(what: What) -> Self {
        let spec = RunSpec {
            timeout: Some(LIMIT),
            ..RunSpec::default()
        };
        Self {
            what,
            spec,
            toolchain: Choice::parse(&std::env::var("DOLMEN_TOOLCHAIN").unwrap_or_default()),
        }
    }

    /// With images built by another toolchain.
    #[must_use]
    pub fn toolchain(mut self, choice: &str) -> Self {
        self.toolchain = Choice::parse(choice);
        self
    }

    /// The image that [`Boot::app`] would boot, with the instruction at its entry replaced by one
    /// that no processor has. It is written to `file`.
    pub fn broken_at_its_entry(name: &str, file: &Path) -> Self {
        let _built = one_at_a_time();
        let boot = Self::app(name);
        let Prepared::Image(mut image) = build(name, boot.spec.platform, &boot.toolchain)
            .unwrap_or_else(|error| panic!("{name} cannot be built: {error:#}"))
        else {
            panic!("{name} is no image");
        };
        let mut bytes = std::fs::read(&image.file).expect("an image can be read");
        let entry = offset_of_entry(&bytes).expect("an image has an entry");
        bytes[entry..entry + UD2.len()].copy_from_slice(&UD2);
        std::fs::write(file, bytes).expect("the changed image can be written");
        image.file = file.to_owned();
        Self {
            what: What::Prepared(Prepared::Image(image)),
            ..boot
        }
    }

    /// Changes the run.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut RunSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// So many processors.
    #[must_use]
    pub fn cpus(self, cpus: u32) -> Self {
        self.with(|spec| spec.cpus = cpus)
    }

    /// So many NUMA nodes.
    #[must_use]
    pub fn nodes(self, nodes: u32) -> Self {
        self.with(|spec| spec.nodes = nodes)
    }

    /// So much memory.
    #[must_use]
    pub fn mebibytes(self, mebibytes: u64) -> Self {
        self.with(|spec| spec.mem_bytes = Some(mebibytes * MIB))
    }

    /// Another mode of huge pages.
    #[must_use]
    pub fn thp(self, thp: Thp) -> Self {
        self.with(|spec| spec.thp = thp)
    }

    /// On another platform.
    #[must_use]
    pub fn platform(self, platform: Platform) -> Self {
        self.with(|spec| spec.platform = platform)
    }

    /// The application's arguments.
    #[must_use]
    pub fn args<S: Into<String>>(self, args: impl IntoIterator<Item = S>) -> Self {
        self.with(|spec| spec.args = args.into_iter().map(Into::into).collect())
    }

    /// Builds what is needed, without running it.
    #[track_caller]
    pub fn build(&self) -> Prepared {
        self.built(&mut one_at_a_time())
    }

    #[track_caller]
    fn built(&self, built: &mut BTreeMap<String, Prepared>) -> Prepared {
        match &self.what {
            What::Prepared(prepared) => prepared.clone(),
            What::App(name) => built
                .entry(format!(
                    "{name} on {} {:?}",
                    self.spec.platform, self.toolchain
                ))
                .or_insert_with(|| {
                    build(name, self.spec.platform, &self.toolchain)
                        .unwrap_or_else(|error| panic!("{name} cannot be built: {error:#}"))
                })
                .clone(),
        }
    }

    /// Builds what is needed and runs it.
    #[track_caller]
    pub fn run(self) -> Outcome {
        let mut built = one_at_a_time();
        let prepared = self.built(&mut built);
        let mut console = Console::silent();
        let report = run(&prepared, &self.spec, &mut console)
            .unwrap_or_else(|error| panic!("{} did not start: {error:#}", prepared.app()));
        Outcome {
            text: console.text(),
            report,
        }
    }
}

impl Boot {
    /// Builds what is needed and runs it under gdb; gives the status, and what it printed.
    #[track_caller]
    pub fn debug(self, session: &Session) -> (i32, String) {
        let mut built = one_at_a_time();
        let prepared = self.built(&mut built);
        let mut console = Console::silent();
        let status = debug(&prepared, &self.spec, session, &mut console)
            .unwrap_or_else(|error| panic!("{} did not start: {error:#}", prepared.app()));
        (status, console.text())
    }
}

/// Whether uhyve can run here. Where its parts cannot be had, the caller leaves out what needs it,
/// and a line says so; where everything is to be tested, that is a failure.
///
/// # Panics
///
/// If `CI` is set and uhyve cannot run.
pub fn has_uhyve() -> bool {
    let _turn = one_at_a_time();
    let host = RealHost;
    let tool = Workspace::locate(&host).map(|workspace| Tool {
        host: &host,
        workspace,
        choice: Choice::Any,
        verbose: false,
    });
    match tool.and_then(|tool| uhyve::place(&tool)) {
        Ok(_) => true,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error:#}");
            crate::left_out(format_args!("{error:#}"));
            false
        }
    }
}

fn build(
    name: &str,
    platform: Platform,
    choice: &Choice,
) -> Result<Prepared, Box<dyn std::error::Error>> {
    let host = RealHost;
    let workspace = Workspace::locate(&host)?;
    let app = match name {
        "equake" => App::resolve(&workspace, name, None)?,
        _ => App::Project {
            directory: workspace.root().join("tests/apps"),
            binary: Some(name.to_owned()),
        },
    };
    let tool = Tool {
        host: &host,
        workspace,
        choice: choice.clone(),
        verbose: false,
    };
    Ok(prepare(&tool, &app, platform)?)
}

/// The undefined instruction.
const UD2: [u8; 2] = [0x0f, 0x0b];

/// Where in an ELF file its entry is.
fn offset_of_entry(file: &[u8]) -> Option<usize> {
    let elf = object::File::parse(file).ok()?;
    let entry = elf.entry();
    elf.segments().find_map(|segment| {
        let within = entry.checked_sub(segment.address())?;
        let (start, bytes) = segment.file_range();
        (within < bytes).then_some((start + within) as usize)
    })
}

/// What a run left behind.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What it printed, without records.
    pub text: String,
    /// What the host tool reports.
    pub report: RunReport,
}

impl Outcome {
    /// The run ended with this status, and not because the tool ended it.
    #[track_caller]
    pub fn status(self, status: i32) -> Self {
        assert_eq!(
            self.report.exit_status, status,
            "{:?}; it printed:\n{}",
            self.report.error, self.text
        );
        self
    }

    /// The run ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        let outcome = self.status(0);
        assert!(outcome.report.succeeded(), "{:?}", outcome.report.error);
        outcome
    }

    /// It printed `words`.
    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(self.text.contains(words), "no '{words}' in:\n{}", self.text);
        self
    }

    /// It printed exactly one line that contains `words`.
    #[track_caller]
    pub fn says_once(self, words: &str) -> Self {
        let lines = self
            .text
            .lines()
            .filter(|line| line.contains(words))
            .count();
        assert_eq!(lines, 1, "lines with '{words}' in:\n{}", self.text);
        self
    }

    /// A counter, which must be there.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        self.report
            .counter(name)
            .unwrap_or_else(|| panic!("no counter {name} in {:?}", self.report.counters))
    }

    /// A number the application reported, which must be there.
    #[track_caller]
    pub fn reported(&self, key: &str) -> f64 {
        self.report
            .app_report
            .get(key)
            .and_then(serde_json::Value::as_f64)
            .unwrap_or_else(|| panic!("no number {key} in {:?}", self.report.app_report))
    }

    /// A text the application reported, which must be there.
    #[track_caller]
    pub fn reported_text(&self, key: &str) -> String {
        self.report
            .app_text(key)
            .unwrap_or_else(|| panic!("no {key} in {:?}", self.report.app_report))
    }
}
