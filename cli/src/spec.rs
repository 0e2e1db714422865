//! What a run is asked to be: platform, size of the machine, modes, arguments.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::image::FileMapping;

/// Where an application runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// Under QEMU, on an emulated machine
    Qemu,
    /// Under the uhyve hypervisor
    Uhyve,
    /// As an ordinary process of this Linux
    Linux,
    /// In a Linux inside the same virtual machine (not available yet)
    LinuxVm,
}

impl Platform {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Uhyve => "uhyve",
            Self::Linux => "linux",
            Self::LinuxVm => "linux-vm",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When the memory manager uses huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Thp {
    /// Only 4 KiB pages.
    Never,
    /// 2 MiB pages wherever a whole one fits.
    Always,
}

impl Thp {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

impl fmt::Display for Thp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Thp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            "always" => Ok(Self::Always),
            "madvise" | "adaptive" => Err(format!(
                "the THP mode '{text}' is not available yet (known: never, always)"
            )),
            _ => Err(format!("unknown THP mode '{text}' (known: never, always)")),
        }
    }
}

/// Where fresh memory is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Numa {
    /// On the node of the CPU that touches it first.
    Local,
}

impl Numa {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
        }
    }
}

impl FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "local" => Ok(Self::Local),
            "interleave" | "bind" | "preferred" | "weighted-interleave" => Err(format!(
                "the NUMA policy '{text}' is not available yet (known: local)"
            )),
            _ => Err(format!("unknown NUMA policy '{text}' (known: local)")),
        }
    }
}

/// One mebibyte: the granularity of a machine's memory.
pub const MIB: u64 = 1 << 20;

/// Reads a size such as `512M`, `4G`, `64MiB` or `1048576`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let unknown = || format!("'{text}' is no size: write 512M or 4G");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| unknown())?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 1,
        "k" => 1 << 10,
        "m" => MIB,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return Err(unknown()),
    };
    number.checked_mul(factor).ok_or_else(unknown)
}

/// Reads the memory of a machine: a size in whole mebibytes.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes == 0 || bytes % MIB != 0 {
        return Err(format!("'{text}' is not a whole number of MiB"));
    }
    Ok(bytes)
}

/// One run, described.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// Where.
    pub platform: Platform,
    /// Processors of the machine.
    pub cpus: u32,
    /// Which processor QEMU emulates, in its own words; `None` for all that it can.
    pub cpu_model: Option<String>,
    /// Which machine QEMU emulates, in its own words; `None` for its default.
    pub machine: Option<String>,
    /// The machine's NUMA nodes.
    pub nodes: u32,
    /// Its memory; `None` for the default of [`RunSpec::memory`].
    pub mem_bytes: Option<u64>,
    /// Huge pages.
    pub thp: Thp,
    /// Placement.
    pub numa: Numa,
    /// Whether uhyve puts the guest's memory at a fixed address, and not at a random one.
    pub fixed_address: bool,
    /// Whether the kernel fills freed frames with a pattern, and looks for misuse of them.
    pub debug_frames: bool,
    /// The run is ended after this time.
    pub timeout: Option<Duration>,
    /// Files and folders of the host that the application sees.
    pub files: Vec<FileMapping>,
    /// Variables of the application's environment, `NAME=VALUE`.
    pub env: Vec<String>,
    /// The application's arguments.
    pub args: Vec<String>,
}

impl RunSpec {
    /// The machine's memory in bytes: as asked for, or 1 GiB, or half of that for each node.
    pub fn memory(&self) -> u64 {
        self.mem_bytes
            .unwrap_or_else(|| 512 * MIB * u64::from(self.nodes.max(2)))
    }
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            platform: Platform::Qemu,
            cpus: 4,
            cpu_model: None,
            machine: None,
            nodes: 1,
            mem_bytes: None,
            thp: Thp::Always,
            numa: Numa::Local,
            fixed_address: false,
            debug_frames: false,
            timeout: None,
            files: Vec::new(),
            env: Vec::new(),
            args: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("512M"), Ok(512 * MIB));
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        assert_eq!(parse_size("64MiB"), Ok(64 * MIB));
        assert_eq!(parse_size("64 mb"), Ok(64 * MIB));
        assert_eq!(parse_size("1048576"), Ok(MIB));
        for bad in [
            "",
            "M",
            "12Q",
            "1.5G",
            "-1M",
            "99999999999999999999",
            "99999999T",
        ] {
            assert!(parse_size(bad).unwrap_err().contains("no size"), "{bad}");
        }
    }

    #[test]
    fn a_machine_has_whole_mebibytes() {
        assert_eq!(parse_memory("16M"), Ok(16 * MIB));
        assert!(parse_memory("0").is_err());
        assert!(parse_memory("1000000").is_err());
    }

    #[test]
    fn modes_name_what_is_known() {
        assert_eq!("always".parse(), Ok(Thp::Always));
        let unknown = "sometimes".parse::<Thp>().unwrap_err();
        assert!(unknown.contains("'sometimes'") && unknown.contains("never, always"));
        assert!(
            "adaptive"
                .parse::<Thp>()
                .unwrap_err()
                .contains("not available yet")
        );
        assert!("near".parse::<Numa>().unwrap_err().contains("known: local"));
    }

    #[test]
    fn memory_grows_with_the_nodes() {
        let mut spec = RunSpec::default();
        assert_eq!(spec.memory(), 1024 * MIB);
        spec.nodes = 4;
        assert_eq!(spec.memory(), 2048 * MIB);
        spec.mem_bytes = Some(16 * MIB);
        assert_eq!(spec.memory(), 16 * MIB);
    }
}
