//! Applications on one machine of four processors: what they print, report and exit with.

use std::collections::BTreeSet;
use std::path::Path;

use dolmen_cli::image::{FileMapping, ImageKind};
use dolmen_cli::run::Prepared;
use dolmen_cli::spec::{Platform, Thp};
use dolmen_tests::{Boot, Outcome, spark98};

fn faults(args: &[&str]) -> Boot {
    Boot::app("faults").args(args.iter().copied())
}

#[test]
fn arguments_and_environment_arrive() {
    Boot::app("hello")
        .args(["a,b", "two words", ""])
        .with(|spec| spec.env = vec!["GREETING=good morning".to_owned()])
        .run()
        .ok()
        .says("hello from hermit")
        .says("argument 1: a,b\n")
        .says("argument 2: two words\n")
        .says("argument 3: \n")
        .says("env GREETING=good morning\n");
}

#[test]
fn threads_keep_stds_promises() {
    Boot::app("threads").run().ok().says("ok all 14 checks");
}

#[test]
fn rayon_sorts_ten_million_integers() {
    Boot::app("sort")
        .run()
        .ok()
        .says("ok sorted 10000000 integers with 4 threads");
}

#[test]
fn clocks_threads_and_memory_do_their_work() {
    faults(&["time"]).run().ok().says("ok seconds since 1970");
    faults(&["spawnstorm", "100"])
        .run()
        .ok()
        .says("ok created and joined 400 threads");
    for thp in [Thp::Never, Thp::Always] {
        faults(&["churn", "30", "8"])
            .thp(thp)
            .nodes(2)
            .run()
            .ok()
            .says("ok churned");
    }
}

#[test]
fn what_ends_a_run_gives_one_sentence_and_the_right_status() {
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
        let outcome = faults(&[what])
            .run()
            .status(status)
            .says_once("dolmen: fatal: ");
        let error = outcome.report.error.unwrap_or_default();
        assert!(error.contains(sentence), "{what}: {error}");
    }
    faults(&["panic-secondary"])
        .run()
        .status(134)
        .says("thread 'second'")
        .says("was asked for");
    let exit = faults(&["exit3"]).run().status(3);
    assert_eq!(exit.report.error, None);
}

#[test]
fn memory_runs_out_without_harm() {
    for thp in [Thp::Never, Thp::Always] {
        faults(&["oom"])
            .thp(thp)
            .mebibytes(128)
            .run()
            .ok()
            .says("ok out of memory after");
    }
}

