//! Files that the program writes: what it reads back must be what it wrote, and what goes wrong must go wrong in the right way.
//!
//! The folder is left behind with `empty`, `small`, `large`, `vectors`, `thread0` to `thread3`, and `folder` with `entry0` to `entry59`.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::UNIX_EPOCH;

/// Linux and Hermit number them alike.
const EBADF: i32 = 9;
const EFAULT: i32 = 14;
const EISDIR: i32 = 21;

/// Spans pages, huge pages and the largest piece that a kernel may hand to its host at once.
const LARGE_BYTES: usize = (3 << 20) + 77;
/// Where the large file is overwritten, across the end of a page.
const OVERWRITTEN_AT: usize = (1 << 20) - 3;
const ENTRIES: usize = 60;
const THREADS: usize = 4;

/// In the image's constants, and in its writable data.
static CONSTANT: [u8; 9000] = [b'c'; 9000];
static BUFFER: std::sync::Mutex<[u8; 20_000]> = std::sync::Mutex::new([0; 20_000]);

/// The byte at place `n` of a large file.
fn pattern(n: usize) -> u8 {
    (n ^ (n >> 8) ^ (n >> 16)) as u8
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn ensure(condition: bool, what: &str) -> Result<()> {
    if condition {
        return Ok(());
    }
    Err(Error::other(what.to_owned()))
}

type Step = fn(&Path) -> Result<()>;

/// Does every step in `folder`, which exists and is empty; one line for each.
pub(crate) fn write_files(folder: &str) -> std::result::Result<(), String> {
    let folder = Path::new(folder);
    let steps: [(&str, Step); 9] = [
        ("create", create),
        ("append", append),
        ("seek", seek),
        ("vectors", vectors),
        ("image", image),
        ("metadata", metadata),
        ("folders", folders),
        ("threads", threads),
        ("errors", errors),
    ];
    for (name, step) in steps {
        step(folder).map_err(|error| format!("{name}: {error} ({:?})", error.kind()))?;
        println!("step {name}");
    }
    for name in ["empty", "small", "large", "vectors"] {
        let bytes = fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
        println!("left {name} {} {:016x}", bytes.len(), sum(&bytes));
    }
    println!("ok files");
    Ok(())
}

fn create(folder: &Path) -> Result<()> {
    fs::write(folder.join("empty"), b"")?;
    fs::write(folder.join("small"), b"this is longer than ten bytes")?;
    fs::write(folder.join("small"), b"0123456789")?;
    let path = folder.join("large");
    // Fresh memory written as it is, and then touched page by page from its end.
    let mut bytes = vec![0; LARGE_BYTES];
    fs::write(&path, &bytes)?;
    for (number, page) in bytes.chunks_mut(4096).enumerate().rev() {
        for (at, byte) in page.iter_mut().enumerate() {
            *byte = pattern(number * 4096 + at);
        }
    }
    let mut file = File::create(&path)?;
    file.write_all(&bytes)?;
    drop(file);
    // A fresh buffer that nobody has touched.
    let mut back = vec![0; LARGE_BYTES + 5000];
    let mut file = File::open(&path)?;
    let mut read = 0;
    loop {
        match file.read(&mut back[read..])? {
            0 => break,
            count => read += count,
        }
    }
    ensure(read == LARGE_BYTES, "the large file has another length")?;
    ensure(back[..read] == bytes[..], "the large file has changed")?;
    ensure(
        back[read..].iter().all(|&byte| byte == 0),
        "a read wrote behind its end",
    )?;
    ensure(fs::read(folder.join("empty"))?.is_empty(), "not empty")
}

fn append(folder: &Path) -> Result<()> {
    let path = folder.join("small");
    let mut file = OpenOptions::new().append(true).open(&path)?;
    file.write_all(b" and")?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(b" more")?;
    drop(file);
    ensure(fs::read(&path)? == b"0123456789 and more", "not appended")
}

fn seek(folder: &Path) -> Result<()> {
    let path = folder.join("large");
    let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
    let at = file.seek(SeekFrom::Start(OVERWRITTEN_AT as u64))?;
    ensure(at == OVERWRITTEN_AT as u64, "seek from the start")?;
    file.write_all(b"overwritten")?;
    let at = file.seek(SeekFrom::Current(-11))?;
    ensure(at == OVERWRITTEN_AT as u64, "seek from here")?;
    let mut back = [0; 12];
    file.read_exact(&mut back)?;
    let next = pattern(OVERWRITTEN_AT + 11);
    ensure(back[..11] == *b"overwritten", "not overwritten")?;
    ensure(back[11] == next, "overwritten too much")?;
    let at = file.seek(SeekFrom::End(-3))?;
    ensure(at == LARGE_BYTES as u64 - 3, "seek from the end")?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let expected: Vec<u8> = (LARGE_BYTES - 3..LARGE_BYTES).map(pattern).collect();
    ensure(tail == expected, "the end reads differently")?;
    let error = file.seek(SeekFrom::Current(-(LARGE_BYTES as i64) - 1));
    ensure(
        error.is_err_and(|error| error.kind() == ErrorKind::InvalidInput),
        "a position before the start is no error",
    )
}

fn vectors(folder: &Path) -> Result<()> {
    let path = folder.join("vectors");
    let long = vec![b'-'; 10_000];
    let parts = [&b"first"[..], b"", &long, b"last"];
    let whole = parts.concat();
    let mut file = File::create(&path)?;
    let mut slices = parts.map(IoSlice::new);
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let written = file.write_vectored(rest)?;
        ensure(written > 0, "nothing was written")?;
        IoSlice::advance_slices(&mut rest, written);
    }
    drop(file);
    ensure(
        fs::read(&path)? == whole,
        "vectors were written differently",
    )?;
    let (mut first, mut second) = (vec![0; 7], vec![0; 30_000]);
    let mut file = File::open(&path)?;
    let mut buffers = [&mut first, &mut second].map(|buffer| IoSliceMut::new(buffer));
    let read = file.read_vectored(&mut buffers)?;
    ensure(read == whole.len(), "vectors were read in part")?;
    ensure(first[..] == whole[..7], "the first vector differs")?;
    ensure(
        second[..read - 7] == whole[7..],
        "the second vector differs",
    )
}

