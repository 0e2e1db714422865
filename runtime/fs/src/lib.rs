//! An application's files: the read-only tree that was packed into its image, files of the host, and
//! the table of open files on top of both.
//!
//! [`Tree::from_tar`] indexes the archive once; names and contents stay where they are, so that
//! reading a file is a copy out of the archive and nothing else. [`FdTable`] keeps what POSIX
//! keeps per process: which descriptor means which file, and the position in it. It hands out
//! *what* to do, never does it itself: whoever locks it can let go before touching the
//! application's buffer, which may fault, or calling the host, which may take long. [`Listing`]
//! merges the entries of a directory that both have, and [`runs`] cuts buffers into pieces that a
//! hypervisor can reach.
//!
//! Reads ustar, GNU long names and pax paths (the crate `tar-no-std` reads plain ustar names only).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod archive;
mod errno;
mod fd;
mod file;
mod listing;
mod path;
pub mod runs;
mod tree;

pub use archive::Error;
pub use errno::{AbiResult, Errno};
pub use fd::{FIRST_FD, FdTable, MAX_OPEN};
pub use file::{AccessMode, Entries, Handle, InFlight, Opened, Owner, Seek, Source};
pub use listing::Listing;
pub use path::FilePath;
pub use tree::{Metadata, Node, ReadDir, Tree};

#[cfg(test)]
mod tests;
