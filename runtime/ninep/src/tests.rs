//! The client against a server over real files, and against replies that no server should give.

use std::vec::Vec;

use hermit_abi::errno::*;

use crate::{Client, Error, OpenId, Transport};

mod replies;
#[cfg(target_os = "linux")]
mod server;

/// The path of names that `text` stands for.
fn names(text: &str) -> Vec<&[u8]> {
    text.split('/')
        .filter(|name| !name.is_empty())
        .map(str::as_bytes)
        .collect()
}

/// Words for what the tests call most.
trait Short {
    fn open_at(&mut self, path: &str, flags: i32) -> Result<OpenId, Error>;
    fn read_to(&mut self, id: OpenId, buffer: &mut [u8]) -> Result<usize, Error>;
    fn write_from(&mut self, id: OpenId, bytes: &[u8]) -> Result<usize, Error>;
}

impl<T: Transport> Short for Client<T> {
    fn open_at(&mut self, path: &str, flags: i32) -> Result<OpenId, Error> {
        self.open(&names(path), flags, 0o777)
    }

    fn read_to(&mut self, id: OpenId, buffer: &mut [u8]) -> Result<usize, Error> {
        self.read(id, buffer.len(), |at, piece| {
            buffer[at..][..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        })
    }

    fn write_from(&mut self, id: OpenId, bytes: &[u8]) -> Result<usize, Error> {
        self.write(id, bytes.len(), |at, piece| {
            piece.copy_from_slice(&bytes[at..][..piece.len()]);
            Ok(piece.len())
        })
    }
}

fn errno<T>(result: Result<T, Error>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.errno(),
    }
}

#[test]
fn unknown_numbers_of_the_host_become_input_output_errors() {
    for (number, expected) in [(2, ENOENT), (133, 133), (0, EIO), (41, EIO), (58, EIO)] {
        assert_eq!(Error::from_host(number).errno(), expected);
    }
    for number in [134, 524, u32::MAX] {
        assert_eq!(Error::from_host(number).errno(), EIO);
    }
}
