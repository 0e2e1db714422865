//! The harness of the system tests.
//!
//! It builds with the host tool's own library and boots one machine at a time: each emulated
//! processor is a thread of the host, and machines that share the host's few would only measure one
//! another.

mod boot;
pub mod machine;

use std::path::{Path, PathBuf};

pub use boot::{Boot, Outcome};

/// A mesh of the Spark98 collection and its product, from the data that stand beside a checkout or
/// where `DOLMEN_SPARK98` says.
#[track_caller]
pub fn spark98(name: &str) -> (String, String) {
    let directory = std::env::var_os("DOLMEN_SPARK98").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/spark98"),
        PathBuf::from,
    );
    let file = |file: String| {
        let path = directory.join(&file);
        assert!(
            path.is_file(),
            "{} is missing: set DOLMEN_SPARK98 to the folder that holds {file}",
            path.display()
        );
        path.display().to_string()
    };
    (file(format!("{name}.1.pack")), file(format!("{name}.out")))
}
