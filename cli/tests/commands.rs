//! The tool as a user calls it: what it refuses, in which words, and what it reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn dolmen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen-cli"));
    command.args(args).env_remove("DOLMEN_TOOLCHAIN");
    command
}

/// Runs and expects a failure with this status whose message contains `words`, in one sentence and
/// without a trace of the tool's insides.
#[track_caller]
fn refused(command: &mut Command, status: i32, words: &str) {
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{message}");
    assert!(message.contains(words), "no '{words}' in: {message}");
    assert!(
        !message.contains("panicked") && !message.contains("backtrace"),
        "{message}"
    );
    if message.starts_with("dolmen: ") {
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
}

/// A Cargo project outside of any workspace whose binary has this `main`.
fn project(main: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("Cargo.toml"),
        "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n",
    )
    .unwrap();
    std::fs::create_dir(directory.path().join("src")).unwrap();
    std::fs::write(directory.path().join("src/main.rs"), main).unwrap();
    directory
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A run of `project` on Linux, with a target directory of its own.
fn run_on_linux(project: &TempDir, args: &[&str], json: &Path) -> Output {
    let mut all = vec![
        "run",
        text(project.path()),
        "--platform",
        "linux",
        "--json",
        text(json),
    ];
    all.extend(args);
    dolmen(&all)
        .env("DOLMEN_TARGET_DIR", project.path().join("target"))
        .output()
        .unwrap()
}

#[test]
fn help_is_there_for_everybody() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["compare", "--help"],
        &["build", "--help"],
        &["test", "--help"],
        &["doctor", "--help"],
        &["gdb", "--help"],
        &["bench", "--help"],
        &["bench", "frames", "--help"],
    ] {
        let output = dolmen(args).output().unwrap();
        assert!(output.status.success());
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Usage: ./dolmen"), "{help}");
    }
}

#[test]
fn unknown_words_are_usage_errors() {
    refused(
        &mut dolmen(&["run", "equake", "--frobnicate"]),
        2,
        "--frobnicate",
    );
    refused(&mut dolmen(&["frolic"]), 2, "frolic");
    refused(
        &mut dolmen(&["run", "equake", "--thp", "sometimes"]),
        2,
        "unknown THP mode 'sometimes' (known: never, always)",
    );
    refused(
        &mut dolmen(&["compare", "equake", "--thp", "never,adaptive"]),
        2,
        "not available yet",
    );
    refused(
        &mut dolmen(&["run", "equake", "--mem", "lots"]),
        2,
        "'lots' is no size",
    );
    refused(
        &mut dolmen(&["run", "equake", "--file", "/nowhere/x:/x"]),
        2,
        "there is no folder /nowhere for the file x",
    );
}

#[test]
fn what_is_not_there_yet_says_so() {
    refused(
        &mut dolmen(&["run", "equake", "--platform", "linux-vm"]),
        125,
        "linux-vm is not available yet",
    );
    refused(
        &mut dolmen(&["compare", "equake", "--platform", "qemu,linux-vm"]),
        1,
        "linux-vm is not available yet",
    );
    refused(
        &mut dolmen(&["compare", "equake", "--html", "x"]),
        1,
        "--html is not available yet",
    );
}

#[test]
fn a_machine_without_qemu_is_told_how_to_get_it() {
    let empty = tempfile::tempdir().unwrap();
    let project = project("fn main() {}");
    let mut command = dolmen(&["run", text(project.path())]);
    refused(
        command.env("PATH", empty.path()),
        125,
        "apt-get install qemu-system-x86",
    );
}

#[test]
fn what_gdb_cannot_debug_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    refused(
        dolmen(&["gdb", "equake"]).env("PATH", empty.path()),
        1,
        "apt-get install gdb",
    );
    refused(
        &mut dolmen(&["gdb", "equake", "--platform", "linux"]),
        1,
        "start gdb itself",
    );
    let gdb = empty.path().join("gdb");
    std::fs::write(gdb, "").unwrap();
    refused(
        dolmen(&["gdb", "equake", "-x", "/nowhere"]).env("PATH", empty.path()),
        1,
        "cannot open /nowhere",
    );
}

#[test]
fn a_missing_toolchain_is_told_with_the_command() {
    let project = project("fn main() {}");
    let args = ["build", text(project.path()), "--toolchain", "/nowhere"];
    refused(&mut dolmen(&args), 1, "there is no toolchain at /nowhere");
    let args = ["build", text(project.path()), "--toolchain", "rustup"];
    let empty = tempfile::tempdir().unwrap();
    let mut command = dolmen(&args);
    command
        .env("PATH", empty.path())
        .env("HOME", empty.path())
        .env_remove("CARGO_HOME");
    refused(&mut command, 1, "rustup is not installed");
}

