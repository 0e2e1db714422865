extern crate std;

use std::borrow::ToOwned;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use hermit_abi as abi;
use tar::{Builder, EntryType, Header};

use super::*;

fn header(kind: EntryType, size: usize, mtime: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(0o755);
    header.set_mtime(mtime);
    header
}

fn archive(build: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().unwrap()
}

fn add(builder: &mut Builder<Vec<u8>>, path: &str, data: &[u8]) {
    let mut header = header(EntryType::Regular, data.len(), 1_000);
    builder.append_data(&mut header, path, data).unwrap();
}

fn long_path() -> String {
    format!("shared/{}/{}/data.bin", "d".repeat(120), "e".repeat(200))
}

pub(crate) fn sample() -> Vec<u8> {
    archive(|tar| {
        add(tar, "hermit.toml", b"kernel = 'app'");
        add(tar, "shared/data/sf10.pack", b"0123456789");
        add(tar, &long_path(), &[7; 1500]);
        add(tar, "shared/a", b"");
        let mut dir = header(EntryType::Directory, 0, 77);
        tar.append_data(&mut dir, "empty/", &b""[..]).unwrap();
        let mut link = header(EntryType::Link, 0, 0);
        tar.append_link(&mut link, "hard", "shared/data/sf10.pack")
            .unwrap();
        let mut link = header(EntryType::Symlink, 0, 0);
        tar.append_link(&mut link, "soft", "hermit.toml").unwrap();
        add(tar, "hermit.toml", b"newer");
    })
}

fn names(tree: &Tree<'_>, path: &str) -> Vec<String> {
    let dir = tree.open(path.as_bytes()).unwrap();
    let names = tree.read_dir(dir).unwrap();
    names
        .map(|(name, _)| str::from_utf8(name).unwrap().to_owned())
        .collect()
}

fn contents<'a>(tree: &Tree<'a>, path: &str) -> Result<&'a [u8], Errno> {
    tree.open(path.as_bytes())
        .and_then(|node| tree.contents(node))
}

#[test]
fn tree_has_what_the_archive_has() {
    let bytes = sample();
    let tree = Tree::from_tar(&bytes).unwrap();
    assert_eq!(
        names(&tree, "/"),
        ["empty", "hard", "hermit.toml", "shared"]
    );
    assert_eq!(names(&tree, "/shared"), ["a", "data", &"d".repeat(120)]);
    assert_eq!(names(&tree, "empty"), [""; 0]);
    assert_eq!(contents(&tree, "/hermit.toml"), Ok(&b"newer"[..]));
    assert_eq!(contents(&tree, "hard"), Ok(&b"0123456789"[..]));
    assert_eq!(contents(&tree, &long_path()), Ok(&[7; 1500][..]));
    assert_eq!(tree.skipped(), 1);
    let file = tree.metadata(tree.open(b"shared/data/sf10.pack").unwrap());
    let expected = Metadata {
        size: 10,
        is_dir: false,
        mtime: 1_000,
        mode: 0o755,
    };
    assert_eq!(file, expected);
    let dir = tree.metadata(tree.open(b"empty").unwrap());
    assert_eq!((dir.is_dir, dir.mtime), (true, 77));
}

