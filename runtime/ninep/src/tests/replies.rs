//! Replies that no server should give.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::vec::Vec;
use std::{format, vec};

use hermit_abi::O_RDONLY;
use hermit_abi::errno::*;

use super::{Short, errno, names};
use crate::wire::Kind;
use crate::{Client, Error, MAX_OPEN, Transport};

/// Answers from a list.
struct Script {
    answers: VecDeque<Option<Vec<u8>>>,
}

impl Transport for Script {
    fn exchange(&mut self, _request: &[u8], reply: &mut [u8]) -> Option<usize> {
        let answer = self.answers.pop_front().expect("another request")?;
        reply[..answer.len()].copy_from_slice(&answer);
        Some(answer.len())
    }
}

fn message(kind: u8, tag: u16, fields: &[u8]) -> Vec<u8> {
    let mut message = (fields.len() as u32 + 7).to_le_bytes().to_vec();
    message.push(kind);
    message.extend(tag.to_le_bytes());
    message.extend(fields);
    message
}

fn answer(kind: Kind, fields: &[u8]) -> Option<Vec<u8>> {
    let tag = if kind == Kind::Version { u16::MAX } else { 0 };
    Some(message(kind as u8 + 1, tag, fields))
}

fn qid(kind: u8) -> [u8; 13] {
    let mut qid = [1; 13];
    qid[0] = kind;
    qid
}

const FILE: u8 = 0;
const DIRECTORY: u8 = 0x80;

fn version(size: u32, text: &[u8]) -> Option<Vec<u8>> {
    let mut fields = size.to_le_bytes().to_vec();
    fields.extend((text.len() as u16).to_le_bytes());
    fields.extend(text);
    answer(Kind::Version, &fields)
}

fn greeting() -> Vec<Option<Vec<u8>>> {
    vec![
        version(8192, b"9P2000.L"),
        answer(Kind::Attach, &qid(DIRECTORY)),
    ]
}

fn client(answers: Vec<Option<Vec<u8>>>) -> Client<Script> {
    let answers = greeting().into_iter().chain(answers).collect();
    Client::new(Script { answers }).unwrap()
}

/// A client that has opened a file or directory, and then gets `answers`.
fn opened(kind: u8, answers: Vec<Option<Vec<u8>>>) -> (Client<Script>, crate::OpenId) {
    let mut walked = 1u16.to_le_bytes().to_vec();
    walked.extend(qid(kind));
    let mut all = vec![
        answer(Kind::Walk, &walked),
        answer(Kind::Lopen, &[&qid(kind)[..], &[0; 4]].concat()),
    ];
    all.extend(answers);
    let mut client = client(all);
    let id = client.open_at("x", O_RDONLY).unwrap();
    (client, id)
}

fn data(count: u32, bytes: &[u8]) -> Vec<u8> {
    [&count.to_le_bytes()[..], bytes].concat()
}

#[test]
fn other_versions_and_sizes_are_refused() {
    for (size, text) in [
        (8192, &b"9P2000"[..]),
        (8192, b"unknown"),
        (4096, b"9P2000.L"),
        (1 << 20, b"9P2000.L"),
        (0, b"9P2000.L"),
    ] {
        let answers = [version(size, text)].into();
        let refused = Client::new(Script { answers }).map(|_| ());
        assert!(
            matches!(refused, Err(Error::Protocol(_))),
            "{size} {text:?}"
        );
    }
}

#[test]
fn a_device_that_fails_is_an_input_output_error() {
    let dead = Client::new(Script {
        answers: [None].into(),
    });
    assert_eq!(dead.map(|_| ()), Err(Error::Device));
    let (mut client, id) = opened(FILE, vec![None]);
    assert_eq!(client.read_to(id, &mut [0]), Err(Error::Device));
    assert_eq!(Error::Device.errno(), EIO);
}

