//! Against the crate `p9`, a server over real files.

use std::cell::Cell;
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::rc::Rc;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use hermit_abi::errno::*;
use hermit_abi::*;
use p9::{Config, Server};

use super::{Short, errno, names};
use crate::{Client, Transport};

/// A server, the longest message it has seen, and how many.
struct Local {
    server: Server,
    seen: Rc<Seen>,
}

#[derive(Default)]
struct Seen {
    longest: Cell<usize>,
    requests: Cell<usize>,
    /// Numbers of files that the server holds: walks and attachments that succeeded, less clunks.
    fids: Cell<isize>,
}

impl Transport for Local {
    fn exchange(&mut self, request: &[u8], reply: &mut [u8]) -> Option<usize> {
        let mut answer = Vec::new();
        let mut reader = Cursor::new(request);
        self.server
            .handle_message(&mut reader, &mut answer)
            .unwrap();
        if matches!(request[4], 14 | 72) {
            // The mode stands before the group, which is last. This process has a mask too.
            let mode = request[request.len() - 8];
            assert_eq!(mode & 0o022, 0, "others cannot write what is made");
        }
        let longest = request.len().max(answer.len());
        self.seen.longest.set(self.seen.longest.get().max(longest));
        self.seen.requests.set(self.seen.requests.get() + 1);
        let change = match (request[4], answer[4]) {
            (104, 105) => 1,
            // A walk that gets as far as it was to.
            (110, 111) if answer[7..9] == request[15..17] => 1,
            (120, 121) => -1,
            _ => 0,
        };
        self.seen.fids.set(self.seen.fids.get() + change);
        reply.get_mut(..answer.len())?.copy_from_slice(&answer);
        Some(answer.len())
    }
}

struct Share {
    client: Client<Local>,
    seen: Rc<Seen>,
    directory: tempfile::TempDir,
}

impl Share {
    fn new() -> Self {
        Self::with_messages_of(64 << 10)
    }

    fn with_messages_of(bytes: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let seen = Rc::new(Seen::default());
        let config = Config {
            root: directory.path().into(),
            msize: bytes,
            ..Config::default()
        };
        let server = Server::with_config(config).unwrap();
        let client = Client::new(Local {
            server,
            seen: seen.clone(),
        });
        Self {
            client: client.unwrap(),
            seen,
            directory,
        }
    }

    fn host(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn contents(&mut self, path: &str) -> Result<Vec<u8>, crate::Error> {
        let id = self.client.open_at(path, O_RDONLY)?;
        let mut contents = vec![0; 1 << 20];
        let read = self.client.read_to(id, &mut contents)?;
        contents.truncate(read);
        self.client.close(id)?;
        Ok(contents)
    }

    fn listed(&mut self, path: &str) -> Vec<(String, u8)> {
        let id = self.client.open_at(path, O_DIRECTORY).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let bytes = self.client.getdents(id, &mut buffer).unwrap();
        assert_eq!(self.client.getdents(id, &mut buffer[bytes..]), Ok(0));
        self.client.close(id).unwrap();
        let mut entries = entries(&buffer[..bytes]);
        entries.sort();
        entries
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.seen.fids.get(), 1, "only the root is left");
        }
    }
}

