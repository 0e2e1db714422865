//! Messages as bytes.

use hermit_abi::errno;

use crate::Error;

/// Bytes of length, type and tag, with which every message begins.
pub(crate) const HEADER_BYTES: usize = 7;
/// The one tag: a client has one request on its way at a time.
const TAG: u16 = 0;
/// The tag of the request that settles the version.
const NO_TAG: u16 = u16::MAX;
/// The type of a reply that says why a request failed.
const RLERROR: u8 = 7;

/// Types of requests. The reply's is one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Lopen = 12,
    Lcreate = 14,
    Readlink = 22,
    Getattr = 24,
    Readdir = 40,
    Fsync = 50,
    Mkdir = 72,
    Unlinkat = 76,
    Version = 100,
    Attach = 104,
    Walk = 110,
    Read = 116,
    Write = 118,
    Clunk = 120,
}

/// Writes one request into a buffer. What does not fit is noticed at the end.
pub(crate) struct Encoder<'a> {
    buffer: &'a mut [u8],
    used: usize,
    overflown: bool,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(buffer: &'a mut [u8], kind: Kind) -> Self {
        let mut encoder = Self {
            buffer,
            used: 0,
            overflown: false,
        };
        // The length comes last.
        encoder.u32(0);
        encoder.bytes(&[kind as u8]);
        encoder.u16(tag_of(kind));
        encoder
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// A string: its length in two bytes, and its bytes.
    pub(crate) fn string(&mut self, text: &[u8]) {
        match u16::try_from(text.len()) {
            Ok(length) => {
                self.u16(length);
                self.bytes(text);
            }
            Err(_) => self.overflown = true,
        }
    }

    /// Takes in bytes that are in their place already.
    pub(crate) fn skip(&mut self, bytes: usize) {
        match self.used.checked_add(bytes) {
            Some(end) if end <= self.buffer.len() => self.used = end,
            _ => self.overflown = true,
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match self.buffer.get_mut(self.used..self.used + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.used += bytes.len();
            }
            None => self.overflown = true,
        }
    }

    /// The length of the finished request; only names can make one too long.
    pub(crate) fn finish(self) -> Result<usize, Error> {
        if self.overflown {
            return Err(Error::Errno(errno::ENAMETOOLONG));
        }
        // A message is no longer than its buffer, whose size is a u32 of the protocol.
        self.buffer[..4].copy_from_slice(&(self.used as u32).to_le_bytes());
        Ok(self.used)
    }
}

fn tag_of(kind: Kind) -> u16 {
    match kind {
        Kind::Version => NO_TAG,
        _ => TAG,
    }
}

/// What the server knows a file by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qid {
    kind: u8,
    /// The number of the file, on Linux its inode's.
    pub(crate) path: u64,
}

impl Qid {
    /// Before the server has named one.
    pub(crate) const UNKNOWN: Self = Self { kind: 0, path: 0 };
    const DIRECTORY: u8 = 0x80;
    const SYMLINK: u8 = 0x02;

    pub(crate) fn is_directory(self) -> bool {
        self.kind & Self::DIRECTORY != 0
    }

    pub(crate) fn is_symlink(self) -> bool {
        self.kind & Self::SYMLINK != 0
    }
}

/// Reads a reply.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
}

const CUT_OFF: Error = Error::Protocol("it is cut off");

impl<'a> Decoder<'a> {
    /// Checks the head of the reply to a request of type `kind`, in all of `message`.
    pub(crate) fn reply(message: &'a [u8], kind: Kind) -> Result<Self, Error> {
        let mut decoder = Self { bytes: message };
        let length = decoder.u32()?;
        if usize::try_from(length) != Ok(message.len()) {
            return Err(Error::Protocol("it has another length than it says"));
        }
        let (got, tag) = (decoder.u8()?, decoder.u16()?);
        if tag != tag_of(kind) {
            return Err(Error::Protocol("it answers another request"));
        }
        if got == RLERROR {
            return Err(Error::from_host(decoder.u32()?));
        }
        if got != kind as u8 + 1 {
            return Err(Error::Protocol("it has the wrong type"));
        }
        Ok(decoder)
    }

    /// Reads what a reply carries.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(CUT_OFF)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(CUT_OFF)?;
        self.bytes = rest;
        Ok(*array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], Error> {
        let length = self.u16()?;
        self.take(length.into())
    }

    pub(crate) fn qid(&mut self) -> Result<Qid, Error> {
        let kind = self.u8()?;
        let _version = self.u32()?;
        let path = self.u64()?;
        Ok(Qid { kind, path })
    }

    /// Bytes with their count in front, which are at most as many as were asked for.
    pub(crate) fn data(&mut self, asked: usize) -> Result<&'a [u8], Error> {
        let count = self.u32()? as usize;
        if count > asked {
            return Err(Error::Protocol("it holds more than was asked for"));
        }
        self.take(count)
    }
}