/// Buffers in the image, on the stack and in read-only memory.
fn image(folder: &Path) -> Result<()> {
    let path = folder.join("from-image");
    fs::write(&path, CONSTANT)?;
    let mut buffer = BUFFER.lock().map_err(|_| Error::other("poisoned"))?;
    let read = File::open(&path)?.read(&mut buffer[123..])?;
    ensure(read == CONSTANT.len(), "constants were read in part")?;
    ensure(buffer[123..123 + read] == CONSTANT, "constants differ")?;
    ensure(buffer[122] == 0 && buffer[123 + read] == 0, "read too much")?;
    let mut stack = [1; 9001];
    File::open(&path)?.read_exact(&mut stack[1..])?;
    ensure(stack[1..] == CONSTANT && stack[0] == 1, "the stack differs")?;
    let file = File::open(&path)?;
    let error = raw_read(&file, CONSTANT.as_ptr().cast_mut(), 1);
    ensure(
        error == -EFAULT,
        &format!("a read into constants gave {error}"),
    )?;
    let error = raw_read(&file, std::ptr::without_provenance_mut(0x5a5a_dead_b000), 1);
    ensure(
        error == -EFAULT,
        &format!("a read into nothing gave {error}"),
    )?;
    ensure(
        CONSTANT.iter().all(|&byte| byte == b'c'),
        "constants changed",
    )?;
    fs::remove_file(&path)
}

/// Reads to any address; a negative error number, or the bytes read.
fn raw_read(file: &File, start: *mut u8, bytes: usize) -> i32 {
    use std::os::fd::AsRawFd;
    // SAFETY: both systems check the address and touch nothing that does not allow it.
    let read = unsafe { system_read(file.as_raw_fd(), start, bytes) };
    if cfg!(target_os = "hermit") || read >= 0 {
        return read as i32;
    }
    -Error::last_os_error().raw_os_error().unwrap_or(0)
}

unsafe extern "C" {
    #[cfg_attr(target_os = "hermit", link_name = "sys_read")]
    #[cfg_attr(not(target_os = "hermit"), link_name = "read")]
    fn system_read(fd: i32, start: *mut u8, bytes: usize) -> isize;
}

