//! gdb on both platforms: it stops in `main`, with names, lines and the way there, wherever the image
//! was loaded.

use std::path::{Path, PathBuf};

use dolmen_cli::host::{Host, RealHost};
use dolmen_cli::run::Session;
use dolmen_cli::spec::Platform;
use dolmen_tests::{Boot, has_uhyve, left_out};

/// gdb, or nothing where it may be missing.
///
/// # Panics
///
/// If `CI` is set and there is none.
fn gdb() -> Option<PathBuf> {
    let found = RealHost.find_program("gdb");
    if found.is_none() {
        let missing = "gdb is not installed";
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        left_out(missing);
    }
    found
}

/// Lets gdb execute `commands`, with what it says in a file; gives the status, what it said, and what
/// the application printed.
fn session(gdb: &Path, boot: Boot, commands: &str) -> (i32, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let script = directory.path().join("commands.gdb");
    let text = format!(
        "set logging file {}\nset logging enabled on\n{commands}",
        log.display()
    );
    std::fs::write(&script, text).unwrap();
    let session = Session {
        gdb: gdb.to_owned(),
        scripts: vec![script],
        batch: true,
    };
    let (status, printed) = boot.debug(&session);
    let said = std::fs::read_to_string(log).unwrap_or_default();
    (status, said, printed)
}

/// The line of `said` that begins with `start`.
#[track_caller]
fn line<'a>(said: &'a str, start: &str) -> &'a str {
    let found = said.lines().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no line begins with '{start}' in:\n{said}"))
}

/// From `main` on: the way there, a breakpoint further on, the end. Returns where `main` was.
fn main_is_reached_and_left(gdb: &Path, platform: Platform, cpus: u32) -> u64 {
    let boot = Boot::app("hello")
        .platform(platform)
        .cpus(cpus)
        .args(["one", "two words"]);
    let commands = "backtrace\nprintf \"main %#lx\\n\", $pc\ntbreak hello.rs:6\ncontinue\n\
                    printf \"number %d\\n\", number\ncontinue\n";
    let (status, said, printed) = session(gdb, boot, commands);
    assert_eq!(status, 0, "{said}");
    let innermost = line(&said, "#0");
    assert!(
        innermost.contains("hello::main") && innermost.contains("hello.rs:"),
        "{innermost}"
    );
    // From the application through std into the kernel.
    for caller in [" main ()", "runtime_entry", "main_thread"] {
        assert!(said.contains(caller), "no '{caller}' in:\n{said}");
    }
    assert!(said.contains("hello.rs:6"), "{said}");
    assert_eq!(line(&said, "number"), "number 0");
    assert!(printed.ends_with("argument 2: two words\n"), "{printed}");
    assert_eq!(printed.matches("argument").count(), 3, "{printed}");
    let main = line(&said, "main 0x").trim_start_matches("main 0x");
    u64::from_str_radix(main, 16).unwrap()
}

#[test]
fn gdb_stops_in_main_on_qemu() {
    let Some(gdb) = gdb() else {
        return;
    };
    for cpus in [1, 2] {
        main_is_reached_and_left(&gdb, Platform::Qemu, cpus);
    }
}

#[test]
fn gdb_stops_in_main_under_uhyve_wherever_it_is() {
    let Some(gdb) = gdb().filter(|_| has_uhyve()) else {
        return;
    };
    let places = [(); 2].map(|()| main_is_reached_and_left(&gdb, Platform::Uhyve, 1));
    for place in places {
        assert!((4 << 30..64 << 30).contains(&place), "{place:#x}");
    }
    // One of thirty thousand pairs is equal.
    assert_ne!(places[0], places[1]);
}

#[test]
fn a_machine_ends_with_gdb() {
    let Some(gdb) = gdb() else {
        return;
    };
    let quit = "printf \"stopped\\n\"\nquit 7\n";
    let (status, said, printed) = session(&gdb, Boot::app("hello"), quit);
    assert_eq!(
        (status, line(&said, "stopped"), &*printed),
        (7, "stopped", "")
    );
}

#[test]
fn the_applications_status_comes_through() {
    let Some(gdb) = gdb() else {
        return;
    };
    let boot = Boot::app("faults").args(["exit3"]);
    let (status, ..) = session(&gdb, boot, "continue\n");
    assert_eq!(status, 3);
}
