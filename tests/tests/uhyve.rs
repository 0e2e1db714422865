//! The same images under the hypervisor uhyve, with the same results as on QEMU.
//!
//! Where this host's KVM cannot run guests, uhyve runs in an emulated Linux that all tests share.

use dolmen_cli::report::{RunReport, status};
use dolmen_cli::spec::{Platform, Thp};
use dolmen_tests::cases::{self, memory_is_found, no_frame_is_lost};
use dolmen_tests::{Boot, files, has_uhyve};

const UHYVE: Platform = Platform::Uhyve;

#[test]
fn arguments_and_environment_arrive() {
    if has_uhyve() {
        cases::arguments_and_environment(UHYVE);
    }
}

#[test]
fn one_to_four_processors_run_more_threads_than_they_are() {
    if !has_uhyve() {
        return;
    }
    for cpus in [1, 2, 4] {
        let outcome = Boot::app("threads")
            .platform(UHYVE)
            .cpus(cpus)
            .nodes(cpus.min(2))
            .run()
            .ok()
            .says("ok all 14 checks");
        let notes = outcome.report.notes;
        assert!(notes.is_empty(), "{notes:?}");
        no_hang_in_churn(cpus);
    }
}

fn no_hang_in_churn(cpus: u32) {
    cases::faults(UHYVE, &["churn", "10", "8"])
        .cpus(cpus)
        .run()
        .ok()
        .says("ok churned");
}

/// Linux in the emulated machine has no XSAVE: see `cli/src/run/uhyve/nested.rs`.
#[test]
fn threads_keep_their_vector_state() {
    if !has_uhyve() {
        return;
    }
    for cpus in [1, 2] {
        Boot::app("vector")
            .platform(UHYVE)
            .cpus(cpus)
            .run()
            .ok()
            .says_once("ok vector: ");
    }
}

#[test]
fn what_ends_a_run_gives_one_sentence_and_the_right_status() {
    if has_uhyve() {
        cases::ends(UHYVE);
    }
}

#[test]
fn a_machine_that_stops_without_an_exit_record_has_failed() {
    if !has_uhyve() {
        return;
    }
    // uhyve's own status is 0 then.
    let outcome = cases::faults(UHYVE, &["triple"]).run();
    let outcome = outcome.status(status::NO_RECORD);
    let error = outcome.report.error.unwrap_or_default();
    assert!(error.contains("without an exit record"), "{error}");
}

#[test]
fn a_guest_that_hangs_is_ended_and_the_next_one_runs() {
    if !has_uhyve() {
        return;
    }
    let second = std::time::Duration::from_secs(1);
    let outcome = cases::faults(UHYVE, &["hang"])
        .with(|spec| spec.timeout = Some(second))
        .run()
        .status(status::TIMEOUT);
    assert!(outcome.report.error.unwrap().contains("longer than 1 s"));
    cases::faults(UHYVE, &["exit3"]).run().status(3);
}

#[test]
fn memory_is_found_whole_and_runs_out_without_harm() {
    if !has_uhyve() {
        return;
    }
    for (mebibytes, touched, fixed) in [(64u64, 16u64, true), (512, 128, false), (5120, 64, true)] {
        let outcome = cases::faults(UHYVE, &["touch", &(touched << 20).to_string()])
            .mebibytes(mebibytes)
            .with(|spec| spec.fixed_address = fixed)
            .run()
            .ok()
            .says("ok touched");
        memory_is_found(&outcome, mebibytes);
        no_frame_is_lost(&outcome);
    }
    cases::out_of_memory(UHYVE);
    Boot::app("hello")
        .platform(UHYVE)
        .mebibytes(16)
        .run()
        .status(1)
        .says("of usable memory are too little");
}

#[test]
fn files_of_the_host_are_read_and_written() {
    if has_uhyve() {
        files::read(UHYVE);
        files::written(UHYVE);
        files::single(UHYVE);
        files::listed(UHYVE);
    }
}

/// The counters that say how memory was mapped.
fn mapping(report: &RunReport) -> Vec<(&str, u64)> {
    [
        "pgfault",
        "pgfault_spurious",
        "thp_fault_alloc",
        "thp_fault_fallback",
        "frames_mapped",
    ]
    .map(|name| {
        (
            name,
            report
                .counter(name)
                .unwrap_or_else(|| panic!("no counter {name}")),
        )
    })
    .to_vec()
}

#[test]
fn equake_computes_the_same_as_on_qemu_with_the_same_faults() {
    if !has_uhyve() {
        return;
    }
    for thp in [Thp::Never, Thp::Always] {
        let run = |platform, threads: &str| {
            let args = ["--mesh-nodes", "1000", "--steps", "5", "--threads", threads];
            let outcome = Boot::app("equake")
                .platform(platform)
                .cpus(threads.parse().unwrap())
                .nodes(threads.parse().unwrap())
                .thp(thp)
                .args(args)
                .run()
                .ok();
            no_frame_is_lost(&outcome);
            outcome
        };
        let (uhyve, qemu) = (run(UHYVE, "1"), run(Platform::Qemu, "1"));
        assert_eq!(
            uhyve.reported_text("checksum"),
            qemu.reported_text("checksum")
        );
        assert_eq!(mapping(&uhyve.report), mapping(&qemu.report), "thp {thp}");
        // The order of the sums depends on the number of threads.
        let (two, on_qemu) = (run(UHYVE, "2"), run(Platform::Qemu, "2"));
        assert_eq!(
            two.reported_text("checksum"),
            on_qemu.reported_text("checksum")
        );
        assert_eq!(two.report.nodes_mem.len(), 2);
    }
}
