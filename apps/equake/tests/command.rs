//! The command as a user sees it: output, error sentence, exit status.

use std::path::PathBuf;
use std::process::{Command, Output};

fn equake(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_equake"))
        .args(arguments)
        .env_remove("DOLMEN_REPORT")
        .output()
        .expect("the command can be started")
}

/// The one sentence on standard error, after checking the status and that there is nothing else.
fn failure(arguments: &[&str], status: i32) -> String {
    let output = equake(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
        .strip_prefix("equake: ")
        .expect("the program names itself")
        .trim_end()
        .to_owned()
}

fn output_of(arguments: &[&str]) -> String {
    let output = equake(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines()
        .find(|line| line.starts_with(start))
        .unwrap_or_else(|| panic!("no line '{start}' in {text}"))
}

/// A file of this test's own.
fn temporary(name: &str, contents: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("equake-{}-{name}", std::process::id()));
    std::fs::write(&path, contents).unwrap();
    path
}

#[test]
fn the_three_placements_give_one_checksum() {
    let run = |placement| {
        let text = output_of(&[
            "--mesh-nodes",
            "500",
            "--steps",
            "60",
            "--threads",
            "3",
            "--placement",
            placement,
        ]);
        assert_eq!(text.matches("epicentre").count(), 2);
        (
            line(&text, "step 60").to_owned(),
            line(&text, "checksum ").to_owned(),
        )
    };
    let parallel = run("parallel");
    assert_eq!(parallel.1.len(), "checksum ".len() + 16);
    assert_eq!(run("serial"), parallel);
    assert_eq!(run("rows"), parallel);
}

#[test]
fn the_report_has_what_the_host_tool_reads() {
    let file = temporary("report", "");
    let status = Command::new(env!("CARGO_BIN_EXE_equake"))
        .args(["--mesh-nodes", "300", "--steps", "5", "--threads", "2"])
        .env("DOLMEN_REPORT", &file)
        .status()
        .unwrap();
    assert!(status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let progress = line(&text, r#"{"dolmen":"progress","done":5"#);
    assert!(progress.contains(r#""total":5"#) && progress.contains(r#""what":"step""#));
    let report = line(&text, r#"{"dolmen":"app""#);
    for key in [
        "mesh_nodes",
        "mesh_elements",
        "mesh_blocks",
        "steps",
        "threads",
        "placement",
        "init_s",
        "steps_s",
        "smvp_s",
        "smvp_mflops",
        "checksum",
        "remote_share",
        "remote_accesses",
        "total_accesses",
        "touched_bytes",
    ] {
        assert!(report.contains(&format!("\"{key}\":")), "{key}: {report}");
    }
    assert!(report.contains(r#""placement":"parallel""#));
}

#[test]
fn the_reference_products_agree_and_a_changed_digit_is_found() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/spark98");
    let path = |name: &str| folder.join(name).display().to_string();
    let Ok(reference) = std::fs::read_to_string(path("sf10.out")) else {
        println!("skipped: {} is not there", folder.display());
        return;
    };
    let check =
        |mesh: &str, out: &str| output_of(&["--mesh", &path(mesh), "--check-smvp", &path(out)]);
    assert_eq!(
        line(&check("sf10.1.pack", "sf10.out"), "all"),
        "all 7294 lines agree"
    );
    assert_eq!(
        line(&check("tiny.1.pack", "tiny.out"), "all"),
        "all 75 lines agree"
    );
    let changed = reference.replacen("\n4000 ", "\n4000 1", 1);
    assert_ne!(changed, reference);
    let changed = temporary("changed.out", &changed);
    let error = failure(
        &[
            "--mesh",
            &path("sf10.1.pack"),
            "--check-smvp",
            &changed.display().to_string(),
        ],
        1,
    );
    std::fs::remove_file(&changed).unwrap();
    assert!(error.contains("line 4000 differs"), "{error}");
}

#[test]
fn mistakes_are_one_sentence_with_the_right_status() {
    assert!(failure(&["--what"], 2).starts_with("unknown argument '--what'"));
    assert!(failure(&["--threads", "0"], 2).starts_with("--threads must be a number from 1"));
    assert!(failure(&["--placement", "x"], 2).contains("(known: rows, parallel, serial)"));
    assert!(failure(&["--mesh", "/there/is/none"], 1).starts_with("cannot read /there/is/none"));
    let program = env!("CARGO_BIN_EXE_equake");
    assert!(failure(&["--mesh", program], 1).contains("line 1: this is not a Spark98 packfile"));
    let negative = temporary("negative.pack", "-5 3\n1 4\n1\n1\n");
    let error = failure(&["--mesh", &negative.display().to_string()], 1);
    std::fs::remove_file(&negative).unwrap();
    assert!(error.ends_with("line 1: the number of nodes is -5; it must be at least 4"));
    assert!(equake(&["--help"]).status.success());
}
