extern crate std;

use std::vec::Vec;

use super::*;
use crate::file::AccessMode;
use crate::tests::sample;
use crate::tree::Node;

const READ_WRITE: i32 = abi::O_RDWR;

/// Opens a file of the image, as the system call does.
fn open(fds: &mut FdTable, tree: &Tree<'_>, path: &[u8], flags: i32) -> Result<i32, Errno> {
    let node = tree.open(path)?;
    tree.admits(node, flags)?;
    let fd = fds.reserve()?;
    let opened = if tree.metadata(node).is_dir {
        Opened::Directory {
            image: Some(node),
            host: None,
        }
    } else {
        Opened::ImageFile(node)
    };
    fds.fill(fd, opened);
    Ok(fd)
}

/// Opens the host's file `number`.
fn open_host(fds: &mut FdTable, number: i32, flags: i32) -> i32 {
    let fd = fds.reserve().unwrap();
    let access = AccessMode::from_flags(flags).unwrap();
    fds.fill(fd, Opened::HostFile(Handle(number), access));
    fd
}

fn open_host_directory(fds: &mut FdTable, number: i32, image: Option<Node>) -> i32 {
    let fd = fds.reserve().unwrap();
    let host = Some(Handle(number));
    fds.fill(fd, Opened::Directory { image, host });
    fd
}

fn bytes<'a>(source: Result<Source<'a>, Errno>) -> Result<&'a [u8], Errno> {
    source.map(|source| match source {
        Source::Image(bytes) => bytes,
        Source::Host(..) => panic!("of the host"),
    })
}

fn at(seek: Result<Seek, Errno>) -> Result<i64, Errno> {
    seek.map(|seek| match seek {
        Seek::At(position) => position,
        Seek::Host(..) => panic!("of the host"),
    })
}

#[test]
fn descriptors_have_positions() {
    let archive = sample();
    let tree = Tree::from_tar(&archive).unwrap();
    let mut fds = FdTable::new();
    let a = open(&mut fds, &tree, b"hard", abi::O_RDONLY).unwrap();
    let b = open(&mut fds, &tree, b"hard", abi::O_RDONLY).unwrap();
    assert_eq!((a, b), (3, 4));
    assert_eq!(bytes(fds.read(&tree, a, 4)), Ok(&b"0123"[..]));
    assert_eq!(bytes(fds.read(&tree, b, 2)), Ok(&b"01"[..]));
    let c = fds.dup(a).unwrap();
    assert_eq!(bytes(fds.read(&tree, c, 100)), Ok(&b"456789"[..]));
    assert_eq!(bytes(fds.read(&tree, a, 100)), Ok(&b""[..]));
    let mut seek = |fd, offset, whence| at(fds.lseek(&tree, fd, offset, whence));
    assert_eq!(seek(a, -3, abi::SEEK_END), Ok(7));
    assert_eq!(seek(c, -2, abi::SEEK_CUR), Ok(5));
    assert_eq!(seek(a, -1, abi::SEEK_SET), Err(Errno::INVAL));
    assert_eq!(seek(a, i64::MAX, abi::SEEK_CUR), Err(Errno::OVERFLOW));
    assert_eq!(seek(a, 0, 9), Err(Errno::INVAL));
    assert_eq!(
        bytes(fds.read(&tree, a, 1)),
        Ok(&b"5"[..]),
        "a failed lseek moves nothing"
    );
    assert_eq!(at(fds.lseek(&tree, a, 100, abi::SEEK_SET)), Ok(100));
    assert_eq!(bytes(fds.read(&tree, a, 1)), Ok(&b""[..]));
    assert_eq!(fds.close(a), Ok(None));
    assert_eq!(fds.close(a), Err(Errno::BADF));
    assert_eq!(
        at(fds.lseek(&tree, c, 0, abi::SEEK_CUR)),
        Ok(100),
        "dup outlives its origin"
    );
    assert_eq!(
        open(&mut fds, &tree, b"/", abi::O_RDONLY),
        Ok(a),
        "the lowest free number"
    );
    assert_eq!(bytes(fds.read(&tree, a, 1)), Err(Errno::ISDIR));
    assert_eq!(bytes(fds.read(&tree, b, 1)), Ok(&b"2"[..]));
    for fd in [-1, 0, 2, 6, i32::MIN, i32::MAX] {
        assert_eq!(bytes(fds.read(&tree, fd, 1)), Err(Errno::BADF));
        assert_eq!(fds.close(fd), Err(Errno::BADF));
    }
}

