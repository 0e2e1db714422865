use super::*;
use crate::host::fake::FakeHost;

const STABLE: &str = "/r/stable";
const NIGHTLY: &str = "/r/nightly";

fn compiler(host: FakeHost, sysroot: &str, version: &str, source: bool) -> FakeHost {
    let host = host
        .file(&format!("{sysroot}/bin/rustc"))
        .file(&format!("{sysroot}/bin/cargo"))
        .command(
            &format!("{sysroot}/bin/rustc --version"),
            &format!("rustc {version} (abc)\n"),
        )
        .command(
            &format!("{sysroot}/bin/rustc --print sysroot"),
            &format!("{sysroot}\n"),
        );
    if source {
        host.file(&format!(
            "{sysroot}/lib/rustlib/src/rust/library/std/Cargo.toml"
        ))
    } else {
        host
    }
}

fn rustup(host: FakeHost) -> FakeHost {
    host.file("/home/u/.cargo/bin/rustup")
        .file("/home/u/.cargo/bin/rustc")
        .command(
            "/home/u/.cargo/bin/rustup show active-toolchain",
            "stable-x86_64-unknown-linux-gnu (default)\n",
        )
        .command(
            "/home/u/.cargo/bin/rustup toolchain list",
            "stable-x86_64-unknown-linux-gnu (active, default)\nnightly-x86_64-unknown-linux-gnu\n",
        )
        .command(
            "/home/u/.cargo/bin/rustup run stable-x86_64-unknown-linux-gnu rustc --print sysroot",
            STABLE,
        )
        .command(
            "/home/u/.cargo/bin/rustup run nightly-x86_64-unknown-linux-gnu rustc --print sysroot",
            NIGHTLY,
        )
}

fn machine() -> FakeHost {
    FakeHost::default()
        .env("PATH", "/home/u/.cargo/bin:/usr/bin")
        .env("HOME", "/home/u")
        .file("/usr/bin/ld.lld")
}

#[test]
fn the_active_rustup_toolchain_wins() {
    let host = rustup(machine());
    let host = compiler(host, STABLE, "1.95.0", true);
    let host = compiler(host, NIGHTLY, "1.97.0-nightly", true);
    let host = compiler(host, "/usr", "1.96.0", true);
    let found = find(&host, &Choice::Any).unwrap();
    assert_eq!(
        found.origin,
        Origin::Rustup("stable-x86_64-unknown-linux-gnu".into())
    );
    assert_eq!(found.cargo, Path::new("/r/stable/bin/cargo"));
    assert_eq!(found.directory_name(), "stable-1.95");
    let distro = find(&host, &Choice::Distribution).unwrap();
    assert_eq!(distro.origin, Origin::Distribution);
    assert_eq!(distro.rustc, Path::new("/usr/bin/rustc"));
}

#[test]
fn without_sources_a_nightly_and_then_the_distribution_serve() {
    let host = rustup(machine());
    let host = compiler(host, STABLE, "1.95.0", false);
    let with_nightly = compiler(host.clone(), NIGHTLY, "1.97.0-nightly", true);
    let found = find(&with_nightly, &Choice::Any).unwrap();
    assert_eq!(found.sysroot, Path::new(NIGHTLY));

    let with_distro = compiler(host, NIGHTLY, "1.97.0-nightly", false);
    let with_distro = compiler(with_distro, "/usr", "1.96.0", true);
    let found = find(&with_distro, &Choice::Any).unwrap();
    assert_eq!(found.origin, Origin::Distribution);
    assert!(find(&with_distro, &Choice::Rustup).is_err());
}

#[test]
fn a_machine_without_rustup_uses_the_distribution() {
    let host = compiler(machine(), "/usr", "1.96.0", true);
    assert_eq!(
        find(&host, &Choice::Any).unwrap().origin,
        Origin::Distribution
    );
    let error = find(&host, &Choice::Rustup).unwrap_err().to_string();
    assert!(error.contains("rustup is not installed"), "{error}");
}

#[test]
fn an_old_compiler_is_named_and_refused() {
    let host = compiler(machine(), "/usr", "1.63.0", true);
    let error = find(&host, &Choice::Any).unwrap_err().to_string();
    assert!(error.contains("1.63, older than 1.95"), "{error}");
    assert!(error.contains("apt-get install rustc-web"), "{error}");
}

#[test]
fn missing_sources_come_with_the_command_that_adds_them() {
    let host = compiler(rustup(machine()), STABLE, "1.95.0", false);
    let error = find(&host, &Choice::Any).unwrap_err().to_string();
    assert!(
        error.contains("rustup component add rust-src --toolchain stable-x86_64-unknown-linux-gnu"),
        "{error}"
    );
}

#[test]
fn a_machine_without_any_compiler_gets_one_sentence() {
    let error = find(&machine(), &Choice::Any).unwrap_err().to_string();
    assert!(error.contains("no Rust compiler was found"), "{error}");
    assert!(!error.contains('\n'));
}

#[test]
fn a_missing_linker_is_named() {
    let host = FakeHost::default().env("PATH", "/usr/bin");
    let host = compiler(host, "/usr", "1.96.0", true);
    let error = find(&host, &Choice::Any).unwrap_err().to_string();
    assert!(error.contains("no LLVM linker"), "{error}");
    assert!(error.contains("lld"), "{error}");
}

#[test]
fn a_path_names_a_toolchain_by_its_root_or_its_compiler() {
    let host = compiler(machine(), "/opt/rust", "1.95.0", true);
    for path in ["/opt/rust", "/opt/rust/bin/rustc"] {
        let found = find(&host, &Choice::parse(path)).unwrap();
        assert_eq!(found.sysroot, Path::new("/opt/rust"));
    }
    let error = find(&host, &Choice::parse("/nowhere")).unwrap_err();
    assert!(error.to_string().contains("/nowhere"));
}

#[test]
fn choices_keep_their_names() {
    for name in ["auto", "rustup", "distro", "/opt/rust"] {
        assert_eq!(Choice::parse(name).name(), name);
    }
}
