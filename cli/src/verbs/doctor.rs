//! `doctor`: what the machine has, and what it lacks with the command that installs it.

use std::path::Path;

use anyhow::Result;

use crate::host::Host;
use crate::run::Tool;
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
    findings.push(uhyve(tool.host));
    findings.push(kvm(tool.host, &read("/proc/cpuinfo")));
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

fn uhyve(host: &dyn Host) -> Finding {
    let program = host.find_program("uhyve").or_else(|| {
        let home = host.env("HOME")?;
        let path = Path::new(&home).join(".cargo/bin/uhyve");
        host.is_file(&path).then_some(path)
    });
    match program {
        Some(path) => {
            let version = host.output(&path, &["--version"]).unwrap_or_default();
            found("uhyve", format!("{}, {}", version.trim(), path.display()))
        }
        None => Finding {
            what: "uhyve",
            state: State::Optional,
            text: "not installed: `cargo install uhyve --locked` (nothing uses it yet)".to_owned(),
        },
    }
}

/// `/dev/kvm` alone says little: inside a virtual machine it may be there for hosts that cannot use
/// it.
fn kvm(host: &dyn Host, cpuinfo: &str) -> Finding {
    let flags = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or_default();
    let virtualises = flags
        .split_whitespace()
        .any(|flag| flag == "vmx" || flag == "svm");
    let device = std::path::Path::new("/dev/kvm");
    let there = host.is_file(device) || device.exists();
    let optional = |text: &str| Finding {
        what: "KVM",
        state: State::Optional,
        text: text.to_owned(),
    };
    match (there, virtualises) {
        (true, true) => found(
            "KVM",
            "/dev/kvm; images run on QEMU's emulation all the same".to_owned(),
        ),
        (true, false) => optional(
            "/dev/kvm is there, but the CPU shows neither vmx nor svm: guests cannot use it, QEMU emulates",
        ),
        (false, _) => optional("no /dev/kvm: QEMU emulates"),
    }
}

fn huge_pages(setting: &str) -> Finding {
    let setting = setting.trim();
    if setting.is_empty() {
        return Finding {
            what: "huge pages of this Linux",
            state: State::Optional,
            text: "none: runs on linux have 4 KiB pages only".to_owned(),
        };
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

    #[test]
    fn versions_are_shown() {
        let host = FakeHost::default()
            .env("PATH", "/usr/bin")
            .file("/usr/bin/uhyve")
            .command("/usr/bin/uhyve --version", "uhyve 0.10.0\n");
        assert_eq!(uhyve(&host).text, "uhyve 0.10.0, /usr/bin/uhyve");
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
