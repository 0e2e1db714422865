//! The client: one connection to one share.

use alloc::vec::Vec;

use hermit_abi::{errno, stat, timespec};

use crate::listing::Listing;
use crate::walk::{Fid, ROOT};
use crate::wire::{Decoder, Encoder, HEADER_BYTES, Kind, Qid};
use crate::{Error, Transport};

/// How many files can be open at a time.
pub const MAX_OPEN: usize = 1024;

const VERSION: &[u8] = b"9P2000.L";
/// Bytes of the longest message that the client offers: requests and replies of reading and
/// writing fill it.
const MAX_MESSAGE_BYTES: u32 = 128 << 10;
/// Room for the longest request beside writing: a walk along as many of the longest names as fit.
const MIN_MESSAGE_BYTES: u32 = 8 << 10;
/// Bytes in front of the data of a write: header, file, position, count. Reading and listing have
/// fewer.
const DATA_OFFSET: usize = HEADER_BYTES + 4 + 8 + 4;
/// Stands for no file, and for no user or group: the host takes its own.
pub(crate) const NONE: u32 = u32::MAX;
/// Every attribute that `stat` has.
const BASIC_ATTRIBUTES: u64 = 0x7ff;

/// An open file of a [`Client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenId(pub u16);

/// A share of the host and what is open of it.
///
/// Paths are given as their names, from the share's root.
pub struct Client<T> {
    transport: T,
    request: Vec<u8>,
    reply: Vec<u8>,
    pub(crate) root: Qid,
    /// Numbers that were in use and are free, and the first that never was.
    free: Vec<Fid>,
    next: u32,
    pub(crate) open: Vec<Option<OpenFile>>,
}

/// What an [`OpenId`] stands for.
pub(crate) struct OpenFile {
    pub(crate) fid: Fid,
    pub(crate) qid: Qid,
    pub(crate) position: u64,
    pub(crate) appends: bool,
    /// What has been read of a directory.
    pub(crate) listing: Option<Listing>,
}

impl<T: Transport> Client<T> {
    /// Connects: agrees on version and message size, and attaches to the share.
    pub fn new(transport: T) -> Result<Self, Error> {
        let mut client = Self {
            transport,
            request: buffer(MAX_MESSAGE_BYTES)?,
            reply: buffer(MAX_MESSAGE_BYTES)?,
            root: Qid::UNKNOWN,
            free: Vec::new(),
            next: ROOT.0 + 1,
            open: Vec::new(),
        };
        let mut reply = client.call(Kind::Version, |request| {
            request.u32(MAX_MESSAGE_BYTES);
            request.string(VERSION);
        })?;
        let size = reply.u32()?;
        if reply.string()? != VERSION {
            return Err(Error::Protocol("the server does not speak 9P2000.L"));
        }
        if !(MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES).contains(&size) {
            return Err(Error::Protocol("the server's message size is unusable"));
        }
        client.request.truncate(size as usize);
        client.reply.truncate(size as usize);
        client.root = client
            .call(Kind::Attach, |request| {
                request.u32(ROOT.0);
                // No authentication, and nobody in particular.
                request.u32(NONE);
                request.string(b"");
                request.string(b"");
                request.u32(NONE);
            })?
            .qid()?;
        Ok(client)
    }

    /// One request, whose fields `fill` writes, and the fields of its reply.
    pub(crate) fn call(
        &mut self,
        kind: Kind,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Result<Decoder<'_>, Error> {
        let mut encoder = Encoder::new(&mut self.request, kind);
        fill(&mut encoder);
        let request = encoder.finish()?;
        let bytes = self
            .transport
            .exchange(&self.request[..request], &mut self.reply)
            .ok_or(Error::Device)?;
        let reply = self.reply.get(..bytes).ok_or(Error::Device)?;
        Decoder::reply(reply, kind)
    }

