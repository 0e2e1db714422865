//! Carries a debugger's bytes to and from the emulated Linux.
//!
//! The Linux takes a port whose other side is not connected for one that has ended, and gdb connects
//! when it likes: so the tool itself stands in between.

use std::io::copy;
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};

/// Joins `inner` to the first debugger that connects to the port of this host that is returned. When
/// one side ends, so does the other.
pub(super) fn bridge(mut inner: UnixStream) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port for the debugger")?;
    let port = listener.local_addr()?.port();
    let mut from_inner = inner.try_clone().context("cannot share a socket")?;
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut outer, _) = listener.accept()?;
        // gdb's packets are small, and each waits for an answer.
        outer.set_nodelay(true)?;
        let mut from_outer = outer.try_clone()?;
        std::thread::spawn(move || {
            // However it ends, it has ended.
            let _ = copy(&mut from_outer, &mut inner);
            let _ = inner.shutdown(Shutdown::Both);
        });
        let copied = copy(&mut from_inner, &mut outer);
        outer.shutdown(Shutdown::Both)?;
        copied.map(drop)
    });
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    #[test]
    fn both_directions_and_the_end_are_carried() {
        let (mut inner, other) = UnixStream::pair().unwrap();
        let port = bridge(other).unwrap();
        let mut outer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut bytes = [0; 4];
        outer.write_all(b"to\0\xff").unwrap();
        inner.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, *b"to\0\xff");
        inner.write_all(b"back").unwrap();
        outer.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, *b"back");
        inner.shutdown(Shutdown::Both).unwrap();
        assert_eq!(outer.read(&mut bytes).unwrap(), 0);
    }
}