#[test]
fn every_cut_of_a_good_reply_is_refused() {
    let stat = [&[0; 8][..], &qid(FILE), &[0; 20], &[1; 1], &[0; 111]].concat();
    let good = message(Kind::Getattr as u8 + 1, 0, &stat);
    for length in 0..good.len() {
        // As the device may say it, and as the message itself may say it.
        let mut shorter = good[..length].to_vec();
        let (mut cut, id) = opened(FILE, vec![Some(shorter.clone())]);
        assert!(matches!(cut.fstat(id), Err(Error::Protocol(_))), "{length}");
        if (4..7 + 8 + 13 + 20 + 80).contains(&length) {
            shorter[..4].copy_from_slice(&(length as u32).to_le_bytes());
            let (mut cut, id) = opened(FILE, vec![Some(shorter)]);
            assert!(matches!(cut.fstat(id), Err(Error::Protocol(_))), "{length}");
        }
    }
}

#[test]
fn wrong_heads_are_refused() {
    let fields = data(0, b"");
    let right = Kind::Read as u8 + 1;
    for (what, bad) in [
        ("type", message(Kind::Write as u8 + 1, 0, &fields)),
        ("request's type", message(Kind::Read as u8, 0, &fields)),
        ("tag", message(right, 1, &fields)),
        (
            "length",
            [&message(right, 0, &fields)[..], b"more"].concat(),
        ),
        ("error without number", message(7, 0, b"")),
        ("nothing", Vec::new()),
    ] {
        let (mut client, id) = opened(FILE, vec![Some(bad)]);
        let read = client.read_to(id, &mut [0]);
        assert!(matches!(read, Err(Error::Protocol(_))), "{what}: {read:?}");
    }
}

#[test]
fn counts_beyond_what_was_asked_for_are_refused() {
    let (mut reader, id) = opened(FILE, vec![answer(Kind::Read, &data(5, b"12345"))]);
    assert_eq!(errno(reader.read_to(id, &mut [0; 4])), EIO);
    let (mut reader, id) = opened(FILE, vec![answer(Kind::Read, &data(4, b"12"))]);
    assert_eq!(errno(reader.read_to(id, &mut [0; 4])), EIO);
    let (mut writer, id) = opened(FILE, vec![answer(Kind::Write, &5u32.to_le_bytes())]);
    assert_eq!(errno(writer.write_from(id, b"1234")), EIO);
    for count in [0u16, 2, u16::MAX] {
        let mut walked = count.to_le_bytes().to_vec();
        walked.extend([qid(FILE); 2].concat());
        let mut walker = client(vec![answer(Kind::Walk, &walked)]);
        let result = walker.stat(&names("x"), true);
        assert!(matches!(result, Err(Error::Protocol(_))), "{count}");
    }
}

#[test]
fn short_replies_end_a_call_and_failures_after_some_bytes_too() {
    let (mut client, id) = opened(
        FILE,
        vec![
            answer(Kind::Read, &data(3, b"abc")),
            answer(Kind::Read, &data(8192 - 23, &[7; 8192 - 23])),
            Some(message(7, 0, &5u32.to_le_bytes())),
            Some(message(7, 0, &5u32.to_le_bytes())),
            answer(Kind::Write, &2u32.to_le_bytes()),
        ],
    );
    let mut buffer = vec![0; 10_000];
    assert_eq!(client.read_to(id, &mut buffer), Ok(3));
    assert_eq!(client.read_to(id, &mut buffer), Ok(8192 - 23));
    assert_eq!(client.read_to(id, &mut buffer), Err(Error::Errno(EIO)));
    assert_eq!(client.write_from(id, b"1234"), Ok(2));
    assert_eq!(
        client.seek(id, 0, hermit_abi::SEEK_CUR),
        Ok(3 + 8192 - 23 + 2)
    );
}

fn entry(offset: u64, name: &[u8]) -> Vec<u8> {
    let mut entry = qid(FILE).to_vec();
    entry.extend(offset.to_le_bytes());
    entry.push(8);
    entry.extend((name.len() as u16).to_le_bytes());
    entry.extend(name);
    entry
}

