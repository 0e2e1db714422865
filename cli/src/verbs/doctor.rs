//! `doctor`: what the machine has, and what it lacks with the command that installs it.

use std::path::Path;

use anyhow::Result;

use crate::host::Host;
use crate::run::Tool;
use crate::run::uhyve::{self, LinuxState, PLACE_VARIABLE};
use crate::toolchain::{Choice, find};

/// One thing that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    what: &'static str,
    state: State,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There.
    Found,
    /// Not there, but nothing depends on it.
    Optional,
    /// Not there, and needed.
    Missing,
}

/// Prints the findings; not 0 if something needed is missing.
pub fn execute(tool: &Tool<'_>) -> Result<u8> {
    let findings = examine(tool);
    let width = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    for finding in &findings {
        let mark = match finding.state {
            State::Found => "ok     ",
            State::Optional => "-      ",
            State::Missing => "MISSING",
        };
        println!("{mark}  {:width$}  {}", finding.what, finding.text);
    }
    let missing = findings
        .iter()
        .filter(|f| f.state == State::Missing)
        .count();
    match missing {
        0 => println!("\nThis machine can build and run images."),
        1 => println!("\nOne thing is missing."),
        n => println!("\n{n} things are missing."),
    }
    Ok(u8::from(missing > 0))
}

