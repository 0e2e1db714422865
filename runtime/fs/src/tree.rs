//! The tree of directories and files.

use alloc::vec::Vec;

use hermit_abi::{
    O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY, S_IFDIR, S_IFREG, stat,
    timespec,
};

use crate::archive::{Entries, Entry, Error, Kind, Path};
use crate::errno::Errno;
use crate::path::FilePath;

/// A file or directory of one [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(u32);

/// What is known about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// When it was last changed, in seconds since 1970.
    pub mtime: i64,
    /// Permission bits, as stored.
    pub mode: u32,
}

/// A read-only tree over the tar archive `'a`.
pub struct Tree<'a> {
    nodes: Vec<Inode<'a>>,
    skipped: usize,
}

struct Inode<'a> {
    name: &'a [u8],
    parent: Node,
    mode: u32,
    mtime: i64,
    content: Content<'a>,
}

enum Content<'a> {
    File(&'a [u8]),
    /// Sorted by name.
    Directory(Vec<Node>),
}

impl<'a> Tree<'a> {
    /// The directory that all paths start from.
    pub const ROOT: Node = Node(0);

    /// Indexes an archive. Directories that the archive does not list, but its files imply, exist
    /// as well. Of several files of one name the last one counts, as with `tar`.
    pub fn from_tar(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut tree = Self::empty()?;
        for entry in Entries::new(bytes) {
            tree.add(entry?)?;
        }
        Ok(tree)
    }

    /// The tree of an image without files: an empty root directory.
    pub fn empty() -> Result<Self, Error> {
        let mut tree = Self {
            nodes: Vec::new(),
            skipped: 0,
        };
        tree.push(b"", Self::ROOT, Content::Directory(Vec::new()))?;
        Ok(tree)
    }

    /// How many entries of the archive are neither files nor directories (symbolic links, devices)
    /// and are not in the tree.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// [`Tree::find`] for a path as the application gave it.
    pub fn open(&self, path: &[u8]) -> Result<Node, Errno> {
        self.find(&FilePath::new(path)?)
    }

    /// The node that a path names.
    pub fn find(&self, path: &FilePath) -> Result<Node, Errno> {
        let mut node = Self::ROOT;
        for name in path.names() {
            self.children(node)?;
            node = self.child(node, name).ok_or(Errno::NOENT)?;
        }
        if path.names_directory() {
            self.children(node)?;
        }
        Ok(node)
    }

    /// The node of this name in a directory.
    pub fn child(&self, directory: Node, name: &[u8]) -> Option<Node> {
        let children = self.children(directory).ok()?;
        let at = self.position(children, name).ok()?;
        Some(children[at])
    }

    /// Whether `open(2)` with these flags may open a node: whatever would change it is −EROFS.
    pub fn admits(&self, node: Node, flags: i32) -> Result<(), Errno> {
        const EXCLUSIVE: i32 = O_CREAT | O_EXCL;
        if flags & EXCLUSIVE == EXCLUSIVE {
            return Err(Errno::EXIST);
        }
        let writes = flags & (O_WRONLY | O_RDWR | O_TRUNC | O_APPEND) != 0;
        match (self.metadata(node).is_dir, writes) {
            (true, true) => Err(Errno::ISDIR),
            (false, true) => Err(Errno::ROFS),
            (false, false) if flags & O_DIRECTORY != 0 => Err(Errno::NOTDIR),
            _ => Ok(()),
        }
    }

    fn children(&self, node: Node) -> Result<&[Node], Errno> {
        match &self.inode(node).content {
            Content::Directory(children) => Ok(children),
            Content::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// What is known about a node.
    pub fn metadata(&self, node: Node) -> Metadata {
        let inode = self.inode(node);
        let (size, is_dir) = match &inode.content {
            Content::File(data) => (data.len() as u64, false),
            Content::Directory(_) => (0, true),
        };
        Metadata {
            size,
            is_dir,
            mtime: inode.mtime,
            mode: inode.mode,
        }
    }

    /// A file's bytes.
    pub fn contents(&self, node: Node) -> Result<&'a [u8], Errno> {
        match self.inode(node).content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(Errno::ISDIR),
        }
    }