#[test]
fn listings_are_checked() {
    let listing = |answers: Vec<Vec<u8>>| {
        let answers = answers
            .iter()
            .map(|bytes| answer(Kind::Readdir, &data(bytes.len() as u32, bytes)))
            .collect();
        let (mut client, id) = opened(DIRECTORY, answers);
        client.getdents(id, &mut [0; 512])
    };
    assert_eq!(listing(vec![entry(1, b"a"), Vec::new()]), Ok(24));
    let cut = entry(1, b"name")[..20].to_vec();
    let long = vec![b'n'; 256];
    for (what, bytes) in [
        ("cut off", cut),
        ("empty", entry(1, b"")),
        ("a path", entry(1, b"../etc")),
        ("with a zero byte", entry(1, b"a\0b")),
        ("too long", entry(1, &long)),
        ("endless", entry(0, b"a")),
    ] {
        let result = listing(vec![bytes]);
        assert!(matches!(result, Err(Error::Protocol(_))), "{what}");
    }
}

#[test]
fn sizes_and_times_that_make_no_sense_are_refused() {
    let fields = |size: u64, nanos: u64| {
        let mut fields = [&[0; 8][..], &qid(FILE), &[0; 12 + 8 + 8]].concat();
        for value in [size, 0, 0, 0, nanos] {
            fields.extend(value.to_le_bytes());
        }
        fields.extend([0; 64]);
        answer(Kind::Getattr, &fields)
    };
    let (mut client, id) = opened(
        FILE,
        vec![fields(5, 6), fields(u64::MAX, 0), fields(0, u64::MAX)],
    );
    let stat = client.fstat(id).unwrap();
    assert_eq!((stat.st_size, stat.st_atim.tv_nsec), (5, 6));
    assert_eq!(errno(client.fstat(id)), EOVERFLOW);
    assert_eq!(errno(client.fstat(id)), EIO);
}

#[test]
fn failures_say_what_is_wrong() {
    assert_eq!(
        format!("{}", Error::Errno(ENOENT)),
        "the host answers with error 2"
    );
    assert!(format!("{}", Error::Protocol("it is cut off")).ends_with("no sense: it is cut off"));
}

/// Finds and opens everything, and remembers the largest number that a file got.
#[derive(Default)]
struct Agreeable {
    largest: Rc<Cell<u32>>,
}

impl Transport for Agreeable {
    fn exchange(&mut self, request: &[u8], reply: &mut [u8]) -> Option<usize> {
        let greeting = greeting();
        let answer = match request[4] {
            100 => greeting[0].clone(),
            104 => greeting[1].clone(),
            110 => {
                let fid = u32::from_le_bytes(*request[11..].first_chunk().unwrap());
                self.largest.set(self.largest.get().max(fid));
                answer(Kind::Walk, &[&[1, 0][..], &qid(FILE)].concat())
            }
            12 => answer(Kind::Lopen, &[&qid(FILE)[..], &[0; 4]].concat()),
            _ => answer(Kind::Clunk, &[]),
        }?;
        reply[..answer.len()].copy_from_slice(&answer);
        Some(answer.len())
    }
}

#[test]
fn open_files_run_out_and_come_back() {
    let server = Agreeable::default();
    let largest = server.largest.clone();
    let mut client = Client::new(server).unwrap();
    let mut open = Vec::new();
    for _ in 0..MAX_OPEN {
        open.push(client.open_at("x", O_RDONLY).unwrap());
    }
    assert_eq!(errno(client.open_at("x", O_RDONLY)), EMFILE);
    let closed = open.swap_remove(5);
    client.close(closed).unwrap();
    assert_eq!(errno(client.close(closed)), EBADF);
    assert_eq!(errno(client.read_to(closed, &mut [0])), EBADF);
    for _ in 0..100 {
        assert_eq!(client.open_at("x", O_RDONLY), Ok(closed));
        client.close(closed).unwrap();
    }
    assert_eq!(largest.get() as usize, MAX_OPEN);
}