#[test]
fn files_of_the_host_are_read() {
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
    let files = ["empty", "small", "large"].map(|name| FileMapping {
        host: directory.path().join(name),
        guest: format!("data/of test/{name}"),
    });
    let outcome = faults(&["files", "/data"])
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

#[test]
fn files_written_by_the_application_are_on_the_host() {
    let directory = tempfile::Builder::new().prefix("a,b c:").tempdir().unwrap();
    let out = directory.path();
    let outcome = faults(&["writefiles", "/out"])
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

#[test]
fn one_file_of_a_folder_is_seen_and_may_be_made() {
    let directory = tempfile::tempdir().unwrap();
    let host = |name: &str| directory.path().join(name);
    std::fs::write(host("in:put"), "what is to be copied").unwrap();
    std::fs::write(host("beside"), "not to be seen").unwrap();
    let files = [
        mapping(&host("in:put"), "data/input"),
        mapping(&host("made"), "data/results/output"),
    ];
    let run = |args: &[&str]| faults(args).with(|spec| spec.files = files.to_vec()).run();
    run(&["copy", "/data/input", "/data/results/output"])
        .ok()
        .says("ok copied 20 bytes");
    let made = std::fs::read(host("made")).unwrap();
    assert_eq!(made, b"what is to be copied");
    run(&["files", "/data"]).ok().says("ok read 2 files");
    run(&["copy", "/data/input", "/data/beside"])
        .status(1)
        .says("/data/beside");
    assert_eq!(names(directory.path()).len(), 3);
}

#[test]
fn a_folder_of_a_hundred_files_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..100 {
        let name = format!("a-file-with-a-name-of-some-length-{n:02}");
        std::fs::write(directory.path().join(name), n.to_string()).unwrap();
    }
    let outcome = faults(&["files", "/many"])
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

#[test]
fn a_share_that_the_machine_lacks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Prepared::Image(mut image) = faults(&[]).build() else {
        panic!("an image is what QEMU runs");
    };
    let config = "version = \"1\"\nkernel = \"app\"\n[input]\nkernel_args = [\"mount=nowhere:/data\"]\napp_args = []\nenv_vars = []\n";
    let file = directory.path().join("image");
    let output = std::fs::File::create(&file).unwrap();
    let compression = flate2::Compression::none();
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(output, compression));
    let application = std::fs::read(&image.file).unwrap();
    for (name, contents) in [("hermit.toml", config.as_bytes()), ("app", &application)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(contents.len() as u64);
        header.set_mode(0o444);
        archive.append_data(&mut header, name, contents).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
    image.file = file;
    image.kind = ImageKind::Archive;
    let outcome = Boot::prepared(Prepared::Image(image)).run();
    assert_ne!(outcome.report.exit_status, 0);
    outcome.says_once("with the tag 'nowhere'");
}

/// Every frame is accounted for: what is allocated belongs to the kernel, to page tables or to
/// mappings, and the nodes lack just that.
#[track_caller]
fn no_frame_is_lost(outcome: &Outcome) {
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

/// A quarter of a gibibyte.
const TOUCHED: u64 = 256 << 20;

#[test]
fn without_huge_pages_every_page_is_one_fault() {
    let outcome = faults(&["touch", &TOUCHED.to_string()])
        .thp(Thp::Never)
        .nodes(2)
        .run()
        .ok();
    let pages = TOUCHED / 4096;
    let faults = outcome.report.faults_4k().unwrap();
    assert!(
        faults >= pages && faults <= pages + pages / 50,
        "{faults} faults, {pages} pages"
    );
    assert_eq!(outcome.report.faults_2m(), Some(0));
    no_frame_is_lost(&outcome);
}

#[test]
fn with_huge_pages_nearly_all_memory_comes_two_mebibytes_at_a_time() {
    let outcome = faults(&["touch", &TOUCHED.to_string()])
        .thp(Thp::Always)
        .nodes(2)
        .run()
        .ok();
    let huge = outcome.report.faults_2m().unwrap() * (2 << 20);
    assert!(huge * 100 >= TOUCHED * 95, "{huge} of {TOUCHED} bytes");
    no_frame_is_lost(&outcome);
}

fn equake(args: &[&str]) -> Boot {
    Boot::app("equake").nodes(2).args(args.iter().copied())
}

#[test]
fn equake_computes_the_same_in_every_mode_and_place() {
    let args = ["--mesh-nodes", "2000", "--steps", "30", "--threads", "4"];
    let sum = |boot: Boot| {
        let outcome = boot.run().ok();
        if outcome.report.platform == Platform::Qemu {
            no_frame_is_lost(&outcome);
        }
        outcome.reported_text("checksum")
    };
    let expected = sum(equake(&args).platform(Platform::Linux));
    assert_eq!(expected.len(), 16);
    for thp in [Thp::Never, Thp::Always] {
        assert_eq!(sum(equake(&args).thp(thp)), expected, "thp {thp}");
    }
}

#[test]
fn equakes_product_agrees_with_the_published_one() {
    for (name, lines) in [("tiny", 75), ("sf10", 7294)] {
        let Some((mesh, product)) = spark98(name) else {
            continue;
        };
        for platform in [Platform::Qemu, Platform::Linux] {
            equake(&["--mesh", &mesh, "--check-smvp", &product])
                .platform(platform)
                .run()
                .ok()
                .says(&format!("all {lines} lines agree"));
        }
    }
}

#[test]
fn one_wrong_digit_in_the_published_product_is_found() {
    let Some((mesh, product)) = spark98("tiny") else {
        return;
    };
    let mut text = std::fs::read_to_string(product).unwrap();
    let last = text.trim_end().len() - 1;
    let digit = if text.ends_with("1\n") { "2" } else { "1" };
    text.replace_range(last..=last, digit);
    let directory = tempfile::tempdir().unwrap();
    let changed = directory.path().join("changed.out");
    std::fs::write(&changed, text).unwrap();
    let outcome = equake(&["--mesh", &mesh, "--check-smvp", changed.to_str().unwrap()]).run();
    assert_ne!(outcome.report.exit_status, 0, "{}", outcome.text);
    outcome.says("does not agree");
}

#[test]
fn wrong_meshes_and_flags_are_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let mut cases = vec![
        ("nonsense", "this is no packfile\n".to_owned()),
        ("empty", String::new()),
    ];
    if let Some((mesh, _)) = spark98("tiny") {
        let good = std::fs::read_to_string(mesh).unwrap();
        let changed = [
            ("truncated", good[..good.len() / 2].to_owned()),
            ("negative", good.replacen("75  3", "-75  3", 1)),
            ("index", good.replacen("\n1 ", "\n1000000 ", 1)),
        ];
        for (name, contents) in &changed {
            assert_ne!(*contents, good, "{name}");
        }
        cases.extend(changed);
    }
    let refused = |args: &[&str]| {
        let outcome = equake(args).run();
        let status = outcome.report.exit_status;
        assert!(
            status == 1 || status == 2,
            "{args:?}: status {status}\n{}",
            outcome.text
        );
        outcome.says_once("equake: ")
    };
    for (name, contents) in cases {
        let path = directory.path().join(name);
        std::fs::write(&path, contents).unwrap();
        refused(&["--mesh", path.to_str().unwrap()]).says(name);
    }
    refused(&["--mesh", "/there-is-no-such-file"]);
    refused(&["--frobnicate"]);
}