#[test]
fn bad_images_are_refused_before_a_machine_starts() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &[u8]| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path
    };
    let script = file("script", b"#!/bin/sh\n");
    refused(&mut dolmen(&["run", text(&script)]), 125, "is no image");
    let archive = file("x.tar.gz", b"\x1f\x8b\x08\x00broken");
    refused(
        &mut dolmen(&["run", text(&archive)]),
        125,
        "damaged .tar.gz",
    );
    refused(
        &mut dolmen(&["run", "/bin/sh"]),
        125,
        "no Dolmen or Hermit application",
    );
    refused(
        &mut dolmen(&["run", "/nowhere"]),
        125,
        "no application '/nowhere'",
    );
    refused(
        &mut dolmen(&["run", text(directory.path())]),
        125,
        "no Cargo.toml",
    );
}

#[test]
fn a_project_that_does_not_compile_fails_with_the_compilers_words() {
    let project = project("fn main() { nonsense }");
    let output = run_on_linux(&project, &[], Path::new("/dev/null"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{message}");
    assert!(
        message.contains("nonsense") && message.contains("failed"),
        "{message}"
    );
}

#[test]
fn a_run_on_linux_reports_what_the_contract_says() {
    let project = project(
        r#"
        use std::io::Write;
        fn main() {
            let path = std::env::var("DOLMEN_REPORT").unwrap();
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            writeln!(file, "{{\"dolmen\":\"app\",\"report\":{{\"checksum\":\"00ff\",\"threads\":1}}}}").unwrap();
            let args: Vec<String> = std::env::args().skip(1).collect();
            println!("{args:?} {}", std::env::var("GREETING").unwrap());
            std::process::exit(3);
        }
        "#,
    );
    let json = project.path().join("report.json");
    let args = [
        "--cpus",
        "1",
        "--thp",
        "never",
        "--env",
        "GREETING=hi",
        "--",
        "two words",
        "--x",
    ];
    let output = run_on_linux(&project, &args, &json);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "[\"two words\", \"--x\"] hi\n"
    );
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["schema"], "dolmen-run-1");
    assert_eq!(report["app"], "outside");
    assert_eq!(report["args"], serde_json::json!(["two words", "--x"]));
    assert_eq!(report["platform"], "linux");
    assert_eq!(
        (&report["cpus"], &report["thp"]),
        (&1.into(), &"never".into())
    );
    assert_eq!(report["exit_status"], 3);
    assert_eq!(report["app_report"]["checksum"], "00ff");
    assert!(report["wall_s"].as_f64().unwrap() > 0.0);
    assert!(report["user_s"].is_number() && report["sys_s"].is_number());
    assert!(report["counters"]["pgfault"].as_u64().unwrap() > 0);
    assert!(report["mem_bytes"].is_null());
}

#[test]
fn a_comparison_on_linux_has_a_table_a_verdict_and_a_status() {
    // Without --fixed no two runs agree: the comparison must notice.
    let project = project(
        r#"
        use std::io::Write;
        fn main() {
            let path = std::env::var("DOLMEN_REPORT").unwrap();
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            let fixed = std::env::args().any(|a| a == "--fixed");
            let sum = if fixed { 0 } else { std::process::id() };
            writeln!(file, "{{\"dolmen\":\"app\",\"report\":{{\"checksum\":\"{sum}\",\"threads\":1}}}}").unwrap();
        }
        "#,
    );
    let json = project.path().join("compare.json");
    let compare = |extra: &[&str]| {
        let mut args = vec![
            "compare",
            text(project.path()),
            "--platform",
            "linux",
            "--runs",
            "2",
        ];
        args.extend(["--cpus", "1", "--json", text(&json)]);
        args.extend(extra);
        dolmen(&args)
            .env("DOLMEN_TARGET_DIR", project.path().join("target"))
            .output()
            .unwrap()
    };
    let good = compare(&["--", "--fixed"]);
    let out = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0), "{out}");
    assert!(
        out.contains("remote_share") && out.contains("Checksums agree."),
        "{out}"
    );
    assert!(!out.contains('\x1b'), "no colours on a pipe: {out}");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(result["schema"], "dolmen-compare-1");
    assert_eq!(result["rows"].as_array().unwrap().len(), 2);
    assert_eq!(result["rows"][0]["thp"], "never");
    assert_eq!(result["rows"][0]["wall_all_s"].as_array().unwrap().len(), 2);
    assert_eq!(result["rows"][0]["runs"][1]["schema"], "dolmen-run-1");

    let bad = compare(&[]);
    let out = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert_eq!(bad.status.code(), Some(1), "{out}");
    assert!(out.contains("CHECKSUMS DIFFER with 1 threads: "), "{out}");
}

#[test]
fn a_process_that_takes_too_long_is_ended() {
    let project = project("fn main() { loop { std::thread::park(); } }");
    let json = project.path().join("report.json");
    let output = run_on_linux(&project, &["--timeout", "0.2"], &json);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(124), "{message}");
    assert!(message.contains("longer than 0.2 s"), "{message}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["exit_status"], 124);
}

#[test]
fn doctor_tells_about_this_machine() {
    let output = dolmen(&["doctor"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for what in ["toolchain for images", "QEMU", "KVM", "uhyve"] {
        assert!(text.contains(what), "{text}");
    }
    let empty = tempfile::tempdir().unwrap();
    let output = dolmen(&["doctor"])
        .env("PATH", empty.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("MISSING"));
}
