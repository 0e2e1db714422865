//! Dolmen's host tool: finds the toolchain, builds images, boots them and compares runs.
//!
//! The binary is a thin shell around this library, so that the system tests build and boot images
//! with the very code a user runs. One file per verb lives in [`verbs`]; everything else is what the
//! verbs are made of.

#![deny(missing_docs)]

pub mod build;
pub mod cli;
pub mod compare;
pub mod host;
pub mod image;
pub mod interrupt;
pub mod progress;
pub mod report;
pub mod run;
pub mod spec;
pub mod toolchain;
pub mod verbs;
pub mod workspace;
