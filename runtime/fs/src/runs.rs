//! Buffers of the application as a hypervisor takes them: by physical address and in one piece.
//!
//! A buffer is virtually contiguous, demand-paged memory. [`transfer`] hands it over piece by
//! piece: each is a run of pages whose frames follow each other, found by [`first_run`]. Pages that
//! are missing are mapped first, and only where the transfer comes to: a short one leaves the rest
//! of the buffer as it is.

use crate::errno::Errno;

/// The most bytes that one piece has.
pub const MOST_BYTES: usize = 1 << 20;

/// Where an address leads.
#[derive(Clone, Copy, Debug)]
pub struct Translation {
    /// The physical address.
    pub physical: u64,
    /// Bytes from there to the end of its page.
    pub bytes: usize,
    /// Whether loads are allowed.
    pub readable: bool,
    /// Whether stores are allowed.
    pub writable: bool,
}

/// What the host does with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It takes bytes out: `write`.
    FromMemory,
    /// It puts bytes in: `read`.
    ToMemory,
}

/// Physically contiguous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first physical address.
    pub physical: u64,
    /// Length in bytes, not 0.
    pub bytes: usize,
}

/// Why there is no run at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRun {
    /// No page is mapped.
    Missing,
    /// The page does not allow it.
    Forbidden,
}

/// The longest run at the start of the `bytes` bytes (not 0) at `start`, and no longer than
/// [`MOST_BYTES`]: it ends where frames do not follow each other, a page is missing, or a page does
/// not allow the access.
pub fn first_run(
    start: u64,
    bytes: usize,
    direction: Direction,
    mut translate: impl FnMut(u64) -> Option<Translation>,
) -> Result<Run, NoRun> {
    let most = bytes.min(MOST_BYTES);
    let mut allowed = |offset: usize| {
        let translation = start
            .checked_add(offset as u64)
            .and_then(&mut translate)
            .ok_or(NoRun::Missing)?;
        let allowed = match direction {
            Direction::FromMemory => translation.readable,
            Direction::ToMemory => translation.writable,
        };
        allowed.then_some(translation).ok_or(NoRun::Forbidden)
    };
    let first = allowed(0)?;
    let mut found = first.bytes;
    while found < most {
        match allowed(found) {
            Ok(next) if next.physical == first.physical + found as u64 => found += next.bytes,
            _ => break,
        }
    }
    Ok(Run {
        physical: first.physical,
        bytes: found.min(most),
    })
}

/// What became of an attempt to hand over the start of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// A piece of `tried` bytes was handed over, and the host took or gave `done` of them, or
    /// refused.
    Tried {
        /// Bytes of the piece.
        tried: usize,
        /// Bytes that went over.
        done: Result<usize, Errno>,
    },
    /// There was no piece, and the host was not called.
    NoRun(NoRun),
}

/// Hands over the `bytes` bytes at `start`, in pieces; returns how many went over. The first short
/// piece is the last. An error counts only where nothing went over before it.
///
/// `attempt` gets the address and the bytes that are left, and hands over their first run.
/// `populate` maps the pages of the range that it gets, or says why it cannot map all of them. A
/// page that vanishes between the two is mapped again.
pub fn transfer(
    start: u64,
    bytes: usize,
    mut attempt: impl FnMut(u64, usize) -> Attempt,
    mut populate: impl FnMut(u64, usize) -> Result<(), Errno>,
) -> Result<usize, Errno> {
    let mut total = 0;
    // The last failure to populate, and where: the page there may be mapped all the same.
    let mut failure = None;
    while total < bytes {
        let (at, left) = (start + total as u64, bytes - total);
        let error = match attempt(at, left) {
            Attempt::Tried {
                tried,
                done: Ok(done),
            } => {
                total += done.min(tried);
                if done < tried {
                    break;
                }
                continue;
            }
            Attempt::Tried {
                done: Err(error), ..
            } => error,
            Attempt::NoRun(NoRun::Forbidden) => Errno::FAULT,
            Attempt::NoRun(NoRun::Missing) => match failure {
                Some((place, error)) if place == at => error,
                _ => {
                    let populated = populate(at, left.min(MOST_BYTES));
                    failure = populated.err().map(|error| (at, error));
                    continue;
                }
            },
        };
        return if total > 0 { Ok(total) } else { Err(error) };
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
