//! The files that were packed into an application's image: a read-only tree over a tar archive
//! that lies in memory, and the table of open files on top of it.
//!
//! [`Tree::from_tar`] indexes the archive once; names and contents stay where they are, so that
//! reading a file is a copy out of the archive and nothing else. [`FdTable`] keeps what POSIX
//! keeps per process: which descriptor means which node, and the position in it. It hands out
//! *what* to copy, never copies itself: whoever locks it can let go before touching the
//! application's buffer, which may fault.
//!
//! Reads ustar, GNU long names and pax paths (the crate `tar-no-std` reads plain ustar names only).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod archive;
mod errno;
mod fd;
mod tree;

pub use archive::Error;
pub use errno::{AbiResult, Errno};
pub use fd::{FIRST_FD, FdTable, MAX_OPEN};
pub use tree::{Metadata, Node, ReadDir, Tree};

#[cfg(test)]
mod tests;
