//! Files of the host over 9P2000.L, the variant of Plan 9's file protocol that QEMU serves.
//!
//! [`Client`] speaks the protocol over a [`Transport`], which carries one request and its reply at
//! a time, and keeps what POSIX keeps for an open file: the position, and how far a directory has
//! been read. [`Mounts`] says which of several shares a path belongs to.
//!
//! The messages are those of Linux's `include/net/9p/9p.h` and QEMU's `hw/9pfs/9p.c`: a length of
//! four bytes, a type, a tag, and little-endian fields. A reply is the host's word and is checked
//! like any input: one that is cut off, has another type or counts more than was asked for is an
//! error of the call, never a panic. Nothing here waits or locks; both are the transport's and the
//! caller's.
//!
//! The published crates (`p9`, `rs9p`, `jetstream_9p`) are servers, or clients over sockets and
//! threads of an operating system; none is a client without std. `p9` is the peer in the tests.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod client;
mod error;
mod files;
mod listing;
mod mounts;
mod walk;
mod wire;

pub use client::{Client, MAX_OPEN, OpenId};
pub use error::Error;
pub use listing::Listing;
pub use mounts::{Mount, Mounts, Resolved};

/// What carries messages to the server.
pub trait Transport {
    /// Sends `request`, waits for the reply and puts it at the start of `reply`; returns its bytes.
    /// `None` if the device does not work.
    fn exchange(&mut self, request: &[u8], reply: &mut [u8]) -> Option<usize>;
}

#[cfg(test)]
mod tests;
