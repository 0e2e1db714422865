extern crate std;

use std::borrow::ToOwned;
use std::string::String;
use std::vec;
use std::vec::Vec;

use hermit_abi::{DT_LNK, DT_UNKNOWN};

use super::*;
use crate::tests::sample;

/// A record as a host writes it, with `extra` bytes behind the name.
fn record(name: &[u8], kind: u8, extra: usize) -> Vec<u8> {
    let bytes = NAME + name.len() + 1 + extra;
    let mut record = vec![0; bytes];
    record[..8].copy_from_slice(&7_u64.to_ne_bytes());
    record[RECORD_BYTES..][..2].copy_from_slice(&(bytes as u16).to_ne_bytes());
    record[KIND] = kind;
    record[NAME..][..name.len()].copy_from_slice(name);
    record
}

/// Number, name and kind of each record, read as std reads them.
fn read(listing: &Listing) -> Vec<(u64, String, u8)> {
    let mut buffer = vec![0xff; listing.bytes() + 5];
    assert_eq!(listing.copy_to(&mut buffer), Ok(listing.bytes()));
    assert_eq!(buffer[listing.bytes()..], [0xff; 5]);
    let mut entries = Vec::new();
    let mut at = 0;
    while at < listing.bytes() {
        let bytes = usize::from(u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]));
        let name = &buffer[at + 19..at + bytes];
        let end = name.iter().position(|&byte| byte == 0).unwrap();
        let inode = u64::from_ne_bytes(buffer[at..at + 8].try_into().unwrap());
        let name = str::from_utf8(&name[..end]).unwrap().to_owned();
        entries.push((inode, name, buffer[at + 18]));
        assert_eq!(bytes % 8, 0);
        at += bytes;
        assert_eq!(buffer[at - bytes + 8..][..8], (at as i64).to_ne_bytes());
    }
    entries
}

#[test]
fn the_image_is_listed_without_the_packers_files() {
    let bytes = sample();
    let tree = Tree::from_tar(&bytes).unwrap();
    let listing = Listing::of_image(&tree, Tree::ROOT).unwrap();
    let expected = [("empty", DT_DIR), ("hard", DT_REG), ("shared", DT_DIR)].map(|(name, kind)| {
        let node = tree.open(name.as_bytes()).unwrap();
        (tree.stat(node).st_ino, name.to_owned(), kind)
    });
    assert_eq!(read(&listing), expected);
    assert!(tree.open(b"/hermit.toml").is_ok(), "hidden, not gone");
    let mut small = vec![0; listing.bytes() - 1];
    assert_eq!(listing.copy_to(&mut small), Err(Errno::INVAL));
    let shared = tree.open(b"shared").unwrap();
    assert_eq!(read(&Listing::of_image(&tree, shared).unwrap()).len(), 3);
    let empty = tree.open(b"empty").unwrap();
    assert_eq!(Listing::of_image(&tree, empty).unwrap().bytes(), 0);
    let file = tree.open(b"hard").unwrap();
    let error = Listing::of_image(&tree, file).err();
    assert_eq!(error, Some(Errno::NOTDIR));
}

#[test]
fn the_host_adds_what_the_image_does_not_have() {
    let bytes = sample();
    let tree = Tree::from_tar(&bytes).unwrap();
    let mut listing = Listing::of_image(&tree, Tree::ROOT).unwrap();
    let names = [
        (&b"."[..], DT_DIR),
        (b"..", DT_DIR),
        (b"hard", DT_DIR),
        (b"hermit.toml", DT_REG),
        (b"link", DT_LNK),
        (b"...", DT_UNKNOWN),
    ];
    let records: Vec<u8> = (names.iter().enumerate())
        .flat_map(|(n, &(name, kind))| record(name, kind, n % 3))
        .collect();
    listing
        .add_host(&records, Some((&tree, Tree::ROOT)))
        .unwrap();
    let added = [
        (7, "link".to_owned(), DT_LNK),
        (7, "...".to_owned(), DT_UNKNOWN),
    ];
    assert_eq!(read(&listing)[3..], added);
    let mut alone = Listing::default();
    alone.add_host(&records, None).unwrap();
    assert_eq!(read(&alone).len(), 4);
}

#[test]
fn records_that_make_no_sense_are_refused() {
    let good = record(b"name", DT_REG, 3);
    let add = |records: &[u8]| Listing::default().add_host(records, None);
    assert_eq!(add(&good), Ok(()));
    for bytes in 1..good.len() {
        assert_eq!(add(&good[..bytes]), Err(Errno::IO), "cut at {bytes}");
    }
    for bytes in [0_u16, 18, 19, 22, u16::MAX] {
        let mut wrong = good.clone();
        wrong[RECORD_BYTES..][..2].copy_from_slice(&bytes.to_ne_bytes());
        assert_eq!(add(&wrong), Err(Errno::IO), "of {bytes} bytes");
    }
    assert_eq!(add(&record(b"", DT_REG, 0)), Err(Errno::IO));
    assert_eq!(add(&record(b"../x", DT_REG, 0)), Err(Errno::IO));
}