    pub(crate) fn take_fid(&mut self) -> Result<Fid, Error> {
        // So that giving it back never allocates.
        self.free
            .try_reserve(1)
            .map_err(|_| Error::Errno(errno::ENOMEM))?;
        Ok(self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            Fid(self.next - 1)
        }))
    }

    /// Takes back a number that the server does not know.
    pub(crate) fn give_back(&mut self, fid: Fid) {
        self.free.push(fid);
    }

    /// Lets the server forget a number. The root's stays.
    pub(crate) fn release(&mut self, fid: Fid) {
        if fid == ROOT {
            return;
        }
        // The number is free whatever the server answers.
        let _ = self.call(Kind::Clunk, |request| request.u32(fid.0));
        self.give_back(fid);
    }

    /// Does something with the file that `path` leads to.
    pub(crate) fn with<R>(
        &mut self,
        path: &[&[u8]],
        follow: bool,
        call: impl FnOnce(&mut Self, Fid) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (fid, _) = self.walk(path, follow)?;
        let result = call(self, fid);
        self.release(fid);
        result
    }

    pub(crate) fn size(&mut self, fid: Fid) -> Result<u64, Error> {
        Ok(self.attributes(fid)?.st_size as u64)
    }

    pub(crate) fn attributes(&mut self, fid: Fid) -> Result<stat, Error> {
        let mut reply = self.call(Kind::Getattr, |request| {
            request.u32(fid.0);
            request.u64(BASIC_ATTRIBUTES);
        })?;
        let _valid = reply.u64()?;
        let qid = reply.qid()?;
        // The fields of the reply in their order.
        Ok(stat {
            st_ino: qid.path,
            st_mode: reply.u32()?,
            st_uid: reply.u32()?,
            st_gid: reply.u32()?,
            st_nlink: reply.u64()?,
            st_rdev: reply.u64()?,
            st_size: signed(reply.u64()?)?,
            st_blksize: signed(reply.u64()?)?,
            st_blocks: signed(reply.u64()?)?,
            st_atim: time(&mut reply)?,
            st_mtim: time(&mut reply)?,
            st_ctim: time(&mut reply)?,
            ..stat::default()
        })
    }

    /// Bytes of data that fit into one message.
    pub(crate) fn data_bytes(&self) -> usize {
        self.request.len() - DATA_OFFSET
    }

    /// The place of so many of these bytes in a write that is to be made.
    pub(crate) fn data_place(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.request[DATA_OFFSET..][..bytes]
    }

    pub(crate) fn file(&mut self, id: OpenId) -> Result<&mut OpenFile, Error> {
        let slot = self.open.get_mut(usize::from(id.0));
        slot.and_then(Option::as_mut)
            .ok_or(Error::Errno(errno::EBADF))
    }

    pub(crate) fn free_slot(&mut self) -> Result<usize, Error> {
        if let Some(slot) = self.open.iter().position(Option::is_none) {
            return Ok(slot);
        }
        if self.open.len() == MAX_OPEN {
            return Err(Error::Errno(errno::EMFILE));
        }
        self.open
            .try_reserve(1)
            .map_err(|_| Error::Errno(errno::ENOMEM))?;
        self.open.push(None);
        Ok(self.open.len() - 1)
    }
}

fn signed(value: u64) -> Result<i64, Error> {
    i64::try_from(value).map_err(|_| Error::Errno(errno::EOVERFLOW))
}

fn time(reply: &mut Decoder<'_>) -> Result<timespec, Error> {
    Ok(timespec {
        // Before 1970 it is negative.
        tv_sec: reply.u64()? as i64,
        tv_nsec: i32::try_from(reply.u64()?).map_err(|_| Error::Protocol("a time is none"))?,
    })
}

fn buffer(bytes: u32) -> Result<Vec<u8>, Error> {
    let bytes = bytes as usize;
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(bytes)
        .map_err(|_| Error::Errno(errno::ENOMEM))?;
    buffer.resize(bytes, 0);
    Ok(buffer)
}