fn examine(tool: &Tool<'_>) -> Vec<Finding> {
    let mut findings = toolchains(tool);
    findings.push(host_linker(tool.host));
    findings.push(qemu(tool));
    findings.extend(uhyve(
        tool.host,
        &uhyve::cache(tool),
        &read("/proc/cpuinfo"),
        &read("/proc/sys/kernel/osrelease"),
    ));
    findings.push(gdb(tool.host));
    findings.push(huge_pages(&read(
        "/sys/kernel/mm/transparent_hugepage/enabled",
    )));
    findings.push(machine());
    findings
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The toolchain that builds images, and the others that could.
fn toolchains(tool: &Tool<'_>) -> Vec<Finding> {
    let chosen = match find(tool.host, &tool.choice) {
        Ok(toolchain) => toolchain,
        Err(error) => {
            return vec![Finding {
                what: "toolchain for images",
                state: State::Missing,
                text: error.to_string(),
            }];
        }
    };
    let mut findings = vec![
        found(
            "toolchain for images",
            format!(
                "{} ({}), {}",
                chosen.description,
                chosen.origin,
                chosen.rustc.display()
            ),
        ),
        found(
            "linker for images",
            chosen.linker.program.display().to_string(),
        ),
    ];
    for choice in [Choice::Rustup, Choice::Distribution] {
        if let Ok(other) = find(tool.host, &choice)
            && other.rustc != chosen.rustc
        {
            findings.push(found(
                "another toolchain",
                format!(
                    "{} ({}), {}",
                    other.description,
                    other.origin,
                    other.rustc.display()
                ),
            ));
        }
    }
    findings.push(match tool.host_cargo() {
        Ok(cargo) => found("cargo for this host", cargo.display().to_string()),
        Err(error) => missing("cargo for this host", error.to_string()),
    });
    findings
}

fn found(what: &'static str, text: String) -> Finding {
    Finding {
        what,
        state: State::Found,
        text,
    }
}

fn missing(what: &'static str, text: String) -> Finding {
    Finding {
        what,
        state: State::Missing,
        text,
    }
}

fn optional(what: &'static str, text: String) -> Finding {
    Finding {
        what,
        state: State::Optional,
        text,
    }
}

fn host_linker(host: &dyn Host) -> Finding {
    match host.find_program("cc") {
        Some(path) => found("linker for this host", path.display().to_string()),
        None => missing(
            "linker for this host",
            "no C compiler `cc`: `apt-get install gcc libc6-dev`".to_owned(),
        ),
    }
}

fn qemu(tool: &Tool<'_>) -> Finding {
    match tool.qemu() {
        Ok(path) => {
            let answer = tool.host.output(&path, &["--version"]).unwrap_or_default();
            let version = answer
                .lines()
                .next()
                .unwrap_or("of unknown version")
                .to_owned();
            found("QEMU", format!("{version}, {}", path.display()))
        }
        Err(error) => missing("QEMU", error.to_string()),
    }
}

/// uhyve itself, whether this host can run it, and the Linux for it where it cannot.
fn uhyve(host: &dyn Host, cache: &Path, cpuinfo: &str, linux: &str) -> Vec<Finding> {
    let program = match uhyve::find_uhyve(host, cache) {
        Some(path) => {
            let version = uhyve::version(host, &path).unwrap_or_default();
            found("uhyve", format!("{version}, {}", path.display()))
        }
        None => {
            let other = host.find_program("uhyve").map(|path| {
                let version = uhyve::version(host, &path).unwrap_or("unknown".to_owned());
                format!(" ({} is version {version})", path.display())
            });
            optional(
                "uhyve",
                format!(
                    "not of version {} yet{}: the first run builds it, or `cargo install uhyve --locked --version {0}`",
                    uhyve::VERSION,
                    other.unwrap_or_default()
                ),
            )
        }
    };
    let (kvm, on_host) = match uhyve::kvm_serves(host, cpuinfo, linux) {
        Ok(()) => (
            found(
                "KVM",
                "uhyve runs on it; QEMU emulates all the same".to_owned(),
            ),
            true,
        ),
        Err(why) => (
            optional("KVM", format!("{why}: uhyve runs in an emulated Linux")),
            false,
        ),
    };
    let this_linux = match uhyve::starts_on(linux) {
        Ok(()) => found("Linux of this host", linux.trim().to_owned()),
        Err(why) => optional(
            "Linux of this host",
            format!(
                "{why}, because KVM checks EFER before uhyve has set CPUID: uhyve runs in an emulated Linux"
            ),
        ),
    };
    let purpose = if on_host { ", for ./dolmen test" } else { "" };
    let what = "Linux for uhyve";
    let nested = match uhyve::linux_state(host, cache) {
        LinuxState::There(places) => found(what, format!("{places}{purpose}")),
        LinuxState::ToBeFetched(how) => optional(what, format!("{how}{purpose}")),
        LinuxState::Unavailable(why) => optional(what, why),
    };
    let mut findings = vec![program, kvm, this_linux, nested];
    if let Some(place) = host.env(PLACE_VARIABLE).filter(|place| !place.is_empty()) {
        findings.push(found(PLACE_VARIABLE, format!("set to {place}")));
    }
    findings
}

/// Debuggers of images: `./dolmen gdb` needs it.
fn gdb(host: &dyn Host) -> Finding {
    match host.find_program("gdb") {
        Some(path) => found("gdb", path.display().to_string()),
        None => optional(
            "gdb",
            "not installed, ./dolmen gdb needs it: `apt-get install gdb`".to_owned(),
        ),
    }
}

fn huge_pages(setting: &str) -> Finding {
    let setting = setting.trim();
    if setting.is_empty() {
        return optional(
            "huge pages of this Linux",
            "none: runs on linux have 4 KiB pages only".to_owned(),
        );
    }
    let text = if setting.contains("[always]") {
        setting.to_owned()
    } else {
        format!(
            "{setting}: for thp=always on linux, `echo always > /sys/kernel/mm/transparent_hugepage/enabled` as root"
        )
    };
    found("huge pages of this Linux", text)
}

fn machine() -> Finding {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|line| {
            let kibibytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
            kibibytes.trim().parse::<u64>().ok()
        })
        .unwrap_or(0);
    found(
        "machine",
        format!("{cpus} CPUs, {} MiB of memory", memory / 1024),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::RealHost;
    use crate::host::fake::FakeHost;
    use crate::workspace::Workspace;

    #[test]
    fn a_bare_machine_is_told_every_command() {
        let host = FakeHost::default().env("PATH", "/usr/bin");
        let tool = Tool {
            host: &host,
            workspace: Workspace::locate(&RealHost).unwrap(),
            choice: Choice::Any,
            verbose: false,
        };
        let missing: Vec<String> = examine(&tool)
            .into_iter()
            .filter(|f| f.state == State::Missing)
            .map(|f| f.text)
            .collect();
        assert_eq!(missing.len(), 3, "{missing:?}");
        for command in ["rustc-web", "gcc", "qemu-system-x86"] {
            assert!(
                missing
                    .iter()
                    .any(|text| text.contains("apt-get install") && text.contains(command)),
                "{command}"
            );
        }
    }

    const AMD: &str = "flags : fpu svm\n";

    fn about_uhyve(host: &FakeHost, cpuinfo: &str, linux: &str) -> Vec<Finding> {
        uhyve(host, Path::new("/cache"), cpuinfo, linux)
    }

    #[track_caller]
    fn says(findings: &[Finding], what: &str, state: State, words: &str) {
        let finding = findings.iter().find(|f| f.what == what).unwrap();
        assert!(finding.text.contains(words), "{finding:?}");
        assert_eq!(finding.state, state, "{finding:?}");
    }

    #[test]
    fn uhyve_its_version_and_its_place_are_shown() {
        let host = FakeHost::default()
            .env("PATH", "/usr/bin")
            .file("/dev/kvm")
            .file("/cache/linux/boot/vmlinuz-6.1")
            .file("/cache/busybox/bin/busybox")
            .file("/usr/bin/uhyve")
            .command("/usr/bin/uhyve --version", "uhyve 0.10.0\n");
        let good = about_uhyve(&host, AMD, "6.1.0-57-amd64\n");
        says(&good, "uhyve", State::Found, "0.10.0, /usr/bin/uhyve");
        says(&good, "KVM", State::Found, "uhyve runs on it");
        says(&good, "Linux of this host", State::Found, "6.1.0-57-amd64");
        says(
            &good,
            "Linux for uhyve",
            State::Found,
            "/cache/linux, /cache/busybox, for ./dolmen test",
        );
        assert_eq!(good.len(), 4);

        let new = about_uhyve(&host.env(PLACE_VARIABLE, "nested"), AMD, "6.12.113\n");
        says(
            &new,
            "Linux of this host",
            State::Optional,
            "cannot start on Linux 6.12.113 and later",
        );
        says(
            &new,
            "KVM",
            State::Optional,
            "uhyve runs in an emulated Linux",
        );
        says(&new, PLACE_VARIABLE, State::Found, "set to nested");
    }

    #[test]
    fn without_uhyve_the_way_to_it_is_shown() {
        let old = FakeHost::default()
            .env("PATH", "/usr/bin")
            .file("/usr/bin/uhyve")
            .command("/usr/bin/uhyve --version", "uhyve 0.9.1\n");
        let findings = about_uhyve(&old, "flags : fpu\n", "6.1.0");
        says(
            &findings,
            "uhyve",
            State::Optional,
            "(/usr/bin/uhyve is version 0.9.1)",
        );
        says(
            &findings,
            "uhyve",
            State::Optional,
            "cargo install uhyve --locked --version 0.10.0",
        );
        says(&findings, "KVM", State::Optional, "/dev/kvm is not there");
        says(
            &findings,
            "Linux for uhyve",
            State::Optional,
            "DOLMEN_NESTED_KERNEL",
        );
        let with_device = about_uhyve(&old.file("/dev/kvm"), "flags : fpu\n", "6.1.0");
        says(&with_device, "KVM", State::Optional, "neither vmx nor svm");
    }

    #[test]
    fn gdb_comes_from_a_package() {
        let host = FakeHost::default().env("PATH", "/usr/bin");
        assert!(gdb(&host).text.contains("apt-get install gdb"));
        assert_eq!(gdb(&host.file("/usr/bin/gdb")).state, State::Found);
    }

    #[test]
    fn linuxs_own_modes_are_explained() {
        assert!(
            huge_pages("always [madvise] never\n")
                .text
                .contains("echo always")
        );
        assert!(!huge_pages("[always] madvise never\n").text.contains("echo"));
        assert_eq!(huge_pages("").state, State::Optional);
    }
}
