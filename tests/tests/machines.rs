//! The same applications on machines of other sizes: processors, memory, nodes.

use dolmen_cli::host::RealHost;
use dolmen_cli::spec::{Platform, Thp};
use dolmen_cli::toolchain::{Choice, find};
use dolmen_tests::{Boot, left_out};

#[test]
fn one_to_eight_processors_run_more_threads_than_they_are() {
    for cpus in [1, 2, 4, 8] {
        let outcome = Boot::app("threads")
            .cpus(cpus)
            .run()
            .ok()
            .says("ok all 14 checks");
        assert!(
            outcome.report.notes.is_empty(),
            "{:?}",
            outcome.report.notes
        );
        Boot::app("faults")
            .args(["churn", "20", "8"])
            .cpus(cpus)
            .run()
            .ok()
            .says("ok churned");
    }
}

#[test]
fn memory_is_found_whole_from_the_smallest_machine_to_beyond_the_hole() {
    for (mebibytes, touched) in [(64u64, 16u64), (512, 256), (4096, 2048), (6144, 4608)] {
        let outcome = Boot::app("faults")
            .args(["touch".to_owned(), (touched << 20).to_string()])
            .mebibytes(mebibytes)
            .run()
            .ok()
            .says("ok touched");
        let nodes = outcome.report.nodes_mem.iter();
        let found: u64 = nodes
            .map(|node| node["total_bytes"].as_u64().unwrap())
            .sum();
        // The loader, the image and the firmware keep some; 24 MiB are more than all of them.
        let given = mebibytes << 20;
        assert!(
            found <= given && found + (24 << 20) >= given,
            "{found} of {given}"
        );
    }
}

#[test]
fn a_machine_that_is_too_small_is_refused_with_a_sentence() {
    Boot::app("hello")
        .mebibytes(16)
        .run()
        .status(1)
        .says("of usable memory are too little");
}

#[test]
fn nodes_change_where_memory_is_but_not_what_is_computed() {
    let args = ["--mesh-nodes", "7000", "--steps", "20", "--threads", "4"];
    let on_linux = Boot::app("equake")
        .args(args)
        .platform(Platform::Linux)
        .run()
        .ok();
    for nodes in [1, 2, 4] {
        for thp in [Thp::Never, Thp::Always] {
            let outcome = Boot::app("equake")
                .args(args)
                .nodes(nodes)
                .thp(thp)
                .run()
                .ok();
            assert_eq!(
                outcome.reported_text("checksum"),
                on_linux.reported_text("checksum"),
                "{nodes} nodes, thp {thp}"
            );
            let share = outcome.reported("remote_share");
            if nodes == 1 {
                assert_eq!(share, 0.0);
            } else {
                assert!(share > 0.0 && share < 1.0, "{nodes} nodes: {share}");
            }
        }
    }
}

/// A machine that has both tests both. Most have one.
#[test]
fn every_kind_of_toolchain_builds_images_that_run() {
    let mut found = 0;
    for choice in ["rustup", "distro"] {
        if let Err(missing) = find(&RealHost, &Choice::parse(choice)) {
            left_out(missing);
            continue;
        }
        found += 1;
        Boot::app("hello")
            .toolchain(choice)
            .run()
            .ok()
            .says("hello from hermit");
    }
    assert!(found > 0, "no toolchain can build images");
}