#[test]
fn paths_are_resolved_by_their_names() {
    let bytes = sample();
    let tree = Tree::from_tar(&bytes).unwrap();
    for path in [
        "shared/a",
        "/shared/a",
        "//shared///a",
        "./shared/./a",
        "../shared/a",
        "/../../shared/data/../a",
        "/somewhere/not/packed/../../../shared/a",
    ] {
        assert_eq!(tree.open(path.as_bytes()), tree.open(b"shared/a"), "{path}");
        assert!(tree.open(path.as_bytes()).is_ok());
    }
    assert_eq!(tree.open(b"/"), tree.open(b".."));
    assert!(tree.open(b"shared/").is_ok());
    assert_eq!(tree.open(b""), Err(Errno::NOENT));
    assert_eq!(tree.open(b"nothing"), Err(Errno::NOENT));
    assert_eq!(tree.open(b"nothing/../shared"), tree.open(b"shared"));
    assert_eq!(tree.open(b"nothing/../nothing"), Err(Errno::NOENT));
    assert_eq!(tree.open(b"shared/a/"), Err(Errno::NOTDIR));
    assert_eq!(tree.open(b"shared/a/."), Err(Errno::NOTDIR));
    assert_eq!(tree.open(b"shared/a/x"), Err(Errno::NOTDIR));
    assert_eq!(tree.open(&[b'x'; 256]), Err(Errno::NAMETOOLONG));
    assert_eq!(tree.open(&[b'/'; 4096]), Err(Errno::NAMETOOLONG));
}

#[test]
fn read_at_stops_at_the_end() {
    let bytes = sample();
    let tree = Tree::from_tar(&bytes).unwrap();
    let node = tree.open(b"hard").unwrap();
    let mut buf = [0; 8];
    assert_eq!(tree.read_at(node, 5, &mut buf), Ok(5));
    assert_eq!(&buf[..5], b"56789");
    assert_eq!(tree.read_at(node, 10, &mut buf), Ok(0));
    assert_eq!(tree.read_at(node, u64::MAX, &mut buf), Ok(0));
    let dir = tree.open(b"shared").unwrap();
    assert_eq!(tree.read_at(dir, 0, &mut buf), Err(Errno::ISDIR));
}

#[test]
fn pax_and_ustar_paths_are_read() {
    let long = "p".repeat(200);
    let mut bytes = archive(|tar| {
        let records = [("mtime", &b"1234.5"[..]), ("path", long.as_bytes())];
        tar.append_pax_extensions(records).unwrap();
        add(tar, "short", b"pax");
    });
    bytes.truncate(bytes.len() - 1024);
    bytes.extend(archive(|tar| {
        let mut header = Header::new_ustar();
        header
            .set_path(format!("{}/{}", "x".repeat(150), "y".repeat(90)))
            .unwrap();
        header.set_size(3);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, &b"abc"[..]).unwrap();
    }));
    let tree = Tree::from_tar(&bytes).unwrap();
    assert_eq!(names(&tree, "/"), [long.clone(), "x".repeat(150)]);
    assert_eq!(
        tree.metadata(tree.open(long.as_bytes()).unwrap()).mtime,
        1234
    );
    let split = format!("{}/{}", "x".repeat(150), "y".repeat(90));
    assert_eq!(contents(&tree, &split), Ok(&b"abc"[..]));
}

#[test]
fn base_256_numbers_are_read() {
    let mut header = header(EntryType::Regular, 2, 0);
    header.set_path("f").unwrap();
    header.as_old_mut().size = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    header.as_old_mut().mtime = [0xff; 12];
    header.set_cksum();
    let bytes = archive(|tar| tar.append(&header, &b"ok"[..]).unwrap());
    let tree = Tree::from_tar(&bytes).unwrap();
    assert_eq!(contents(&tree, "f"), Ok(&b"ok"[..]));
    header.as_old_mut().size = [0xbf; 12];
    header.set_cksum();
    let bytes = [&header.as_bytes()[..], &[0; 2048]].concat();
    let error = Tree::from_tar(&bytes).err().unwrap();
    assert_eq!(
        error,
        Error::Number {
            at: 0,
            field: "size"
        }
    );
}