fn metadata(folder: &Path) -> Result<()> {
    let file = fs::metadata(folder.join("large"))?;
    ensure(file.is_file() && !file.is_dir(), "the file is none")?;
    ensure(file.len() == LARGE_BYTES as u64, "the length differs")?;
    ensure(!file.permissions().readonly(), "the file is read-only")?;
    let since_1970 = file.modified()?.duration_since(UNIX_EPOCH);
    ensure(
        since_1970.is_ok_and(|time| time.as_secs() > 1_000_000_000),
        "the time of its last change is long ago",
    )?;
    let open = File::open(folder.join("large"))?.metadata()?;
    ensure(open.len() == file.len(), "the open file has another length")?;
    let link = fs::symlink_metadata(folder.join("small"))?;
    ensure(link.is_file() && link.len() == 19, "the small file differs")?;
    ensure(fs::metadata(folder)?.is_dir(), "the folder is none")
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn folders(folder: &Path) -> Result<()> {
    let below = folder.join("folder");
    fs::create_dir(&below)?;
    let kind = fs::create_dir(&below).err().map(|error| error.kind());
    ensure(
        kind == Some(ErrorKind::AlreadyExists),
        "a folder was made twice",
    )?;
    let mut expected: Vec<_> = (0..ENTRIES).map(|n| format!("entry{n}")).collect();
    for name in &expected {
        fs::write(below.join(name), name)?;
    }
    fs::write(below.join("removed"), b"")?;
    expected.push("removed".to_owned());
    expected.sort();
    ensure(names(&below)? == expected, "the folder lists other names")?;
    expected.retain(|name| name != "removed");
    fs::remove_file(below.join("removed"))?;
    let gone = fs::metadata(below.join("removed")).err();
    ensure(
        gone.is_some_and(|error| error.kind() == ErrorKind::NotFound),
        "the file is still there",
    )?;
    ensure(names(&below)? == expected, "the removed file is listed")?;
    let entry = below.join("..").join("folder").join("entry7");
    ensure(fs::read(entry)? == b"entry7", "the entry reads differently")?;
    ensure(names(folder)?.contains(&"folder".to_owned()), "not listed")
}

/// Threads that write and read files at the same time.
fn threads(folder: &Path) -> Result<()> {
    let workers = (0..THREADS).map(|number| {
        let path = folder.join(format!("thread{number}"));
        thread::spawn(move || -> Result<()> {
            for round in 0..4 {
                let bytes: Vec<u8> = (0..200_000).map(|n| pattern(n + number + round)).collect();
                fs::write(&path, &bytes)?;
                ensure(fs::read(&path)? == bytes, "a thread's file differs")?;
            }
            Ok(())
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().map_err(|_| Error::other("a thread died"))??;
    }
    Ok(())
}

fn errors(folder: &Path) -> Result<()> {
    let number =
        |result: Result<usize>| result.map_or_else(|e| e.raw_os_error().unwrap_or(0), |_| 0);
    let kind = |result: Result<File>| result.err().map(|error| error.kind());
    let check = |what: &str, right: bool| ensure(right, what);
    let small = folder.join("small");

    let missing = File::open(folder.join("missing"));
    check("missing file", kind(missing) == Some(ErrorKind::NotFound))?;
    let unlinked = fs::remove_file(folder.join("missing")).err();
    check(
        "removed what is not there",
        unlinked.is_some_and(|error| error.kind() == ErrorKind::NotFound),
    )?;
    check(
        "listed a missing folder",
        names(&folder.join("missing")).is_err(),
    )?;
    check("listed a file", names(&small).is_err())?;
    let twice = OpenOptions::new().write(true).create_new(true).open(&small);
    check("made anew", kind(twice) == Some(ErrorKind::AlreadyExists))?;
    let write = number(File::open(&small)?.write(b"x"));
    check("wrote to a file open for reading", write == EBADF)?;
    let read = number(OpenOptions::new().write(true).open(&small)?.read(&mut [0]));
    check("read a file open for writing", read == EBADF)?;
    let read = File::open(folder).and_then(|mut folder| folder.read(&mut [0]));
    check("read a folder", number(read) == EISDIR)?;
    let write = OpenOptions::new().write(true).open(folder);
    check(
        "opened a folder for writing",
        number(write.map(|_| 0)) == EISDIR,
    )?;
    check(
        "removed a folder as a file",
        fs::remove_file(folder.join("folder")).is_err(),
    )?;
    check("lost the folder", folder.join("folder/entry0").is_file())?;
    check("changed the file", fs::read(&small)?.len() == 19)
}
