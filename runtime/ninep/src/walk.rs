//! From paths to files: walking, and following symbolic links.
//!
//! The server does not follow links, since only the client knows its own names. Links are followed
//! within the share; one that leads out of it, or is absolute, leads nowhere.

use alloc::vec::Vec;

use hermit_abi::errno;

use crate::client::Client;
use crate::wire::{Kind, Qid};
use crate::{Error, Transport};

/// The most names in one request.
const NAMES_PER_WALK: usize = 16;
/// The most links on the way to a file, as on Linux.
const MAX_LINKS: u32 = 40;

/// A number that stands for a file at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fid(pub(crate) u32);

/// The share's own directory, which stays.
pub(crate) const ROOT: Fid = Fid(0);

/// Where a walk has come to.
struct Place {
    fid: Fid,
    qid: Qid,
    /// Directories below the root.
    depth: usize,
}

impl<T: Transport> Client<T> {
    /// The file that `names` lead to, from the root. A link in the last place is followed if
    /// `follow` says so. The result may be the root itself.
    pub(crate) fn walk(&mut self, names: &[&[u8]], follow: bool) -> Result<(Fid, Qid), Error> {
        let mut place = Place {
            fid: ROOT,
            qid: self.root,
            depth: 0,
        };
        let result = self.walk_on(&mut place, names, follow);
        match result {
            Ok(()) => Ok((place.fid, place.qid)),
            Err(error) => {
                self.release(place.fid);
                Err(error)
            }
        }
    }

    fn walk_on(&mut self, place: &mut Place, names: &[&[u8]], follow: bool) -> Result<(), Error> {
        let mut links = 0;
        // What is still to be walked, the next name last.
        let mut ahead: Vec<Vec<u8>> = Vec::new();
        for name in names.iter().rev() {
            push(&mut ahead, name)?;
        }
        while !ahead.is_empty() {
            let mut count = batch(&ahead);
            if ahead[ahead.len() - 1] == b".." && place.depth == 0 {
                return Err(Error::Errno(errno::ENOENT));
            }
            // Fewer names than asked for say that the one behind them is a link or missing: the
            // next turn begins with it, and the server says what is wrong.
            let (next, qid) = loop {
                let (next, walked, last) = self.step(place.fid, &ahead[ahead.len() - count..])?;
                match next {
                    Some(next) => break (next, last),
                    None => count = walked,
                }
            };
            let rest = ahead.len() - count;
            if qid.is_symlink() && (rest > 0 || follow) {
                let target = self.read_link(next);
                self.release(next);
                let target = target?;
                links += 1;
                if links > MAX_LINKS {
                    return Err(Error::Errno(errno::ELOOP));
                }
                // The link's own directory is where its target counts from.
                if count > 1 {
                    let (parent, _, qid) = self.step(place.fid, &ahead[rest + 1..])?;
                    let parent = parent.ok_or(Error::Errno(errno::ENOENT))?;
                    self.release(core::mem::replace(&mut place.fid, parent));
                    place.qid = qid;
                    place.depth += count - 1;
                }
                ahead.truncate(rest);
                if target.starts_with(b"/") {
                    return Err(Error::Errno(errno::ENOENT));
                }
                let parts = target.rsplit(|&byte| byte == b'/');
                for part in parts.filter(|part| !part.is_empty() && *part != b".") {
                    push(&mut ahead, part)?;
                }
                continue;
            }
            if ahead[ahead.len() - 1] == b".." {
                place.depth -= 1;
            } else {
                place.depth += count;
            }
            ahead.truncate(rest);
            self.release(core::mem::replace(&mut place.fid, next));
            place.qid = qid;
        }
        Ok(())
    }

    /// One request: from `from` along `names`, of which the last is the first. Gives a new number
    /// if all of them were walked, how many were, and what stands behind the last.
    fn step(&mut self, from: Fid, names: &[Vec<u8>]) -> Result<(Option<Fid>, usize, Qid), Error> {
        let to = self.take_fid()?;
        let walked = self.try_step(from, to, names);
        match walked {
            Ok((count, qid)) if count == names.len() => Ok((Some(to), count, qid)),
            Ok((count, qid)) => {
                self.give_back(to);
                Ok((None, count, qid))
            }
            Err(error) => {
                self.give_back(to);
                Err(error)
            }
        }
    }

    fn try_step(&mut self, from: Fid, to: Fid, names: &[Vec<u8>]) -> Result<(usize, Qid), Error> {
        let root = self.root;
        let mut reply = self.call(Kind::Walk, |request| {
            request.u32(from.0);
            request.u32(to.0);
            // At most NAMES_PER_WALK.
            request.u16(names.len() as u16);
            for name in names.iter().rev() {
                request.string(name);
            }
        })?;
        let count = usize::from(reply.u16()?);
        if count > names.len() || (count == 0 && !names.is_empty()) {
            return Err(Error::Protocol("it walks another number of names"));
        }
        let mut last = root;
        for _ in 0..count {
            last = reply.qid()?;
        }
        Ok((count, last))
    }

    /// A second number for the root, to be opened.
    pub(crate) fn clone_root(&mut self) -> Result<Fid, Error> {
        let (fid, ..) = self.step(ROOT, &[])?;
        fid.ok_or(Error::Protocol("it does not walk to where it is"))
    }

    fn read_link(&mut self, link: Fid) -> Result<Vec<u8>, Error> {
        let mut reply = self.call(Kind::Readlink, |request| request.u32(link.0))?;
        let target = reply.string()?;
        if target.is_empty() {
            return Err(Error::Errno(errno::ENOENT));
        }
        copy_of(target)
    }
}

/// How many of the next names go into one request: `..` goes alone, since the depth has to be
/// known in front of it.
fn batch(ahead: &[Vec<u8>]) -> usize {
    let names = ahead.iter().rev().take(NAMES_PER_WALK);
    names.take_while(|name| *name != b"..").count().max(1)
}

fn push(ahead: &mut Vec<Vec<u8>>, name: &[u8]) -> Result<(), Error> {
    let name = copy_of(name)?;
    ahead
        .try_reserve(1)
        .map_err(|_| Error::Errno(errno::ENOMEM))?;
    ahead.push(name);
    Ok(())
}

fn copy_of(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| Error::Errno(errno::ENOMEM))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}
