//! What holds on every platform that boots images.

use dolmen_cli::image::FileMapping;
use dolmen_cli::spec::{Platform, Thp};

use crate::{Boot, Outcome};

/// The program of faults and other single tasks.
pub fn faults(platform: Platform, args: &[&str]) -> Boot {
    Boot::app("faults")
        .platform(platform)
        .args(args.iter().copied())
}

/// Arguments and environment arrive as they were given, empty ones and odd ones too.
pub fn arguments_and_environment(platform: Platform) {
    Boot::app("hello")
        .platform(platform)
        .args(["a,b", "two words", "", "it's", "--", "\\"])
        .with(|spec| spec.env = vec!["GREETING=good morning".to_owned()])
        .run()
        .ok()
        .says("hello from hermit")
        .says("argument 1: a,b\n")
        .says("argument 2: two words\n")
        .says("argument 3: \n")
        .says("argument 4: it's\n")
        .says("argument 5: --\n")
        .says("argument 6: \\\n")
        .says("env GREETING=good morning\n");
}

/// Whatever ends a run gives one sentence and the right status.
pub fn ends(platform: Platform) {
    for (what, status, sentence) in [
        ("overflow", 134, "stack overflow"),
        ("null", 134, "null pointer dereference: read from 0x0"),
        (
            "unmapped",
            134,
            "read from 0x5a5adeadb000, which is not mapped",
        ),
        (
            "write-text",
            134,
            "which the protection of the image forbids",
        ),
        ("panic-main", 134, "thread 1 on CPU 0 aborted"),
        ("panic-secondary", 134, "aborted"),
        ("abort", 134, "thread 1 on CPU 0 aborted"),
    ] {
        let outcome = faults(platform, &[what])
            .run()
            .status(status)
            .says_once("dolmen: fatal: ");
        let error = outcome.report.error.unwrap_or_default();
        assert!(error.contains(sentence), "{what}: {error}");
    }
    faults(platform, &["panic-secondary"])
        .run()
        .status(134)
        .says("thread 'second'")
        .says("was asked for");
    let exit = faults(platform, &["exit3"]).run().status(3);
    assert_eq!(exit.report.error, None);
}

/// Memory runs out without harm.
pub fn out_of_memory(platform: Platform) {
    for thp in [Thp::Never, Thp::Always] {
        faults(platform, &["oom"])
            .thp(thp)
            .mebibytes(128)
            .run()
            .ok()
            .says("ok out of memory after");
    }
}

/// The bytes that the file `large` of `faults writefiles` holds.
fn large() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..3_145_805u32)
        .map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8)
        .collect();
    bytes[1_048_573..][..11].copy_from_slice(b"overwritten");
    bytes
}

/// What the application writes into a folder of the host is there after the run, and so is a file
/// that it makes under a path of its own; what it has not touched stays.
pub fn written_files(platform: Platform) {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("the folder, x");
    std::fs::create_dir(&folder).unwrap();
    let mapping = FileMapping {
        host: folder.clone(),
        guest: "out of it".to_owned(),
    };
    faults(platform, &["writefiles", "/out of it"])
        .with(|spec| spec.files = vec![mapping])
        .run()
        .ok()
        .says("ok files");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert_eq!(read("empty"), b"");
    assert_eq!(read("small"), b"0123456789 and more");
    assert!(read("large") == large(), "large differs");
    assert_eq!(read("vectors").len(), 10_009);
    assert_eq!(read("thread3").len(), 200_000);
    assert_eq!(read("folder/entry59"), b"entry59");
    assert_eq!(
        std::fs::read_dir(folder.join("folder")).unwrap().count(),
        60
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 9);
}

/// Files and a folder of the host are read through the mappings.
pub fn read_files(platform: Platform) {
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
    let files = FileMapping {
        host: directory.path().to_owned(),
        guest: "data/of test".to_owned(),
    };
    let outcome = faults(platform, &["files", "/data"])
        .with(|spec| spec.files = vec![files])
        .run()
        .ok()
        .says("ok read 3 files");
    for line in text.lines() {
        assert!(outcome.text.contains(line), "{line} in:\n{}", outcome.text);
    }
}

/// Every frame is accounted for: what is allocated belongs to the kernel, to page tables or to
/// mappings, and the nodes lack just that.
#[track_caller]
pub fn no_frame_is_lost(outcome: &Outcome) {
    let counter = |name| outcome.counter(name);
    let allocated = counter("frames_allocated");
    assert_eq!(
        allocated,
        counter("frames_kernel") + counter("frames_page_table") + counter("frames_mapped")
    );
    let bytes = |key: &str| -> u64 {
        let nodes = outcome.report.nodes_mem.iter();
        nodes.map(|node| node[key].as_u64().unwrap()).sum()
    };
    assert_eq!(bytes("total_bytes") - bytes("free_bytes"), 4096 * allocated);
}
