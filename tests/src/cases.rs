//! What holds on every platform that boots images.

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
        ("nmi", 134, "thread 1 on CPU 0: non-maskable interrupt"),
        ("machine-check", 134, "thread 1 on CPU 0: machine check"),
        ("fault-on 1", 134, "on CPU 1: null pointer dereference"),
        ("fault-on 3", 134, "on CPU 3: null pointer dereference"),
        ("panic-on 3", 134, "on CPU 3 aborted"),
    ] {
        let outcome = Boot::app("faults")
            .platform(platform)
            .args(what.split(' '))
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

/// The runtime has found the memory that a machine of so many MiB has, whole. The loader, the image
/// and the firmware keep some; 24 MiB are more than all of them.
#[track_caller]
pub fn memory_is_found(outcome: &Outcome, mebibytes: u64) {
    let nodes = outcome.report.nodes_mem.iter();
    let found: u64 = nodes
        .map(|node| node["total_bytes"].as_u64().unwrap())
        .sum();
    let given = mebibytes << 20;
    assert!(
        found <= given && found + (24 << 20) >= given,
        "{found} of {given}"
    );
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