fn entries(mut records: &[u8]) -> Vec<(String, u8)> {
    let mut entries = Vec::new();
    while !records.is_empty() {
        let length = usize::from(u16::from_ne_bytes([records[16], records[17]]));
        let name = core::ffi::CStr::from_bytes_until_nul(&records[19..length]).unwrap();
        entries.push((name.to_str().unwrap().to_string(), records[18]));
        records = &records[length..];
    }
    entries
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn what_is_written_is_on_the_host_and_read_back() {
    let mut share = Share::new();
    for (name, size) in [("empty", 0), ("small", 10), ("large", 3 << 20)] {
        let bytes = pattern(size);
        let id = share
            .client
            .open_at(name, O_CREAT | O_TRUNC | O_RDWR)
            .unwrap();
        assert_eq!(share.client.write_from(id, &bytes), Ok(size));
        assert_eq!(share.client.fsync(id), Ok(()));
        assert_eq!(fs::read(share.host(name)).unwrap(), bytes);
        assert_eq!(share.client.seek(id, 0, SEEK_SET), Ok(0));
        let mut back = vec![0; size + 5];
        assert_eq!(share.client.read_to(id, &mut back), Ok(size));
        assert_eq!(back[..size], bytes);
        assert_eq!(share.client.read_to(id, &mut back), Ok(0));
        assert_eq!(share.client.close(id), Ok(()));
        assert_eq!(errno(share.client.close(id)), EBADF);
    }
    let mode = fs::metadata(share.host("small")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o022, 0);
}

#[test]
fn messages_are_no_longer_than_agreed() {
    let mut share = Share::with_messages_of(8 << 10);
    let bytes = pattern(100_000);
    let id = share.client.open_at("x", O_CREAT | O_RDWR).unwrap();
    assert_eq!(share.client.write_from(id, &bytes), Ok(bytes.len()));
    share.client.close(id).unwrap();
    assert_eq!(share.contents("x").unwrap(), bytes);
    assert_eq!(share.seen.longest.get(), 8 << 10);
    for n in 0..300 {
        fs::write(
            share.host(&format!("a-long-name-to-fill-messages-{n:03}")),
            "",
        )
        .unwrap();
    }
    let before = share.seen.requests.get();
    assert_eq!(share.listed("").len(), 301);
    assert!(share.seen.requests.get() - before > 4);
    assert_eq!(share.seen.longest.get(), 8 << 10);
    assert_eq!(
        errno(Share::try_with_messages_of(4 << 10)),
        EIO,
        "too short for names"
    );
}

impl Share {
    fn try_with_messages_of(bytes: u32) -> Result<Client<Local>, crate::Error> {
        let config = Config {
            root: std::env::temp_dir().into(),
            msize: bytes,
            ..Config::default()
        };
        Client::new(Local {
            server: Server::with_config(config).unwrap(),
            seen: Rc::default(),
        })
    }
}

#[test]
fn positions_move_as_posix_says() {
    let mut share = Share::new();
    fs::write(share.host("x"), "0123456789").unwrap();
    let client = &mut share.client;
    let id = client.open_at("x", O_RDWR).unwrap();
    let mut two = [0; 2];
    assert_eq!(client.seek(id, -3, SEEK_END), Ok(7));
    assert_eq!(client.read_to(id, &mut two), Ok(2));
    assert_eq!(&two, b"78");
    assert_eq!(client.seek(id, -8, SEEK_CUR), Ok(1));
    assert_eq!(client.write_from(id, b"ab"), Ok(2));
    assert_eq!(client.read_to(id, &mut two), Ok(2));
    assert_eq!(&two, b"34");
    assert_eq!(errno(client.seek(id, -6, SEEK_CUR)), EINVAL);
    assert_eq!(errno(client.seek(id, i64::MAX, SEEK_END)), EOVERFLOW);
    assert_eq!(errno(client.seek(id, 0, 9)), EINVAL);
    assert_eq!(client.seek(id, 12, SEEK_SET), Ok(12));
    assert_eq!(client.read_to(id, &mut two), Ok(0));
    assert_eq!(client.write_from(id, b"!"), Ok(1));
    client.close(id).unwrap();
    assert_eq!(fs::read(share.host("x")).unwrap(), b"0ab3456789\0\0!");
}

#[test]
fn memory_that_fails_ends_a_call_with_what_went_over() {
    let mut share = Share::with_messages_of(8 << 10);
    let client = &mut share.client;
    let id = client.open_at("x", O_CREAT | O_RDWR).unwrap();
    let bytes = pattern(20_000);
    // Memory that ends at 10000.
    let mut give = |at: usize, piece: &mut [u8]| {
        let there = bytes.get(at..10_000).filter(|rest| !rest.is_empty());
        let there = there.ok_or(EFAULT)?;
        let count = there.len().min(piece.len());
        piece[..count].copy_from_slice(&there[..count]);
        Ok(count)
    };
    assert_eq!(client.write(id, 20_000, &mut give), Ok(10_000));
    assert_eq!(client.seek(id, 0, SEEK_CUR), Ok(10_000));
    assert_eq!(errno(client.write(id, 1, |_, _| Err(EFAULT))), EFAULT);
    assert_eq!(client.seek(id, 0, SEEK_SET), Ok(0));
    let take = |at: usize, piece: &[u8]| match at {
        0 => Ok(piece.len()),
        _ => Ok(100),
    };
    assert_eq!(client.read(id, 10_000, take), Ok(8192 - 23 + 100));
    assert_eq!(errno(client.read(id, 1, |_, _| Err(EFAULT))), EFAULT);
    assert_eq!(client.seek(id, 0, SEEK_CUR), Ok(8192 - 23 + 100));
    client.close(id).unwrap();
    assert_eq!(fs::read(share.host("x")).unwrap(), bytes[..10_000]);
}

#[test]
fn appending_goes_to_the_end_wherever_the_position_is() {
    let mut share = Share::new();
    fs::write(share.host("x"), "abc").unwrap();
    let id = share.client.open_at("x", O_RDWR | O_APPEND).unwrap();
    assert_eq!(share.client.write_from(id, b"de"), Ok(2));
    assert_eq!(share.client.seek(id, 0, SEEK_SET), Ok(0));
    assert_eq!(share.client.write_from(id, b"f"), Ok(1));
    assert_eq!(share.client.seek(id, 0, SEEK_CUR), Ok(6));
    share.client.close(id).unwrap();
    assert_eq!(fs::read(share.host("x")).unwrap(), b"abcdef");
}

#[test]
fn opening_respects_its_flags() {
    let mut share = Share::new();
    fs::write(share.host("x"), "abc").unwrap();
    fs::create_dir(share.host("d")).unwrap();
    let client = &mut share.client;
    let mut open = |path: &str, flags| {
        let id = client.open_at(path, flags)?;
        client.close(id)
    };
    assert_eq!(errno(open("y", O_RDWR)), ENOENT);
    assert_eq!(errno(open("y/z", O_CREAT | O_RDWR)), ENOENT);
    assert_eq!(errno(open("x/y", O_RDONLY)), ENOTDIR);
    assert_eq!(errno(open("x/y", O_CREAT | O_RDWR)), ENOTDIR);
    assert_eq!(errno(open("x", O_CREAT | O_EXCL | O_RDWR)), EEXIST);
    assert_eq!(errno(open("x", O_DIRECTORY)), ENOTDIR);
    assert_eq!(errno(open("d", O_WRONLY)), EISDIR);
    assert_eq!(errno(open("d", O_CREAT)), EISDIR);
    assert_eq!(errno(open("", O_CREAT)), EISDIR);
    assert_eq!(errno(open(&"n".repeat(300), O_RDONLY)), ENAMETOOLONG);
    assert_eq!(open("x", O_CREAT | O_RDWR), Ok(()));
    assert_eq!(fs::read(share.host("x")).unwrap(), b"abc");
    let id = share.client.open_at("x", O_RDONLY).unwrap();
    assert_eq!(errno(share.client.write_from(id, b"no")), EBADF);
    share.client.close(id).unwrap();
    let id = share.client.open_at("x", O_WRONLY | O_TRUNC).unwrap();
    assert_eq!(errno(share.client.read_to(id, &mut [0])), EBADF);
    share.client.close(id).unwrap();
    assert_eq!(fs::read(share.host("x")).unwrap(), b"");
    let id = share.client.open_at("new", O_CREAT | O_EXCL | O_WRONLY);
    share.client.close(id.unwrap()).unwrap();
    assert!(share.host("new").is_file());
}

#[test]
fn directories_are_made_listed_and_removed() {
    let mut share = Share::new();
    let client = &mut share.client;
    assert_eq!(client.mkdir(&names("d"), 0o777), Ok(()));
    assert_eq!(client.mkdir(&names("d/e"), 0o777), Ok(()));
    assert_eq!(errno(client.mkdir(&names("d"), 0o777)), EEXIST);
    assert_eq!(errno(client.mkdir(&names(""), 0o777)), EEXIST);
    assert_eq!(errno(client.mkdir(&names("f/g"), 0o777)), ENOENT);
    let mode = fs::metadata(share.host("d/e"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    fs::write(share.host("d/f"), "").unwrap();
    symlink("f", share.host("d/l")).unwrap();
    let listed = share.listed("d");
    let expected = [("e", DT_DIR), ("f", DT_REG), ("l", DT_LNK)];
    assert!(
        listed
            .iter()
            .map(|(name, kind)| (&**name, *kind))
            .eq(expected),
        "{listed:?}"
    );
    assert_eq!(share.listed("d/e"), []);
    let client = &mut share.client;
    assert_eq!(errno(client.remove(&names("d"), true)), ENOTEMPTY);
    assert_eq!(errno(client.remove(&names("d/f"), true)), ENOTDIR);
    assert_eq!(errno(client.remove(&names("d/e"), false)), EISDIR);
    assert_eq!(errno(client.remove(&names("d/x"), false)), ENOENT);
    assert_eq!(errno(client.remove(&names(""), true)), EBUSY);
    // The link goes, not what it leads to.
    assert_eq!(client.remove(&names("d/l"), false), Ok(()));
    assert_eq!(client.remove(&names("d/f"), false), Ok(()));
    assert_eq!(client.remove(&names("d/e"), true), Ok(()));
    assert_eq!(client.remove(&names("d"), true), Ok(()));
    assert!(!share.host("d").exists());
}

#[test]
fn a_listing_comes_in_whole_records() {
    let mut share = Share::new();
    for name in ["one", "two", "six"] {
        fs::write(share.host(name), "").unwrap();
    }
    let client = &mut share.client;
    let id = client.open_at("", O_RDONLY).unwrap();
    let mut buffer = [0; 72];
    assert_eq!(errno(client.getdents(id, &mut buffer[..23])), EINVAL);
    assert_eq!(client.getdents(id, &mut buffer[..50]), Ok(48));
    let mut all = entries(&buffer[..48]);
    // What comes later is not part of the listing that has begun.
    fs::write(share.directory.path().join("ten"), "").unwrap();
    assert_eq!(client.getdents(id, &mut buffer), Ok(24));
    all.extend(entries(&buffer[..24]));
    all.sort();
    assert!(all.iter().map(|entry| &*entry.0).eq(["one", "six", "two"]));
    assert_eq!(client.getdents(id, &mut buffer), Ok(0));
    assert_eq!(errno(client.seek(id, 24, SEEK_SET)), EINVAL);
    assert_eq!(errno(client.seek(id, 0, SEEK_END)), EINVAL);
    assert_eq!(client.seek(id, 0, SEEK_SET), Ok(0));
    assert_eq!(client.getdents(id, &mut buffer), Ok(72));
    assert_eq!(client.getdents(id, &mut buffer), Ok(24));
    assert_eq!(errno(client.read_to(id, &mut [0])), EISDIR);
    client.close(id).unwrap();
    let id = client.open_at("one", O_RDONLY).unwrap();
    assert_eq!(errno(client.getdents(id, &mut buffer)), ENOTDIR);
    client.close(id).unwrap();
}

#[test]
fn attributes_are_the_hosts() {
    let mut share = Share::new();
    fs::write(share.host("x"), pattern(5000)).unwrap();
    symlink("x", share.host("l")).unwrap();
    let there = fs::metadata(share.host("x")).unwrap();
    let here = share.client.stat(&names("l"), true).unwrap();
    assert_eq!(here.st_size, 5000);
    assert_eq!(here.st_mode, there.mode());
    assert_eq!(here.st_ino, there.ino());
    assert_eq!(here.st_nlink, 1);
    assert_eq!(here.st_blocks as u64, there.blocks());
    assert_eq!(here.st_mtim.tv_sec, there.mtime());
    assert_eq!(i64::from(here.st_mtim.tv_nsec), there.mtime_nsec());
    let link = share.client.stat(&names("l"), false).unwrap();
    assert_eq!(link.st_mode & S_IFMT, S_IFLNK);
    let root = share.client.stat(&[], true).unwrap();
    assert_eq!(root.st_mode & S_IFMT, S_IFDIR);
    let id = share.client.open_at("x", O_RDONLY).unwrap();
    assert_eq!(share.client.fstat(id).unwrap().st_size, 5000);
    share.client.close(id).unwrap();
    assert_eq!(errno(share.client.stat(&names("y"), true)), ENOENT);
}

#[test]
fn links_are_followed_within_the_share() {
    let mut share = Share::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "s").unwrap();
    fs::create_dir_all(share.host("a/b/c")).unwrap();
    fs::write(share.host("a/file"), "deep").unwrap();
    fs::write(share.host("top"), "top").unwrap();
    for (target, link) in [
        ("../../file", "a/b/c/up"),
        ("a/b", "short"),
        ("./c/../c//up", "a/b/again"),
        (".", "a/self"),
        ("../../../top", "a/b/c/over"),
        ("../top", "above"),
        ("loop2", "loop1"),
        ("loop1", "loop2"),
        ("nothing", "dangling"),
    ] {
        symlink(target, share.host(link)).unwrap();
    }
    symlink(outside.path(), share.host("absolute")).unwrap();
    for (path, contents) in [
        ("a/b/c/up", "deep"),
        ("short/c/up", "deep"),
        ("short/again", "deep"),
        ("a/self/self/file", "deep"),
        ("short/c/over", "top"),
    ] {
        assert_eq!(share.contents(path).unwrap(), contents.as_bytes(), "{path}");
    }
    for (path, expected) in [
        ("above", ENOENT),
        ("absolute/secret", ENOENT),
        ("dangling", ENOENT),
        ("loop1", ELOOP),
        ("top/x", ENOTDIR),
    ] {
        assert_eq!(errno(share.contents(path)), expected, "{path}");
    }
    let root = share.client.stat(&names("a/self"), true).unwrap();
    assert_eq!(root.st_mode & S_IFMT, S_IFDIR);
}

#[test]
fn long_ways_are_walked_in_parts() {
    let mut share = Share::new();
    let way = vec!["d"; 40].join("/");
    fs::create_dir_all(share.host(&way)).unwrap();
    fs::write(share.host(&format!("{way}/x")), "far").unwrap();
    assert_eq!(share.contents(&format!("{way}/x")).unwrap(), b"far");
    assert_eq!(errno(share.contents(&format!("{way}/y"))), ENOENT);
    assert_eq!(errno(share.contents(&format!("{way}/x/y"))), ENOTDIR);
}