#[test]
fn the_image_cannot_be_changed() {
    let archive = sample();
    let tree = Tree::from_tar(&archive).unwrap();
    let mut fds = FdTable::new();
    let mut open = |path: &[u8], flags| open(&mut fds, &tree, path, flags);
    assert_eq!(open(b"hard", abi::O_WRONLY), Err(Errno::ROFS));
    assert_eq!(open(b"hard", READ_WRITE | abi::O_TRUNC), Err(Errno::ROFS));
    assert_eq!(open(b"hard", abi::O_APPEND), Err(Errno::ROFS));
    assert_eq!(
        open(b"hard", READ_WRITE | abi::O_CREAT | abi::O_EXCL),
        Err(Errno::EXIST)
    );
    assert_eq!(open(b"shared", READ_WRITE), Err(Errno::ISDIR));
    assert_eq!(open(b"hard", abi::O_DIRECTORY), Err(Errno::NOTDIR));
    let fd = open(b"hard", abi::O_RDONLY | abi::O_CREAT).unwrap();
    assert_eq!(fds.write(fd).err(), Some(Errno::BADF));
}

#[test]
fn access_modes_are_kept() {
    let tree = Tree::empty().unwrap();
    let mut fds = FdTable::new();
    let reads = open_host(&mut fds, 70, abi::O_RDONLY | abi::O_CREAT);
    let writes = open_host(&mut fds, 71, abi::O_WRONLY | abi::O_APPEND);
    let both = open_host(&mut fds, 72, READ_WRITE | abi::O_TRUNC);
    assert_eq!(
        AccessMode::from_flags(abi::O_WRONLY | abi::O_RDWR),
        Err(Errno::INVAL)
    );
    for (fd, number, may_read, may_write) in [
        (reads, 70, true, false),
        (writes, 71, false, true),
        (both, 72, true, true),
    ] {
        match fds.read(&tree, fd, 5) {
            Ok(Source::Host(call, handle)) => {
                assert!(may_read && handle == Handle(number));
                assert_eq!(fds.finish(call), None);
            }
            other => assert!(!may_read && other.err() == Some(Errno::BADF)),
        }
        match fds.write(fd) {
            Ok((call, handle)) => {
                assert!(may_write && handle == Handle(number));
                assert_eq!(fds.finish(call), None);
            }
            other => assert!(!may_write && other.err() == Some(Errno::BADF)),
        }
        let Ok(Seek::Host(call, Handle(n))) = fds.lseek(&tree, fd, -9, abi::SEEK_END) else {
            panic!("the host seeks");
        };
        assert_eq!((n, fds.finish(call)), (number, None));
        let whence = fds.lseek(&tree, fd, 0, 3).err();
        assert_eq!(whence, Some(Errno::INVAL));
        assert_eq!(fds.getdents(fd).err(), Some(Errno::NOTDIR));
        assert_eq!(fds.close(fd), Ok(Some(Handle(number))));
    }
}

#[test]
fn a_handle_is_released_by_its_last_user() {
    let tree = Tree::empty().unwrap();
    let mut fds = FdTable::new();
    let fd = open_host(&mut fds, 5, READ_WRITE);
    let copy = fds.dup(fd).unwrap();
    let Ok(Source::Host(read, _)) = fds.read(&tree, fd, 1) else {
        panic!("the host reads");
    };
    let (write, _) = fds.write(copy).unwrap();
    assert_eq!(fds.close(fd), Ok(None), "its copy is open");
    assert_eq!(fds.finish(read), None, "its copy is open");
    assert_eq!(fds.close(copy), Ok(None), "a write is on its way");
    assert_eq!(fds.close(copy), Err(Errno::BADF));
    assert_eq!(fds.write(copy).err(), Some(Errno::BADF));
    // The numbers go to another file while the write is on its way.
    let other = open_host(&mut fds, 6, READ_WRITE);
    assert_eq!(other, fd);
    let (second, handle) = fds.write(other).unwrap();
    assert_eq!(handle, Handle(6));
    assert_eq!(fds.finish(write), Some(Handle(5)), "the last one releases");
    assert_eq!(fds.finish(second), None);
    assert_eq!(fds.close(other), Ok(Some(Handle(6))));
}

