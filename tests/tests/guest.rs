//! Applications on one machine of four processors: what they print, report and exit with.

use dolmen_cli::image::FileMapping;
use dolmen_cli::spec::{Platform, Thp};
use dolmen_tests::cases::{self, no_frame_is_lost};
use dolmen_tests::{Boot, spark98};

fn faults(args: &[&str]) -> Boot {
    cases::faults(Platform::Qemu, args)
}

#[test]
fn arguments_and_environment_arrive() {
    cases::arguments_and_environment(Platform::Qemu);
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
    cases::ends(Platform::Qemu);
}

#[test]
fn memory_runs_out_without_harm() {
    cases::out_of_memory(Platform::Qemu);
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
