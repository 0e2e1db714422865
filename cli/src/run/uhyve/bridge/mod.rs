//! Stands between gdb and a uhyve in the emulated Linux.
//!
//! Bytes need somebody in between: the Linux takes a port whose other side is not connected for one
//! that has ended, and gdb connects when it likes.
//!
//! Breakpoints need somebody, too. QEMU's emulation of AMD's virtualisation does not let a
//! hypervisor intercept `int3`, and does not load its debug registers: the guest, not uhyve, gets the
//! exception. So a breakpoint here is a jump to itself, and while the guest runs it is stopped again
//! and again to see whether it has come to one. A jump takes two bytes: a breakpoint on an
//! instruction of one byte also changes the first byte of the next, which matters only to code that
//! jumps there meanwhile. On a host's own KVM gdb talks to uhyve itself.

mod packet;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use packet::{Event, Peer, Stream, expand};

/// For so long the guest runs before it is looked where it is.
const RUN: Duration = Duration::from_millis(200);

/// How often a wait looks at the other side.
const TICK: Duration = Duration::from_millis(20);

/// `jmp` to itself, in hexadecimal digits.
const LOOP: &str = "ebfe";

/// Joins `uhyve` to the first debugger that connects to the port of this host that is returned. When
/// one side ends, so does the other.
pub(super) fn bridge(uhyve: UnixStream) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port for the debugger")?;
    let port = listener.local_addr()?.port();
    let ending = uhyve.try_clone().context("cannot share a socket")?;
    std::thread::spawn(move || -> io::Result<()> {
        let (gdb, _) = listener.accept()?;
        // gdb's packets are small, and each waits for an answer.
        gdb.set_nodelay(true)?;
        let served = Bridge {
            gdb: Peer::new(gdb),
            uhyve: Peer::new(uhyve),
            loops: BTreeMap::new(),
        }
        .serve();
        ending.shutdown(Shutdown::Both)?;
        served
    });
    Ok(port)
}

struct Bridge<G, U> {
    gdb: Peer<G>,
    uhyve: Peer<U>,
    /// Where there are breakpoints, and the bytes that belong there, in hexadecimal digits.
    loops: BTreeMap<u64, String>,
}

impl<G: Stream, U: Stream> Bridge<G, U> {
    /// Answers gdb until one side ends.
    fn serve(mut self) -> io::Result<()> {
        loop {
            let request = match self.gdb.receive(None)? {
                Some(Event::Packet(request)) => request,
                // Nothing runs that could be interrupted.
                Some(Event::Interrupt) | None => continue,
            };
            let answer = self.answer(&request)?;
            self.gdb.send(&answer)?;
            if request == b"QStartNoAckMode" && answer == b"OK" {
                self.gdb.acknowledge = false;
                self.uhyve.acknowledge = false;
            }
        }
    }

    fn answer(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        if let Some((insert, address)) = breakpoint(request) {
            let done = if insert {
                self.insert(address)?
            } else {
                self.remove(address)?
            };
            return Ok(if done {
                b"OK".to_vec()
            } else {
                b"E01".to_vec()
            });
        }
        if request.starts_with(b"vCont;") || request.starts_with(b"c") {
            return self.run(request);
        }
        self.ask(request)
    }

    /// Has uhyve answer.
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.uhyve.send(request)?;
        loop {
            if let Some(Event::Packet(answer)) = self.uhyve.receive(None)? {
                return Ok(answer);
            }
        }
    }

    fn insert(&mut self, address: u64) -> io::Result<bool> {
        if self.loops.contains_key(&address) {
            return Ok(true);
        }
        let bytes = expand(&self.ask(format!("m{address:x},2").as_bytes())?);
        if bytes.len() != LOOP.len() {
            return Ok(false);
        }
        let written = self.write(address, LOOP)?;
        if written {
            self.loops.insert(address, bytes);
        }
        Ok(written)
    }

    fn remove(&mut self, address: u64) -> io::Result<bool> {
        match self.loops.remove(&address) {
            Some(bytes) => self.write(address, &bytes),
            None => Ok(true),
        }
    }

    fn write(&mut self, address: u64, digits: &str) -> io::Result<bool> {
        let request = format!("M{address:x},{:x}:{digits}", digits.len() / 2);
        Ok(self.ask(request.as_bytes())? == b"OK")
    }

    /// Lets the guest run until it stops by itself, comes to a breakpoint, or the user interrupts it;
    /// gives gdb's answer.
    fn run(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut interrupted = false;
        loop {
            self.uhyve.send(request)?;
            let begin = Instant::now();
            let mut asked = false;
            let stop = loop {
                if let Some(Event::Packet(stop)) = self.uhyve.receive(Some(TICK))? {
                    break stop;
                }
                // Nothing else may come from gdb now.
                interrupted |= self.gdb.receive(Some(Duration::ZERO))?.is_some();
                let look = !self.loops.is_empty() && begin.elapsed() > RUN;
                if !asked && (interrupted || look) {
                    asked = true;
                    self.uhyve.interrupt()?;
                }
            };
            // An interrupt is a stop by signal 2; everything else is gdb's to know.
            let Some(rest) = stop.strip_prefix(b"T02") else {
                return Ok(stop);
            };
            let at = self.instruction()?;
            if at.is_some_and(|at| self.loops.contains_key(&at)) {
                return Ok([b"T05swbreak:;", rest].concat());
            }
            if interrupted {
                return Ok(stop);
            }
        }
    }

    /// The instruction pointer, which comes behind the sixteen general registers.
    fn instruction(&mut self) -> io::Result<Option<u64>> {
        let registers = expand(&self.ask(b"g")?);
        let rip = registers.get(16 * 16..17 * 16);
        let rip = rip.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Ok(rip.map(u64::swap_bytes))
    }
}

/// Reads a request to insert or remove a breakpoint, of software or hardware: where.
fn breakpoint(request: &[u8]) -> Option<(bool, u64)> {
    let request = std::str::from_utf8(request).ok()?;
    let (insert, rest) = match request.split_at_checked(3)? {
        ("Z0," | "Z1,", rest) => (true, rest),
        ("z0," | "z1,", rest) => (false, rest),
        _ => return None,
    };
    let (address, _) = rest.split_once(',')?;
    Some((insert, u64::from_str_radix(address, 16).ok()?))
}

#[cfg(test)]
mod tests;
