//! The harness of the system tests.
//!
//! It builds with the host tool's own library and boots one machine at a time: each emulated
//! processor is a thread of the host, and machines that share the host's few would only measure one
//! another.

mod boot;
pub mod cases;
pub mod files;
pub mod machine;

use std::io::Write;
use std::path::{Path, PathBuf};

pub use boot::{Boot, Outcome, has_uhyve};

/// A mesh of the Spark98 collection and its product, from the data that stand beside a checkout or
/// where `DOLMEN_SPARK98` says. They are not part of the repository: where they are missing, the
/// caller leaves out what needs them, and a line says so.
///
/// # Panics
///
/// If `DOLMEN_SPARK98` is set and the files are not there.
pub fn spark98(name: &str) -> Option<(String, String)> {
    let named = std::env::var_os("DOLMEN_SPARK98").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/spark98");
    let directory = named.clone().unwrap_or_else(beside);
    let files = [format!("{name}.1.pack"), format!("{name}.out")].map(|file| directory.join(file));
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        assert!(named.is_none(), "{} is missing", missing.display());
        left_out(format_args!(
            "{} is not there; DOLMEN_SPARK98 can name the folder of the Spark98 data",
            missing.display()
        ));
        return None;
    }
    let [mesh, product] = files.map(|file| file.display().to_string());
    Some((mesh, product))
}

/// Says that something is left out and why, past what the test harness keeps to itself.
pub fn left_out(why: impl std::fmt::Display) {
    // Without a place to say it, the tests go on all the same.
    let _ = writeln!(std::io::stderr(), "left out: {why}");
}