    /// Up to `len` bytes of a file from `offset` on; fewer at its end, none behind it.
    pub fn extent(&self, node: Node, offset: u64, len: usize) -> Result<&'a [u8], Errno> {
        let data = self.contents(node)?;
        let start = usize::try_from(offset).map_or(data.len(), |offset| offset.min(data.len()));
        let end = start.saturating_add(len).min(data.len());
        Ok(&data[start..end])
    }

    /// Copies from `offset` on into `buf`; returns the number of bytes.
    pub fn read_at(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let bytes = self.extent(node, offset, buf.len())?;
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Names and nodes in a directory, sorted by name, without `.` and `..`.
    pub fn read_dir(&self, node: Node) -> Result<ReadDir<'_, 'a>, Errno> {
        match &self.inode(node).content {
            Content::Directory(children) => Ok(ReadDir {
                tree: self,
                rest: children,
            }),
            Content::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// What `fstat` and `stat` say about a node. Nobody may write, whatever the archive says.
    pub fn stat(&self, node: Node) -> stat {
        let metadata = self.metadata(node);
        let (kind, nlink) = if metadata.is_dir {
            (S_IFDIR, 2)
        } else {
            (S_IFREG, 1)
        };
        let time = timespec {
            tv_sec: metadata.mtime,
            tv_nsec: 0,
        };
        stat {
            st_dev: 1,
            st_ino: Self::inode_number(node),
            st_nlink: nlink,
            st_mode: kind | (metadata.mode & 0o555),
            st_size: metadata.size.cast_signed(),
            st_blksize: 4096,
            st_blocks: metadata.size.div_ceil(512).cast_signed(),
            st_atim: time,
            st_mtim: time,
            st_ctim: time,
            ..stat::default()
        }
    }

    /// The number of a node: not zero, which some programs take for a deleted entry.
    pub(crate) fn inode_number(node: Node) -> u64 {
        u64::from(node.0) + 1
    }

    fn inode(&self, node: Node) -> &Inode<'a> {
        &self.nodes[node.0 as usize]
    }

    fn position(&self, children: &[Node], name: &[u8]) -> Result<usize, usize> {
        children.binary_search_by(|&child| self.inode(child).name.cmp(name))
    }

    fn push(&mut self, name: &'a [u8], parent: Node, content: Content<'a>) -> Result<Node, Error> {
        self.nodes.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let node = Node(u32::try_from(self.nodes.len()).map_err(|_| Error::OutOfMemory)?);
        let mode = match content {
            Content::File(_) => 0o444,
            Content::Directory(_) => 0o555,
        };
        self.nodes.push(Inode {
            name,
            parent,
            mode,
            mtime: 0,
            content,
        });
        Ok(node)
    }

    fn add(&mut self, entry: Entry<'a>) -> Result<(), Error> {
        let data = match entry.kind {
            Kind::File(data) => Some(data),
            Kind::Directory => None,
            Kind::HardLink(target) => Some(
                self.linked(target)
                    .ok_or(Error::HardLink { at: entry.at })?,
            ),
            Kind::Other => {
                self.skipped += 1;
                return Ok(());
            }
        };
        let mut node = Self::ROOT;
        let mut parts = entry.path.parts().peekable();
        while let Some(part) = parts.next() {
            if part == b".." {
                node = self.inode(node).parent;
                continue;
            }
            let file = if parts.peek().is_none() { data } else { None };
            node = self.enter(node, part, file, entry.at)?;
        }
        let inode = &mut self.nodes[node.0 as usize];
        if data.is_some() != matches!(inode.content, Content::File(_)) {
            return Err(Error::FileAndDirectory { at: entry.at });
        }
        inode.mode = entry.mode;
        inode.mtime = entry.mtime;
        Ok(())
    }

    /// Finds or makes the file (if there is data for it) or directory `name` in `parent`.
    fn enter(
        &mut self,
        parent: Node,
        name: &'a [u8],
        file: Option<&'a [u8]>,
        at: usize,
    ) -> Result<Node, Error> {
        let Content::Directory(children) = &self.inode(parent).content else {
            return Err(Error::FileAndDirectory { at });
        };
        match self.position(children, name) {
            Ok(position) => {
                let node = children[position];
                match (&mut self.nodes[node.0 as usize].content, file) {
                    (Content::File(data), Some(replacement)) => *data = replacement,
                    (Content::Directory(_), None) => {}
                    _ => return Err(Error::FileAndDirectory { at }),
                }
                Ok(node)
            }
            Err(position) => {
                let content = file.map_or(Content::Directory(Vec::new()), Content::File);
                let node = self.push(name, parent, content)?;
                if let Content::Directory(children) = &mut self.nodes[parent.0 as usize].content {
                    children.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
                    children.insert(position, node);
                }
                Ok(node)
            }
        }
    }

    fn linked(&self, target: Path<'a>) -> Option<&'a [u8]> {
        let mut node = Self::ROOT;
        for part in target.parts() {
            let Content::Directory(children) = &self.inode(node).content else {
                return None;
            };
            node = if part == b".." {
                self.inode(node).parent
            } else {
                children[self.position(children, part).ok()?]
            };
        }
        self.contents(node).ok()
    }
}

/// Iterates over a directory: see [`Tree::read_dir`].
pub struct ReadDir<'t, 'a> {
    tree: &'t Tree<'a>,
    rest: &'t [Node],
}

impl<'a> Iterator for ReadDir<'_, 'a> {
    type Item = (&'a [u8], Node);

    fn next(&mut self) -> Option<Self::Item> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some((self.tree.inode(first).name, first))
    }
}