#[test]
fn bad_archives_are_refused_with_a_sentence() {
    let refused = |bytes: &[u8]| format!("{}", Tree::from_tar(bytes).err().expect("accepted"));
    let both = archive(|tar| {
        add(tar, "a/b", b"");
        add(tar, "a", b"");
    });
    assert_eq!(
        refused(&both),
        "the archive's entry at byte 512 makes one path both a file and a directory"
    );
    let through = archive(|tar| {
        add(tar, "a", b"");
        add(tar, "a/b", b"");
    });
    assert!(refused(&through).contains("both a file and a directory"));
    let dangling = archive(|tar| {
        let mut link = header(EntryType::Link, 0, 0);
        tar.append_link(&mut link, "l", "missing").unwrap();
    });
    assert!(refused(&dangling).contains("does not precede it"));
    let part = archive(|tar| add(tar, &"n".repeat(256), b""));
    assert!(refused(&part).contains("too long"));
    let path = archive(|tar| add(tar, &"n/".repeat(2049), b""));
    assert!(refused(&path).contains("too long"));
    let sparse = archive(|tar| {
        let record = [("GNU.sparse.major", &b"1"[..])];
        tar.append_pax_extensions(record).unwrap();
        add(tar, "s", b"");
    });
    assert!(refused(&sparse).contains("sparse"));
    assert!(refused(b"not a tar archive").contains("cut off"));
    assert!(refused(&[b'x'; 1024]).contains("checksum"));
}

#[test]
fn every_cut_is_noticed() {
    let bytes = sample();
    // Two blocks of zeros end an archive; one will do.
    for len in 0..bytes.len() - 512 {
        match Tree::from_tar(&bytes[..len]).err() {
            Some(Error::CutOff { at }) => assert!(at <= len),
            other => panic!("{len}: {other:?}"),
        }
    }
    assert!(Tree::from_tar(&bytes[..bytes.len() - 512]).is_ok());
}

#[test]
fn flipped_bits_never_panic() {
    let bytes = sample();
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at * 5 % 8);
        refused += usize::from(walk(&damaged).is_err());
    }
    // Checksums guard every header.
    assert!(refused > 10 * 500, "{refused}");
}

/// The checksum keeps most damage out; make it right, so that the code behind it is reached.
#[test]
fn random_headers_with_right_checksums_never_panic() {
    let original = sample();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut accepted = 0;
    for _ in 0..5_000 {
        let mut bytes = original.clone();
        for _ in 0..3 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let block = (random >> 33) as usize % (bytes.len() / 512);
            let at = (random >> 20) as usize % 512;
            bytes[block * 512 + at] = (random >> 50) as u8;
            let header = &mut bytes[block * 512..][..512];
            let sum: u32 = (header.iter().enumerate())
                .map(|(i, &byte)| {
                    if (148..156).contains(&i) {
                        32
                    } else {
                        u32::from(byte)
                    }
                })
                .sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        accepted += u32::from(walk(&bytes).is_ok());
    }
    assert!(accepted > 25, "{accepted}");
}

fn walk(bytes: &[u8]) -> Result<(), Error> {
    let tree = Tree::from_tar(bytes)?;
    let mut todo = vec![tree.open(b"/").unwrap()];
    while let Some(node) = todo.pop() {
        let listing = Listing::of_image(&tree, node).unwrap();
        let mut buf = vec![0; listing.bytes()];
        assert_eq!(listing.copy_to(&mut buf), Ok(listing.bytes()));
        for (_, child) in tree.read_dir(node).unwrap() {
            tree.stat(child);
            if tree.metadata(child).is_dir {
                todo.push(child);
            } else {
                tree.contents(child).unwrap();
            }
        }
    }
    Ok(())
}

#[test]
fn stat_says_read_only() {
    let bytes = sample();
    let tree = Tree::from_tar(&bytes).unwrap();
    let stat = tree.stat(tree.open(&long_path().into_bytes()).unwrap());
    assert_eq!(stat.st_mode, abi::S_IFREG | 0o555);
    assert_eq!(
        (stat.st_size, stat.st_blocks, stat.st_mtim.tv_sec),
        (1500, 3, 1_000)
    );
    let stat = tree.stat(tree.open(b"/").unwrap());
    assert_eq!(stat.st_mode, abi::S_IFDIR | 0o555);
}
