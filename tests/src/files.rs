//! Files of the host, on every platform that boots images.

use std::collections::BTreeSet;
use std::path::Path;

use dolmen_cli::image::FileMapping;
use dolmen_cli::spec::Platform;

use crate::cases::faults;

/// Files of the host are read, each through a mapping of its own.
pub fn read(platform: Platform) {
    let directory = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (name, size) in [("empty", 0), ("small", 10), ("large", 300_000)] {
        let contents: Vec<u8> = (0..size).map(|n: u32| (n % 251) as u8).collect();
        std::fs::write(directory.path().join(name), &contents).unwrap();
        let sum = contents
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        text.push_str(&format!("file /data/of test/{name} {size} {sum:016x}\n"));
    }
    let files = ["empty", "small", "large"].map(|name| {
        mapping(
            &directory.path().join(name),
            &format!("data/of test/{name}"),
        )
    });
    let outcome = faults(platform, &["files", "/data"])
        .with(|spec| spec.files = files.to_vec())
        .run()
        .ok()
        .says("ok read 3 files");
    for line in text.lines() {
        assert!(outcome.text.contains(line), "{line} in:\n{}", outcome.text);
    }
}

fn mapping(host: &Path, guest: &str) -> FileMapping {
    FileMapping {
        host: host.to_owned(),
        guest: guest.to_owned(),
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// What the application writes into a folder of the host is there after the run, and nothing else.
pub fn written(platform: Platform) {
    let directory = tempfile::Builder::new().prefix("a,b c:").tempdir().unwrap();
    let out = directory.path();
    let outcome = faults(platform, &["writefiles", "/out"])
        .with(|spec| spec.files = vec![mapping(out, "out")])
        .run()
        .ok()
        .says("ok files");
    for line in [
        "left empty 0 cbf29ce484222325",
        "left small 19 2eeca59aaebbe2a8",
        "left large 3145805 7103b10ccf0f3234",
        "left vectors 10009 0853aa262bb82a25",
    ] {
        assert!(outcome.text.contains(line), "{line} in:\n{}", outcome.text);
    }
    let pattern = |n: usize| (n ^ (n >> 8) ^ (n >> 16)) as u8;
    let read = |name: &str| std::fs::read(out.join(name)).unwrap();
    let mut large: Vec<u8> = (0..3_145_805).map(pattern).collect();
    large[1_048_573..][..11].copy_from_slice(b"overwritten");
    // Not compared by `assert_eq`, which would print them.
    assert!(read("large") == large, "the large file differs");
    assert_eq!(read("empty"), b"");
    assert_eq!(read("small"), b"0123456789 and more");
    assert_eq!(
        read("vectors"),
        format!("first{}last", "-".repeat(10_000)).as_bytes()
    );
    let mut left =
        BTreeSet::from(["empty", "small", "large", "vectors", "folder"].map(str::to_owned));
    for thread in 0..4 {
        let name = format!("thread{thread}");
        let written: Vec<u8> = (0..200_000).map(|n| pattern(n + thread + 3)).collect();
        assert!(read(&name) == written, "{name} differs");
        left.insert(name);
    }
    assert_eq!(names(out), left);
    let folder = names(&out.join("folder"));
    assert_eq!(folder.len(), 60);
    for name in folder {
        assert_eq!(read(&format!("folder/{name}")), name.as_bytes());
    }
}

/// A single file of a folder is seen, and one that is missing can be made.
pub fn single(platform: Platform) {
    let directory = tempfile::tempdir().unwrap();
    let host = |name: &str| directory.path().join(name);
    std::fs::write(host("in:put"), "what is to be copied").unwrap();
    std::fs::write(host("beside"), "not to be seen").unwrap();
    let files = [
        mapping(&host("in:put"), "data/input"),
        mapping(&host("made"), "data/results/output"),
    ];
    let run = |args: &[&str]| {
        faults(platform, args)
            .with(|spec| spec.files = files.to_vec())
            .run()
    };
    run(&["copy", "/data/input", "/data/results/output"])
        .ok()
        .says("ok copied 20 bytes");
    let made = std::fs::read(host("made")).unwrap();
    assert_eq!(made, b"what is to be copied");
    run(&["files", "/data"]).ok().says("ok read 2 files");
    let beside = run(&["copy", "/data/input", "/data/beside"]);
    if platform == Platform::Qemu {
        // uhyve keeps what has no place on the host until its machine ends.
        beside.status(1).says("/data/beside");
    }
    assert_eq!(names(directory.path()).len(), 3);
}

/// A long listing is whole.
pub fn listed(platform: Platform) {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..100 {
        let name = format!("a-file-with-a-name-of-some-length-{n:02}");
        std::fs::write(directory.path().join(name), n.to_string()).unwrap();
    }
    let outcome = faults(platform, &["files", "/many"])
        .with(|spec| spec.files = vec![mapping(directory.path(), "many")])
        .run()
        .ok()
        .says("ok read 100 files");
    let lines = outcome
        .text
        .lines()
        .filter(|l| l.starts_with("file /many/a-file"));
    assert_eq!(lines.collect::<BTreeSet<_>>().len(), 100);
}
