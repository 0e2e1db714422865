//! Packets of gdb's remote protocol: `$`, contents, `#`, a checksum of two digits.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The byte with which gdb interrupts what runs.
const INTERRUPT: u8 = 3;

/// A connection.
pub(super) trait Stream: Read + Write {
    /// How long a read waits; for ever without a limit.
    fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)
    }
}

/// What a peer has sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The contents of a packet, escapes as they are.
    Packet(Vec<u8>),
    /// The user wants the guest to stop.
    Interrupt,
}

/// One side of the conversation.
pub(super) struct Peer<S> {
    stream: S,
    /// Whether packets are still acknowledged. The connection loses nothing, so nothing is ever sent
    /// again.
    pub(super) acknowledge: bool,
    buffer: Vec<u8>,
}

impl<S: Stream> Peer<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            acknowledge: true,
            buffer: Vec::new(),
        }
    }

    /// Waits for an event, at most for `limit`, or a moment if that is zero.
    pub(super) fn receive(&mut self, limit: Option<Duration>) -> io::Result<Option<Event>> {
        // A limit of zero would mean none.
        let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
        self.stream.set_timeout(limit)?;
        loop {
            if let Some(event) = self.take() {
                if self.acknowledge && event != Event::Interrupt {
                    self.stream.write_all(b"+")?;
                }
                return Ok(Some(event));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.buffer.extend_from_slice(&bytes[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// The next whole event of what has been read.
    fn take(&mut self) -> Option<Event> {
        loop {
            match *self.buffer.first()? {
                INTERRUPT => {
                    self.buffer.remove(0);
                    return Some(Event::Interrupt);
                }
                b'$' => {
                    let end = self.buffer.iter().position(|&byte| byte == b'#')?;
                    if self.buffer.len() < end + 3 {
                        return None;
                    }
                    let packet = self.buffer[1..end].to_vec();
                    self.buffer.drain(..end + 3);
                    return Some(Event::Packet(packet));
                }
                // An acknowledgement.
                _ => {
                    self.buffer.remove(0);
                }
            }
        }
    }

    /// Sends a packet; `contents` are escaped already.
    pub(super) fn send(&mut self, contents: &[u8]) -> io::Result<()> {
        let sum = contents.iter().fold(0u8, |sum, &b| sum.wrapping_add(b));
        let mut bytes = Vec::with_capacity(contents.len() + 4);
        bytes.push(b'$');
        bytes.extend_from_slice(contents);
        bytes.extend_from_slice(format!("#{sum:02x}").as_bytes());
        self.stream.write_all(&bytes)
    }

    /// Interrupts what runs on the other side.
    pub(super) fn interrupt(&mut self) -> io::Result<()> {
        self.stream.write_all(&[INTERRUPT])
    }
}

/// Writes out the repetitions in an answer: a character, `*`, and how often it comes again, plus 29.
pub(super) fn expand(contents: &[u8]) -> String {
    let mut text = String::new();
    let mut bytes = contents.iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'*' {
            let again = bytes.next().map_or(0, |&byte| byte.saturating_sub(29));
            let last = text.chars().next_back();
            text.extend(last.into_iter().cycle().take(again.into()));
        } else {
            text.push(char::from(byte));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_reads_end() {
        let stream = b"+$abc#26\x03$#00+";
        for size in 1..=stream.len() {
            let (mut far, near) = UnixStream::pair().unwrap();
            let mut peer = Peer::new(near);
            let mut events = Vec::new();
            for piece in stream.chunks(size) {
                far.write_all(piece).unwrap();
                while let Some(event) = peer.receive(Some(Duration::ZERO)).unwrap() {
                    events.push(event);
                }
            }
            let packet = |text: &str| Event::Packet(text.as_bytes().to_vec());
            assert_eq!(events, [packet("abc"), Event::Interrupt, packet("")]);
            drop(peer);
            let mut acknowledged = String::new();
            far.read_to_string(&mut acknowledged).unwrap();
            assert_eq!(acknowledged, "++", "reads of {size}");
        }
    }

    #[test]
    fn a_packet_carries_its_checksum() {
        let (mut far, near) = UnixStream::pair().unwrap();
        Peer::new(near).send(b"g").unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        assert_eq!(text, "$g#67");
    }

    #[test]
    fn repetitions_are_written_out() {
        assert_eq!(expand(b"0* 1"), "00001");
        assert_eq!(expand(b"ab"), "ab");
        assert_eq!(expand(b"*"), "");
    }
}
