//! What the host tool makes of a machine: console, records, status, limits, files.

use dolmen_cli::host::{Host, RealHost};
use dolmen_cli::image::ImageKind;
use dolmen_cli::report::status;
use dolmen_cli::run::{Image, Prepared};
use dolmen_tests::machine::Program;
use dolmen_tests::{Boot, Outcome};

/// Boots a program in the loader's place. Its name has the characters that QEMU gives a meaning to.
fn boot(program: Program, change: impl FnOnce(Boot) -> Boot) -> Outcome {
    let directory = tempfile::Builder::new()
        .prefix("dolmen, with space ")
        .tempdir()
        .unwrap();
    let loader = directory.path().join("the loader,x=y");
    let image = directory.path().join("the image,x=y");
    std::fs::write(&loader, program.assemble()).unwrap();
    std::fs::write(&image, "an application").unwrap();
    let prepared = Prepared::Image(Image {
        app: "program".to_owned(),
        file: image,
        kind: ImageKind::Application,
        loader,
        qemu: RealHost
            .find_program("qemu-system-x86_64")
            .expect("QEMU is needed: ./dolmen doctor says how to get it"),
    });
    change(Boot::prepared(prepared)).run()
}

fn exit_record(program: Program, status: u8) -> Program {
    program
        .record(&format!(r#"{{"dolmen":"exit","status":{status}}}"#))
        .exit(status)
}

#[test]
fn records_are_taken_out_of_the_console() {
    let program = Program::new()
        .print("one\n")
        .record(r#"{"dolmen":"app","report":{"checksum":"00ff"}}"#)
        .print("two")
        .record(r#"{"dolmen":"progress","done":1,"total":2,"what":"step"}"#)
        .record(r#"{"dolmen":"kernel","cpus":4,"nodes":1,"wall_ns":2000000000,"counters":{"pgfault":9}}"#);
    let outcome = boot(exit_record(program, 0), |b| b).ok();
    assert_eq!(outcome.text, "one\ntwo");
    assert_eq!(outcome.reported_text("checksum"), "00ff");
    assert_eq!(outcome.counter("pgfault"), 9);
    assert_eq!(outcome.report.wall_s, 2.0);
    assert!(outcome.report.host_wall_s > 0.0);
}

#[test]
fn the_status_is_the_exit_records() {
    boot(exit_record(Program::new(), 3), |b| b).status(3);
    boot(exit_record(Program::new(), 134), |b| b).status(134);
}

#[test]
fn a_machine_that_stops_silently_has_failed() {
    for program in [Program::new().exit(0), Program::new().reset()] {
        let outcome = boot(program.clone(), |b| b).status(status::NO_RECORD);
        let error = outcome.report.error.unwrap();
        assert!(error.contains("without an exit record"), "{error}");
    }
}

#[test]
fn a_machine_that_refuses_to_boot_says_why() {
    let program = Program::new().print("dolmen: this is no image\n").exit(1);
    let outcome = boot(program, |b| b).status(1);
    assert_eq!(outcome.report.error.unwrap(), "this is no image");
}

#[test]
fn the_sentence_of_a_fault_is_in_the_report() {
    let program = Program::new().print("dolmen: fatal: it broke\ndolmen: at 0x1\n");
    let outcome = boot(exit_record(program, 134), |b| b).status(134);
    assert_eq!(outcome.report.error.unwrap(), "fatal: it broke");
}

#[test]
fn a_machine_that_hangs_is_ended() {
    let second = std::time::Duration::from_secs(1);
    let program = Program::new().print("alive\n");
    let outcome = boot(program, |b| b.with(|spec| spec.timeout = Some(second)))
        .status(status::TIMEOUT)
        .says("alive");
    assert!(outcome.report.error.unwrap().contains("longer than 1 s"));
}

#[test]
fn a_machine_that_does_not_stop_after_its_exit_record_is_ended() {
    let program = Program::new().record(r#"{"dolmen":"exit","status":5}"#);
    boot(program, |b| b).status(5);
}

#[test]
fn a_machine_qemu_cannot_make_fails_with_qemus_words() {
    let outcome = boot(Program::new().exit(0), |b| b.mebibytes(1 << 30)).status(status::NO_RECORD);
    let error = outcome.report.error.unwrap();
    assert!(error.contains("QEMU says"), "{error}");
}

#[test]
fn every_argument_arrives_as_it_was_given() {
    let program = exit_record(Program::new().print_command_line(), 0);
    let args = ["a,b", "two words", "it's", "--x=1", ""];
    let outcome = boot(program, |b| b.nodes(2).args(args)).ok();
    let words = shell_words::split(&outcome.text).unwrap();
    assert_eq!(words[..4], ["loader", "thp=always", "report", "--"]);
    assert_eq!(words[4..], args);
}
