//! Why a call failed.

use core::fmt;

use hermit_abi::errno;

/// The largest error number that the application's ABI knows.
const LAST: i32 = errno::EHWPOISON;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An error number of the application's ABI, positive: the host's answer, or the client's own.
    Errno(i32),
    /// The reply does not follow the protocol; in what.
    Protocol(&'static str),
    /// The transport does not work.
    Device,
}

impl Error {
    /// The host's answer. Its numbers are Linux's, and so are the ABI's where it has them.
    pub(crate) fn from_host(number: u32) -> Self {
        match i32::try_from(number) {
            // Linux and the ABI both leave these two out.
            Ok(41 | 58) => Self::Errno(errno::EIO),
            Ok(number @ 1..=LAST) => Self::Errno(number),
            _ => Self::Errno(errno::EIO),
        }
    }

    /// The error number for the application, positive.
    pub fn errno(self) -> i32 {
        match self {
            Self::Errno(number) => number,
            Self::Protocol(_) | Self::Device => errno::EIO,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(number) => write!(f, "the host answers with error {number}"),
            Self::Protocol(what) => write!(f, "the host's reply makes no sense: {what}"),
            Self::Device => f.write_str("the device does not answer"),
        }
    }
}

impl core::error::Error for Error {}
