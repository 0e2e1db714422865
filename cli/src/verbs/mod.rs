//! The verbs of the tool, one file each.

pub mod bench;
pub mod build;
pub mod compare;
pub mod doctor;
pub mod gdb;
pub mod run;
pub mod test;
