//! The harness of the system tests.
//!
//! It builds with the host tool's own library and boots one machine at a time: each emulated
//! processor is a thread of the host, and machines that share the host's few would only measure one
//! another.

mod boot;
pub mod machine;

pub use boot::{Boot, Outcome};
