//! The programs must do on Linux what the system tests expect of them on Dolmen.

use std::path::PathBuf;
use std::process::Command;

/// Runs a program; gives its status (a signal counts as 128 plus its number) and all that it printed.
fn run(program: &str, arguments: &[&str]) -> (i32, String) {
    use std::os::unix::process::ExitStatusExt;
    let output = Command::new(program)
        .args(arguments)
        .env_remove("DOLMEN_REPORT")
        .output()
        .expect("the program can be started");
    let status = output.status;
    let text = [output.stdout, output.stderr].concat();
    (
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn faults(arguments: &[&str]) -> (i32, String) {
    run(env!("CARGO_BIN_EXE_faults"), arguments)
}

fn succeeds(program: &str, arguments: &[&str], expected: &str) {
    let (status, text) = run(program, arguments);
    assert_eq!(status, 0, "{arguments:?}: {text}");
    assert!(text.contains(expected), "{arguments:?}: {text}");
}

#[test]
fn what_must_go_right_does() {
    let program = env!("CARGO_BIN_EXE_faults");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/bin/faults");
    succeeds(env!("CARGO_BIN_EXE_threads"), &[], "ok all 14 checks");
    succeeds(
        env!("CARGO_BIN_EXE_sort"),
        &["100000"],
        "ok sorted 100000 integers",
    );
    succeeds(env!("CARGO_BIN_EXE_hello"), &["a b"], "argument 1: a b");
    succeeds(env!("CARGO_BIN_EXE_vector"), &[], "ok vector: ");
    succeeds(program, &["touch", "20000000"], "ok touched 20000000 bytes");
    succeeds(program, &["churn", "20", "5"], "ok churned");
    succeeds(program, &["churn", "3", "1"], "ok churned");
    succeeds(
        program,
        &["files", &folder.display().to_string()],
        "ok read 5 files",
    );
    let written = tempfile::tempdir().expect("a temporary folder");
    succeeds(
        program,
        &["writefiles", &written.path().display().to_string()],
        "ok files",
    );
    succeeds(program, &["time"], "ok seconds since 1970");
    succeeds(
        program,
        &["spawnstorm", "20"],
        "ok created and joined 80 threads",
    );
}

#[test]
fn what_must_end_the_program_does() {
    let ends = |name: &str, status: i32, part: &str| {
        let (found, text) = faults(&[name]);
        assert_eq!(found, status, "{name}: {text}");
        assert!(text.contains(part), "{name}: {text}");
    };
    ends("overflow", 134, "deep");
    ends("null", 139, "");
    ends("unmapped", 139, "");
    ends("write-text", 139, "storing to code");
    ends("panic-main", 101, "was asked for");
    ends("panic-secondary", 134, "was asked for");
    let (status, text) = faults(&["fault-on", "0"]);
    assert_eq!(status, 139, "{text}");
    let (status, text) = faults(&["panic-on", "0"]);
    assert_eq!(status, 134, "{text}");
    assert!(text.contains("on CPU 0 was asked for"), "{text}");
    let (status, text) = faults(&["fault-on", "100000"]);
    assert_eq!(status, 1, "{text}");
    for privileged in ["nmi", "machine-check", "triple"] {
        ends(privileged, 139, "");
    }
    ends("exit3", 3, "");
    ends("abort", 134, "");
    ends("nonsense", 2, "usage:");
}

#[test]
fn memory_without_end_is_noticed() {
    let (status, text) = faults(&["oom", "4000000"]);
    assert_eq!(status, 1);
    assert!(
        text.contains("more than 4000000 bytes were granted"),
        "{text}"
    );
}
