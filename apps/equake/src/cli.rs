//! The arguments.

use crate::mesh::generate::{MAX_NODES, MIN_NODES};
use crate::store::Placement;
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
Simulates an earthquake in a tetrahedral mesh and reports where its memory was.

Usage: equake [--mesh FILE | --mesh-nodes N] [--steps N] [--threads N]
              [--placement rows|parallel|serial] [--check-smvp FILE]

  --mesh FILE         read the mesh from a Spark98 packfile
  --mesh-nodes N      generate a graded box of about N nodes (default: 7000)
  --steps N           time steps of 0.0024 s (default: 120)
  --threads N         threads, each on its own CPU (default: one for each CPU)
  --placement NAME    rows: every row allocated and touched by the main thread
                      parallel: arrays, touched first by the threads that use them (default)
                      serial: arrays, touched first by the main thread
  --check-smvp FILE   compare the matrix-vector product with a Spark98 reference output;
                      with --steps the simulation runs as well
  --help              print this
";

/// Steps when nothing else is said: for the default mesh about twice the work of the initialisation, well under a
/// second on a real machine and a few seconds on an emulated one, where everything takes fifteen times as long or more.
pub const DEFAULT_STEPS: u64 = 120;

/// Nodes when nothing else is said: about those of the Spark98 mesh sf10.
pub const DEFAULT_NODES: usize = 7000;

/// The most threads that can be asked for.
pub const MAX_THREADS: usize = 4096;

/// Where the mesh comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeshSource {
    /// A packfile.
    File(PathBuf),
    /// The generator, with the number of nodes asked for.
    Generated(usize),
}

/// A checked command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The mesh.
    pub mesh: MeshSource,
    /// Time steps to make; `None` when only a check was asked for.
    pub steps: Option<u64>,
    /// Threads; `None` for one on each CPU.
    pub threads: Option<usize>,
    /// Who allocates and touches what.
    pub placement: Placement,
    /// The reference to check the product against.
    pub check: Option<PathBuf>,
}

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The help text.
    Help,
    /// A run.
    Run(Options),
}

/// Reads the arguments (without the program's name). An error is one sentence without its full stop.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut file, mut nodes, mut steps, mut threads, mut placement, mut check) =
        (None, None, None, None, None, None);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Long("mesh") => file = Some(PathBuf::from(value(&mut parser, "--mesh", "a file")?)),
            Long("mesh-nodes") => {
                let limits = MIN_NODES as u64..=MAX_NODES as u64;
                nodes = Some(number(&mut parser, "--mesh-nodes", limits)? as usize);
            }
            Long("steps") => steps = Some(number(&mut parser, "--steps", 0..=1_000_000_000)?),
            Long("threads") => {
                threads = Some(number(&mut parser, "--threads", 1..=MAX_THREADS as u64)? as usize);
            }
            Long("placement") => {
                let name = value(&mut parser, "--placement", "a name")?;
                let known = Placement::ALL.into_iter().find(|p| name == p.name());
                placement = Some(known.ok_or_else(|| {
                    let names = Placement::ALL.map(Placement::name).join(", ");
                    format!(
                        "unknown placement '{}' (known: {names})",
                        name.to_string_lossy()
                    )
                })?);
            }
            Long("check-smvp") => {
                check = Some(PathBuf::from(value(&mut parser, "--check-smvp", "a file")?))
            }
            Long("help") | Short('h') => return Ok(Command::Help),
            Long(name) => return Err(format!("unknown argument '--{name}'")),
            Short(name) => return Err(format!("unknown argument '-{name}'")),
            Value(word) => return Err(format!("unknown argument '{}'", word.to_string_lossy())),
        }
    }
    let mesh = match (file, nodes) {
        (Some(_), Some(_)) => return Err("--mesh and --mesh-nodes exclude each other".into()),
        (Some(file), None) => MeshSource::File(file),
        (None, nodes) => MeshSource::Generated(nodes.unwrap_or(DEFAULT_NODES)),
    };
    let default_steps = check.is_none().then_some(DEFAULT_STEPS);
    Ok(Command::Run(Options {
        mesh,
        steps: steps.or(default_steps),
        threads,
        placement: placement.unwrap_or(Placement::Parallel),
        check,
    }))
}

fn value(parser: &mut lexopt::Parser, flag: &str, what: &str) -> Result<OsString, String> {
    parser.value().map_err(|_| format!("{flag} needs {what}"))
}

fn number(
    parser: &mut lexopt::Parser,
    flag: &str,
    limits: std::ops::RangeInclusive<u64>,
) -> Result<u64, String> {
    let text = value(parser, flag, "a number")?;
    text.to_str()
        .and_then(|text| text.parse().ok())
        .filter(|number| limits.contains(number))
        .ok_or_else(|| {
            format!(
                "{flag} must be a number from {} to {}, not '{}'",
                limits.start(),
                limits.end(),
                text.to_string_lossy()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(line: &str) -> Options {
        match parsed(line).unwrap() {
            Command::Run(options) => options,
            Command::Help => panic!("help"),
        }
    }

    #[test]
    fn defaults_and_values() {
        let plain = options("");
        assert_eq!(plain.mesh, MeshSource::Generated(7000));
        assert_eq!(plain.steps, Some(DEFAULT_STEPS));
        assert_eq!(
            (plain.threads, plain.placement),
            (None, Placement::Parallel)
        );
        let all = options("--mesh a --steps=5 --threads 3 --placement rows --check-smvp b");
        assert_eq!(all.mesh, MeshSource::File("a".into()));
        assert_eq!((all.steps, all.threads), (Some(5), Some(3)));
        assert_eq!(
            (all.placement, all.check),
            (Placement::Rows, Some("b".into()))
        );
        assert_eq!(options("--check-smvp b").steps, None);
        assert_eq!(parsed("--help"), Ok(Command::Help));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, expected) in [
            ("--stepz 3", "unknown argument '--stepz'"),
            ("-x", "unknown argument '-x'"),
            ("extra", "unknown argument 'extra'"),
            ("--steps", "--steps needs a number"),
            (
                "--steps ten",
                "--steps must be a number from 0 to 1000000000, not 'ten'",
            ),
            (
                "--steps -1",
                "--steps must be a number from 0 to 1000000000, not '-1'",
            ),
            (
                "--threads 0",
                "--threads must be a number from 1 to 4096, not '0'",
            ),
            (
                "--threads 99999",
                "--threads must be a number from 1 to 4096, not '99999'",
            ),
            (
                "--mesh-nodes 7",
                "--mesh-nodes must be a number from 8 to 500000000, not '7'",
            ),
            (
                "--placement middle",
                "unknown placement 'middle' (known: rows, parallel, serial)",
            ),
            (
                "--mesh a --mesh-nodes 9",
                "--mesh and --mesh-nodes exclude each other",
            ),
        ] {
            assert_eq!(parsed(line).unwrap_err(), expected);
        }
    }
}
