//! The same applications on machines of other sizes: processors, memory, nodes.

use dolmen_cli::host::RealHost;
use dolmen_cli::report::status;
use dolmen_cli::spec::{Platform, Thp};
use dolmen_cli::toolchain::{Choice, find};
use dolmen_tests::cases::memory_is_found;
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

/// What a machine with the processor `model` must say about the vector state of its threads.
fn keeps_vector_state(model: &str, cpus: u32, registers: &str) {
    let outcome = Boot::app("vector")
        .cpus(cpus)
        .with(|spec| spec.cpu_model = Some(model.to_owned()))
        .run()
        .ok()
        .says_once(&format!("ok vector: {registers}, 12 rounds"));
    // In each round of each of three threads per CPU, 64 pages are touched while the registers are in use.
    let faults = outcome.report.faults_4k().unwrap();
    assert!(faults >= u64::from(cpus) * 3 * 12 * 64, "{faults} faults");
}

#[test]
fn threads_keep_their_vector_state_by_xsave() {
    for cpus in [1, 2] {
        keeps_vector_state("max", cpus, "16 registers of 32 bytes, kept by XSAVE");
    }
}

#[test]
fn threads_keep_their_vector_state_without_xsave() {
    let registers = "16 registers of 16 bytes, kept by FXSAVE";
    keeps_vector_state("EPYC,-xsave", 1, registers);
    keeps_vector_state("qemu64", 2, registers);
}

#[test]
fn a_processor_that_qemu_does_not_know_is_named() {
    let outcome = Boot::app("hello")
        .with(|spec| spec.cpu_model = Some("abacus".to_owned()))
        .run()
        .status(status::NO_RECORD);
    let error = outcome.report.error.unwrap();
    assert!(error.contains("'abacus'"), "{error}");
}

#[test]
fn a_newer_machine_boots_too() {
    Boot::app("hello")
        .with(|spec| spec.machine = Some("q35".to_owned()))
        .run()
        .ok()
        .says("hello from hermit");
}

#[test]
fn the_last_of_128_processors_works_and_is_named_when_it_faults() {
    Boot::app("faults")
        .args(["fault-on", "127"])
        .cpus(128)
        .run()
        .status(134)
        .says_once("on CPU 127: null pointer dereference");
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
        memory_is_found(&outcome, mebibytes);
    }
}

#[test]
fn no_frame_is_used_after_it_was_freed() {
    let watched = |app: &str, mebibytes| {
        Boot::app(app)
            .mebibytes(mebibytes)
            .with(|spec| spec.debug_frames = true)
    };
    let run = watched("threads", 1024).cpus(4).nodes(2).run().ok();
    run.says("ok all 14 checks");
    let churn = watched("faults", 512).args(["churn", "20", "8"]).run().ok();
    churn.says("ok churned");
}

/// The frame allocator is without contention where Linux's zone lock had most of the cycles.
#[test]
fn tasks_that_fault_in_memory_of_their_own_never_meet_in_the_frame_allocator() {
    for cpus in [1, 2, 4, 8] {
        let (rounds, pages): (u64, u64) = (8, 2048);
        let numbers = [rounds, cpus, pages * 4096].map(|number| number.to_string());
        let outcome = Boot::app("faults")
            .args(["page-fault1".to_owned()].into_iter().chain(numbers))
            .cpus(cpus as u32)
            .thp(Thp::Never)
            .run()
            .ok()
            .says("have faulted 8 times");
        let faults = outcome.report.faults_4k().unwrap();
        assert!(faults >= cpus * rounds * pages, "{faults} faults");
        for class in ["frame_entry", "frame_map", "frame_hint"] {
            let waits = outcome.counter(&format!("lock_wait_{class}"));
            assert_eq!(waits, 0, "{class} on {cpus} CPUs");
        }
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
