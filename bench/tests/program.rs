//! The program as the host tool calls it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen-bench"));
    command.args(args).output().unwrap()
}

/// A checkout of LLFree as far as this program knows it: a bench that does `script`.
fn llfree(script: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let release = directory.path().join("target/release");
    std::fs::create_dir_all(&release).unwrap();
    let program = release.join("bench");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_small_run_reports_every_key() {
    // The loop, LLFree, and -x, -t, -i, -s, -m and -o with their values.
    let llfree = llfree(
        r#"[ $# = 14 ] && [ "$2 $3 $5 $7 $9" = "LLFree -x -t -i -s" ] || exit 3
        shift 13
        printf 'alloc,get_max,put_max\nLLFree,1000,2000\n' >"$1""#,
    );
    let json = llfree.path().join("report.json");
    let output = bench(&[
        "frames",
        "--memory",
        "64",
        "--repetitions",
        "1",
        "--huge-rounds",
        "2",
        "--mixed",
        "10000",
        "--soak",
        "2000",
        "--llfree",
        text(llfree.path()),
        "--json",
        text(&json),
    ]);
    let tables = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for words in [
        "64 MiB of pretended memory",
        "zone buddy",
        "free-list",
        "buddy_system_allocator",
        "beside 2M",
        "of it in whole blocks",
        "dolmen / llfree",
        "2000.0",
    ] {
        assert!(tables.contains(words), "no '{words}' in: {tables}");
    }
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["schema"], "dolmen-bench-frames-1");
    assert_eq!(
        (&report["frames"], &report["repetitions"]),
        (&16384.into(), &1.into())
    );
    assert!(report["cpus"].is_number());
    let rows = |value: &Value| value.as_array().unwrap().clone();
    let has = |row: &Value, keys: &[&str]| {
        let row = row.as_object().unwrap();
        let found: Vec<&String> = row.keys().collect();
        let mut wanted = keys.to_vec();
        wanted.sort_unstable();
        let mut sorted: Vec<&str> = found.iter().map(|key| key.as_str()).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, wanted);
    };
    let loops = rows(&report["loops"]);
    assert_eq!(loops.len(), 48);
    has(
        &loops[0],
        &["loop", "order", "threads", "allocator", "get", "put"],
    );
    has(
        &loops[0]["get"],
        &["ns", "low", "high", "to_dolmen", "scaling"],
    );
    let mixed = rows(&report["mixed"]);
    assert_eq!(mixed.len(), 4);
    has(&mixed[0], &["allocator", "base", "huge"]);
    has(&mixed[0]["huge"], &["alone", "beside", "kept", "refused"]);
    let soak = rows(&report["soak"]);
    assert_eq!(soak.len(), 4);
    has(
        &soak[0],
        &["allocator", "operations", "refused", "free", "whole_share"],
    );
    assert_eq!(soak[0]["operations"], 2000);
    // LLFree's program takes whole GiB.
    assert_eq!(report["llfree"]["frames"], 1 << 18);
    let beside = rows(&report["llfree"]["loops"]);
    assert_eq!(beside.len(), 12);
    has(
        &beside[0],
        &["loop", "order", "threads", "dolmen", "llfree", "ratio"],
    );
    assert_eq!(beside[0]["llfree"]["get"], 1000.0);
    let time = beside[0]["dolmen"]["get"].as_f64().unwrap();
    assert_eq!(beside[0]["ratio"]["get"].as_f64().unwrap(), time / 1000.0);
}

#[test]
fn failures_are_one_sentence_and_a_status() {
    let failed = |args: &[&str], words: &str| {
        let output = bench(args);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = message.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            last.starts_with("dolmen: ") && last.contains(words),
            "{message}"
        );
    };
    failed(&["frames", "--memory", "257"], "an even number");
    failed(&["frames", "--memory", "2"], "at least 64 MiB");
    failed(
        &["frames", "--memory", "18446744073709551614"],
        "below 16 TiB",
    );
    failed(
        &["frames", "--llfree", "/nowhere"],
        "there is no /nowhere/target/release/bench",
    );
    let broken = llfree("echo 'no memory' >&2; exit 1");
    let mut args = vec![
        "frames",
        "--memory",
        "64",
        "--repetitions",
        "1",
        "--huge-rounds",
        "2",
        "--llfree",
    ];
    args.push(text(broken.path()));
    failed(&args, "bench failed: no memory");
    let silent = llfree("exit 0");
    args.pop();
    args.push(text(silent.path()));
    failed(&args, "LLFree's figures cannot be read");
}
