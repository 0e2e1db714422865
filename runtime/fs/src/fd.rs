//! The table of open files.

use alloc::vec::Vec;

use hermit_abi as abi;

use crate::errno::Errno;
use crate::tree::{Node, Tree};

/// The first descriptor of the table: 0 to 2 are the console, which is the caller's.
pub const FIRST_FD: i32 = 3;
/// How many descriptors can be open at a time.
pub const MAX_OPEN: usize = 1024;

/// What an open descriptor stands for. Descriptors made by `dup` share it.
struct OpenFile {
    node: Node,
    position: u64,
    /// How many descriptors refer to it; 0 marks a free place.
    users: u32,
}

/// The descriptors of one application.
///
/// The caller locks it. No method touches the application's memory, allocation failures are
/// −ENOMEM, and reads return the bytes to copy, so that the lock is only held for a moment.
#[derive(Default)]
pub struct FdTable {
    /// By descriptor − 3: the index into `files`.
    slots: Vec<Option<usize>>,
    files: Vec<OpenFile>,
}

impl FdTable {
    /// A table without open files.
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            files: Vec::new(),
        }
    }

    /// `open(2)`: whatever would change the tree is −EROFS.
    pub fn open(&mut self, tree: &Tree<'_>, path: &[u8], flags: i32) -> Result<i32, Errno> {
        let creates = flags & abi::O_CREAT != 0;
        let node = match tree.open(path) {
            Ok(_) if creates && flags & abi::O_EXCL != 0 => return Err(Errno::EXIST),
            Ok(node) => node,
            Err(Errno::NOENT) if creates => return Err(Errno::ROFS),
            Err(errno) => return Err(errno),
        };
        let is_dir = tree.metadata(node).is_dir;
        let writes = flags & (abi::O_WRONLY | abi::O_RDWR | abi::O_TRUNC | abi::O_APPEND) != 0;
        match (is_dir, writes) {
            (true, true) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::ROFS),
            (false, false) if flags & abi::O_DIRECTORY != 0 => return Err(Errno::NOTDIR),
            _ => {}
        }
        let slot = self.free_slot()?;
        let file = OpenFile {
            node,
            position: 0,
            users: 1,
        };
        let index = match self.files.iter().position(|file| file.users == 0) {
            Some(index) => {
                self.files[index] = file;
                index
            }
            None => {
                self.files.try_reserve(1).map_err(|_| Errno::NOMEM)?;
                self.files.push(file);
                self.files.len() - 1
            }
        };
        Ok(self.occupy(slot, index))
    }

    /// `close(2)`.
    pub fn close(&mut self, fd: i32) -> Result<(), Errno> {
        let index = self.index(fd)?;
        self.files[index].users -= 1;
        self.slots[(fd - FIRST_FD) as usize] = None;
        Ok(())
    }

    /// `dup(2)`: a second descriptor with the same position.
    pub fn dup(&mut self, fd: i32) -> Result<i32, Errno> {
        let index = self.index(fd)?;
        let slot = self.free_slot()?;
        self.files[index].users += 1;
        Ok(self.occupy(slot, index))
    }

    /// `read(2)` and, with the sum of all lengths, `readv(2)`: the bytes to copy to the
    /// application. The position has moved behind them, so that no two readers get the same.
    pub fn read<'a>(&mut self, tree: &Tree<'a>, fd: i32, len: usize) -> Result<&'a [u8], Errno> {
        let file = self.file(fd)?;
        let bytes = tree.extent(file.node, file.position, len)?;
        file.position += bytes.len() as u64;
        Ok(bytes)
    }

    /// `write(2)`, `writev(2)`: nothing is ever open for writing.
    pub fn write(&mut self, fd: i32) -> Result<usize, Errno> {
        self.index(fd).and(Err(Errno::BADF))
    }

    /// `lseek(2)`: positions behind the end are fine, those before the start are not.
    pub fn lseek(
        &mut self,
        tree: &Tree<'_>,
        fd: i32,
        offset: i64,
        whence: i32,
    ) -> Result<i64, Errno> {
        let file = self.file(fd)?;
        let base = match whence {
            abi::SEEK_SET => 0,
            abi::SEEK_CUR => file.position,
            abi::SEEK_END => tree.metadata(file.node).size,
            _ => return Err(Errno::INVAL),
        };
        let base = i64::try_from(base).map_err(|_| Errno::OVERFLOW)?;
        let position = base.checked_add(offset).ok_or(Errno::OVERFLOW)?;
        file.position = u64::try_from(position).map_err(|_| Errno::INVAL)?;
        Ok(position)
    }

    /// The node behind a descriptor, for [`Tree::stat`] (`fstat(2)`) and the like.
    pub fn node(&self, fd: i32) -> Result<Node, Errno> {
        Ok(self.files[self.index(fd)?].node)
    }

    /// First half of `getdents64`: the directory whose entries are to be written with
    /// [`Tree::write_dirents`], or `None` at its end (the call then returns 0).
    ///
    /// std calls once with a growing buffer and takes any success for everything, so entries
    /// are never split over calls: a buffer that is too small is −EINVAL.
    pub fn getdents(
        &mut self,
        tree: &Tree<'_>,
        fd: i32,
        count: usize,
    ) -> Result<Option<Node>, Errno> {
        let file = self.file(fd)?;
        let needed = tree.dirents_len(file.node)?;
        if file.position != 0 || needed == 0 {
            return Ok(None);
        }
        if needed > count {
            return Err(Errno::INVAL);
        }
        file.position = needed as u64;
        Ok(Some(file.node))
    }

    /// `unlink(2)`, `rmdir(2)`: −EROFS for what exists.
    pub fn remove(tree: &Tree<'_>, path: &[u8]) -> Result<(), Errno> {
        tree.open(path).and(Err(Errno::ROFS))
    }

    /// `mkdir(2)`: −EEXIST for what exists, −EROFS otherwise.
    pub fn mkdir(tree: &Tree<'_>, path: &[u8]) -> Result<(), Errno> {
        match tree.open(path) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => Err(Errno::ROFS),
            Err(errno) => Err(errno),
        }
    }

    fn index(&self, fd: i32) -> Result<usize, Errno> {
        let slot = fd.checked_sub(FIRST_FD).ok_or(Errno::BADF)?;
        let slot = usize::try_from(slot).map_err(|_| Errno::BADF)?;
        self.slots.get(slot).copied().flatten().ok_or(Errno::BADF)
    }

    fn file(&mut self, fd: i32) -> Result<&mut OpenFile, Errno> {
        let index = self.index(fd)?;
        Ok(&mut self.files[index])
    }

    /// The lowest free slot, as POSIX wants it.
    fn free_slot(&mut self) -> Result<usize, Errno> {
        if let Some(slot) = self.slots.iter().position(Option::is_none) {
            return Ok(slot);
        }
        if self.slots.len() == MAX_OPEN {
            return Err(Errno::MFILE);
        }
        self.slots.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        self.slots.push(None);
        Ok(self.slots.len() - 1)
    }

    fn occupy(&mut self, slot: usize, index: usize) -> i32 {
        self.slots[slot] = Some(index);
        // At most MAX_OPEN slots: fits.
        FIRST_FD + slot as i32
    }
}
