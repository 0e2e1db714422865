//! Applications on one machine of four processors: what they print, report and exit with.

use dolmen_cli::image::ImageKind;
use dolmen_cli::report::status;
use dolmen_cli::run::Prepared;
use dolmen_cli::spec::{Platform, Thp};
use dolmen_tests::cases::{self, no_frame_is_lost};
use dolmen_tests::{Boot, files, spark98};

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
fn a_processor_that_shuts_down_is_no_success() {
    let outcome = faults(&["triple"]).run().status(status::NO_RECORD);
    let error = outcome.report.error.unwrap();
    assert!(error.contains("without an exit record"), "{error}");
}

#[test]
fn an_image_that_faults_at_once_is_told_by_the_loader() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = Boot::broken_at_its_entry("hello", &directory.path().join("image"))
        .run()
        .status(1);
    let error = outcome.report.error.unwrap();
    assert!(error.contains("exception 6 (error code 0x0"), "{error}");
}

#[test]
fn memory_runs_out_without_harm() {
    cases::out_of_memory(Platform::Qemu);
}

#[test]
fn files_of_the_host_are_read() {
    files::read(Platform::Qemu);
}

#[test]
fn files_written_by_the_application_are_on_the_host() {
    files::written(Platform::Qemu);
}

#[test]
fn one_file_of_a_folder_is_seen_and_may_be_made() {
    files::single(Platform::Qemu);
}

#[test]
fn a_folder_of_a_hundred_files_is_listed() {
    files::listed(Platform::Qemu);
}

#[test]
fn a_share_that_the_machine_lacks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Prepared::Image(mut image) = faults(&[]).build() else {
        panic!("an image is what QEMU runs");
    };
    let config = "version = \"1\"\nkernel = \"app\"\n[input]\nkernel_args = [\"mount=nowhere:/data\"]\napp_args = []\nenv_vars = []\n";
    let file = directory.path().join("image");
    let output = std::fs::File::create(&file).unwrap();
    let compression = flate2::Compression::none();
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(output, compression));
    let application = std::fs::read(&image.file).unwrap();
    for (name, contents) in [("hermit.toml", config.as_bytes()), ("app", &application)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(contents.len() as u64);
        header.set_mode(0o444);
        archive.append_data(&mut header, name, contents).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
    image.file = file;
    image.kind = ImageKind::Archive;
    let outcome = Boot::prepared(Prepared::Image(image)).run();
    assert_ne!(outcome.report.exit_status, 0);
    outcome.says_once("with the tag 'nowhere'");
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
