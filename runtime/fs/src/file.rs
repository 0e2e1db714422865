//! What descriptors stand for, and what the calls on them come to.

use hermit_abi as abi;

use crate::errno::Errno;
use crate::listing::Listing;
use crate::tree::Node;

/// An open file of the host, as the host numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle(pub i32);

/// What a file of the host was opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessMode {
    /// `read` is allowed.
    pub read: bool,
    /// `write` is allowed.
    pub write: bool,
}

impl AccessMode {
    /// The mode that the flags of `open(2)` ask for.
    pub fn from_flags(flags: i32) -> Result<Self, Errno> {
        match flags & (abi::O_WRONLY | abi::O_RDWR) {
            abi::O_RDONLY => Ok(Self {
                read: true,
                write: false,
            }),
            abi::O_WRONLY => Ok(Self {
                read: false,
                write: true,
            }),
            abi::O_RDWR => Ok(Self {
                read: true,
                write: true,
            }),
            _ => Err(Errno::INVAL),
        }
    }
}

/// What a new descriptor is to stand for.
#[derive(Clone, Copy, Debug)]
pub enum Opened {
    /// A file of the image.
    ImageFile(Node),
    /// A file of the host.
    HostFile(Handle, AccessMode),
    /// A directory: of the image, of the host, or of both.
    Directory {
        /// The image's part.
        image: Option<Node>,
        /// The host's part.
        host: Option<Handle>,
    },
}

impl Opened {
    /// What the host has to release in the end.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match *self {
            Self::ImageFile(_) => None,
            Self::HostFile(handle, _) => Some(handle),
            Self::Directory { host, .. } => host,
        }
    }
}

/// A call on its way: as long as it lives, the file's handle is not released.
/// [`FdTable::finish`] ends it.
#[must_use]
#[derive(Debug)]
pub struct InFlight {
    /// Its place in the table.
    pub(crate) index: usize,
}

/// What `read(2)` reads.
#[derive(Debug)]
pub enum Source<'a> {
    /// These bytes of the image.
    Image(&'a [u8]),
    /// The host's file.
    Host(InFlight, Handle),
}

/// What `lseek(2)` comes to.
#[derive(Debug)]
pub enum Seek {
    /// The new position.
    At(i64),
    /// The host moves the position of its file.
    Host(InFlight, Handle),
}

/// Who describes a file.
#[derive(Debug)]
pub enum Owner {
    /// The image.
    Image(Node),
    /// The host.
    Host(InFlight, Handle),
}

/// What `getdents64` has to do.
#[derive(Debug)]
pub enum Entries {
    /// Nothing: the directory is at its end.
    End,
    /// Collect the entries, those of the host from its start on.
    Collect {
        /// The call.
        call: InFlight,
        /// The image's part of the directory.
        image: Option<Node>,
        /// The host's part.
        host: Option<Handle>,
    },
    /// Try again with what was collected before.
    Kept(InFlight, Listing),
}