#[test]
fn reserved_descriptors_are_not_open_yet() {
    let tree = Tree::empty().unwrap();
    let mut fds = FdTable::new();
    let first = fds.reserve().unwrap();
    let second = fds.reserve().unwrap();
    assert_eq!((first, second), (3, 4));
    assert_eq!(fds.close(first), Err(Errno::BADF));
    assert_eq!(fds.dup(first), Err(Errno::BADF));
    assert_eq!(fds.read(&tree, first, 1).err(), Some(Errno::BADF));
    fds.abandon(first);
    assert_eq!(fds.reserve(), Ok(first));
    let access = AccessMode::from_flags(abi::O_RDONLY).unwrap();
    fds.fill(second, Opened::HostFile(Handle(9), access));
    fds.abandon(second);
    assert_eq!(fds.close(second), Ok(Some(Handle(9))), "it was open");
}

#[test]
fn the_table_is_bounded_and_reuses_its_places() {
    let tree = Tree::empty().unwrap();
    let mut fds = FdTable::new();
    for _ in 0..3 {
        let all: Vec<i32> = (0..MAX_OPEN as i32)
            .map(|number| open_host(&mut fds, number, READ_WRITE))
            .collect();
        assert_eq!(fds.reserve(), Err(Errno::MFILE));
        assert_eq!(fds.dup(all[0]), Err(Errno::MFILE));
        assert_eq!(open(&mut fds, &tree, b"/", 0), Err(Errno::MFILE));
        for (fd, number) in all.into_iter().zip(0..) {
            assert_eq!(fds.close(fd), Ok(Some(Handle(number))));
        }
    }
    assert_eq!(fds.files.len(), MAX_OPEN);
}

#[test]
fn a_directory_is_listed_once() {
    let archive = sample();
    let tree = Tree::from_tar(&archive).unwrap();
    let mut fds = FdTable::new();
    let shared = tree.open(b"shared").unwrap();
    let fd = open_host_directory(&mut fds, 8, Some(shared));
    let Ok(Entries::Collect { call, image, host }) = fds.getdents(fd) else {
        panic!("nothing was read yet");
    };
    assert_eq!((image, host), (Some(shared), Some(Handle(8))));
    assert!(
        matches!(fds.getdents(fd), Ok(Entries::End)),
        "somebody else reads it"
    );
    let listing = Listing::of_image(&tree, shared).unwrap();
    let size = listing.bytes();
    fds.keep(&call, Some(listing));
    assert_eq!(fds.finish(call), None);
    let Ok(Entries::Kept(call, listing)) = fds.getdents(fd) else {
        panic!("it was kept");
    };
    assert_eq!(listing.bytes(), size);
    fds.keep(&call, None);
    assert_eq!(fds.finish(call), None);
    let Ok(Entries::Collect { call, .. }) = fds.getdents(fd) else {
        panic!("it is to be collected anew");
    };
    assert_eq!(fds.finish(call), None);
    assert!(matches!(fds.getdents(fd), Ok(Entries::End)));
    assert_eq!(
        at(fds.lseek(&tree, fd, 4, abi::SEEK_SET)),
        Err(Errno::INVAL)
    );
    assert_eq!(at(fds.lseek(&tree, fd, 0, abi::SEEK_SET)), Ok(0), "rewound");
    let Ok(Entries::Collect { call, .. }) = fds.getdents(fd) else {
        panic!("it was rewound");
    };
    assert_eq!(fds.close(fd), Ok(None), "it is being listed");
    assert_eq!(fds.finish(call), Some(Handle(8)));
}

#[test]
fn owners_describe_files() {
    let archive = sample();
    let tree = Tree::from_tar(&archive).unwrap();
    let mut fds = FdTable::new();
    let node = tree.open(b"shared").unwrap();
    let both = open_host_directory(&mut fds, 1, Some(node));
    let host = open_host_directory(&mut fds, 2, None);
    let file = open_host(&mut fds, 3, abi::O_WRONLY);
    let image = open(&mut fds, &tree, b"hard", 0).unwrap();
    assert!(matches!(fds.owner(both), Ok(Owner::Image(owner)) if owner == node));
    assert!(matches!(fds.owner(image), Ok(Owner::Image(_))));
    for (fd, handle) in [(host, Handle(2)), (file, Handle(3))] {
        let Ok(Owner::Host(call, owner)) = fds.owner(fd) else {
            panic!("the host's");
        };
        assert_eq!((owner, fds.finish(call)), (handle, None));
    }
    assert_eq!(fds.owner(99).err(), Some(Errno::BADF));
    assert_eq!(fds.write(host).err(), Some(Errno::BADF));
    assert_eq!(fds.read(&tree, host, 1).err(), Some(Errno::ISDIR));
    assert_eq!(fds.close(both), Ok(Some(Handle(1))));
}
