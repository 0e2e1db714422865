//! The grammar of the boot arguments.
//!
//! Words are split as a POSIX shell splits them. Words in front of `--` are for the kernel, words
//! behind it for the application. Without any `--`, the kernel's words end at the first word that
//! is not one of them.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZero;

const KNOWN: &str = "thp=, numa-fake=, report, debug-frames, env=, mount=, -env, -freq, -ip, -gateway, -mask, -mount, --";
const THP_MODES: &str = "never, always";
/// Words of Hermit's that take a value, and what becomes of them.
const IGNORED: [&str; 5] = ["-freq", "-ip", "-gateway", "-mask", "-mount"];

/// Transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThpMode {
    /// Base pages only.
    Never,
    /// Huge pages wherever a range allows.
    Always,
}

impl ThpMode {
    /// The name that the boot argument uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

/// A place at which the application sees files of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The name of the device that shares a folder of the host.
    pub tag: String,
    /// The absolute path for the application.
    pub guest: String,
    /// The one file of the folder that is seen there; without it, the whole folder.
    pub file: Option<String>,
}

impl Mount {
    /// Reads `TAG:PATH` or `TAG:PATH:NAME`. A colon or backslash of a part itself stands behind a
    /// backslash.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = alloc::vec![String::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let (literal, separates) = match character {
                '\\' => (characters.next()?, false),
                other => (other, other == ':'),
            };
            match parts.last_mut() {
                Some(part) if !separates => part.push(literal),
                _ => parts.push(String::new()),
            }
        }
        let mut parts = parts.into_iter();
        let (tag, guest, file) = (parts.next()?, parts.next()?, parts.next());
        let named = !tag.is_empty() && file.as_ref().is_none_or(|file| !file.is_empty());
        let absolute = guest.starts_with('/');
        (named && absolute && parts.next().is_none()).then_some(Self { tag, guest, file })
    }
}

/// The boot arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootArgs {
    /// `thp=`: the mode of transparent huge pages, if one was asked for. The last one wins.
    pub thp: Option<ThpMode>,
    /// `numa-fake=`: the number of NUMA nodes to divide the machine into.
    pub numa_fake: Option<NonZero<u32>>,
    /// `report`: emit records for the host tool.
    pub report: bool,
    /// `debug-frames`: fill freed frames with a pattern, and look for what is done to them.
    pub debug_frames: bool,
    /// `env=KEY=VALUE`, `-env KEY=VALUE`: in the order given, one entry for each key.
    pub env: Vec<(String, String)>,
    /// `mount=TAG:PATH`, `mount=TAG:PATH:NAME`: in the order given.
    pub mounts: Vec<Mount>,
    /// The application's arguments, without a program name.
    pub app_args: Vec<String>,
    /// Sentences about arguments that are accepted and have no effect.
    pub notes: Vec<String>,
}

/// Why boot arguments are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgsError {
    /// A quote or a backslash at the end that nothing follows.
    Unfinished,
    /// A word that the kernel does not know.
    Unknown(String),
    /// A word that lacks its value.
    MissingValue(String),
    /// A value that is not one of those allowed.
    BadValue {
        /// The argument.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

impl fmt::Display for ArgsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => {
                f.write_str("the boot arguments end within a quotation or after a backslash")
            }
            Self::Unknown(word) => write!(f, "unknown boot argument '{word}' (known: {KNOWN})"),
            Self::MissingValue(name) => write!(f, "the boot argument '{name}' lacks its value"),
            Self::BadValue {
                name,
                value,
                allowed,
            } => write!(
                f,
                "the boot argument '{name}' cannot be '{value}' (allowed: {allowed})"
            ),
        }
    }
}

impl core::error::Error for ArgsError {}

/// The words of the boot arguments, before their meaning is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The words for the kernel.
    pub kernel: Vec<String>,
    /// The words for the application.
    pub app: Vec<String>,
}

impl Words {
    /// Splits a line into words and the words into the kernel's and the application's.
    pub fn split(line: &str) -> Result<Self, ArgsError> {
        let mut words = shlex::split(line).ok_or(ArgsError::Unfinished)?;
        if let Some(separator) = words.iter().position(|w| w == "--") {
            let app = words.split_off(separator + 1);
            words.truncate(separator);
            return Ok(Self { kernel: words, app });
        }
        let mut kernel_words = 0;
        while let Some(word) = words.get(kernel_words) {
            if takes_value(word) {
                kernel_words += 2;
            } else if is_word(word) {
                kernel_words += 1;
            } else {
                break;
            }
        }
        let app = words.split_off(kernel_words.min(words.len()));
        Ok(Self { kernel: words, app })
    }

    /// The line that splits into these words again.
    pub fn join(&self) -> String {
        let words = self
            .kernel
            .iter()
            .map(String::as_str)
            .chain(["--"])
            .chain(self.app.iter().map(String::as_str));
        let mut line = String::new();
        for word in words {
            if !line.is_empty() {
                line.push(' ');
            }
            // A line never contains NUL, so a word split from one does not either.
            line.push_str(
                &shlex::Quoter::new()
                    .allow_nul(true)
                    .quote(word)
                    .unwrap_or_default(),
            );
        }
        line
    }
}

fn takes_value(word: &str) -> bool {
    word == "-env" || IGNORED.contains(&word)
}

fn is_word(word: &str) -> bool {
    ["report", "debug-frames"].contains(&word)
        || ["thp=", "numa-fake=", "env=", "mount="]
            .iter()
            .any(|p| word.starts_with(p))
}

impl BootArgs {
    /// Reads the boot arguments.
    pub fn parse(line: &str) -> Result<Self, ArgsError> {
        let Words { kernel, app } = Words::split(line)?;
        let mut args = Self {
            app_args: app,
            ..Self::default()
        };
        let mut words = kernel.into_iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| ArgsError::MissingValue(word.clone()))
            };
            if word == "report" {
                args.report = true;
            } else if word == "debug-frames" {
                args.debug_frames = true;
            } else if let Some(mode) = word.strip_prefix("thp=") {
                args.thp = Some(thp_mode(mode)?);
            } else if let Some(count) = word.strip_prefix("numa-fake=") {
                args.numa_fake = Some(count.parse().map_err(|_| ArgsError::BadValue {
                    name: "numa-fake",
                    value: count.to_owned(),
                    allowed: "a positive number of nodes",
                })?);
            } else if let Some(pair) = word.strip_prefix("env=") {
                args.set_env(pair)?;
            } else if let Some(text) = word.strip_prefix("mount=") {
                let mount = Mount::parse(text).ok_or_else(|| ArgsError::BadValue {
                    name: "mount",
                    value: text.to_owned(),
                    allowed: "TAG:/PATH, TAG:/PATH:NAME",
                })?;
                args.mounts.push(mount);
            } else if word == "-env" {
                let pair = value()?;
                args.set_env(&pair)?;
            } else if IGNORED.contains(&word.as_str()) {
                let value = value()?;
                args.notes
                    .push(format!("the boot argument '{word} {value}' has no effect"));
            } else {
                return Err(ArgsError::Unknown(word));
            }
        }
        Ok(args)
    }

    fn set_env(&mut self, pair: &str) -> Result<(), ArgsError> {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                match self.env.iter_mut().find(|(k, _)| k == key) {
                    Some(entry) => entry.1 = value.to_owned(),
                    None => self.env.push((key.to_owned(), value.to_owned())),
                }
                Ok(())
            }
            _ => Err(ArgsError::BadValue {
                name: "env",
                value: pair.to_owned(),
                allowed: "KEY=VALUE",
            }),
        }
    }
}

fn thp_mode(name: &str) -> Result<ThpMode, ArgsError> {
    [ThpMode::Never, ThpMode::Always]
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or_else(|| ArgsError::BadValue {
            name: "thp",
            value: name.to_owned(),
            allowed: THP_MODES,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(line: &str) -> String {
        BootArgs::parse(line).unwrap_err().to_string()
    }

    #[test]
    fn kernel_words_and_application_arguments() {
        let args = BootArgs::parse(
            "thp=always numa-fake=2 report debug-frames env=A=1 -env 'B=two words' env=A=3 -- --steps 5 'a b' --",
        )
        .unwrap();
        assert_eq!(args.thp, Some(ThpMode::Always));
        assert_eq!(args.numa_fake, NonZero::new(2));
        assert!(args.report && args.debug_frames);
        let env = [("A", "3"), ("B", "two words")];
        assert!(args.env.iter().map(|(k, v)| (&**k, &**v)).eq(env));
        assert_eq!(args.app_args, ["--steps", "5", "a b", "--"]);
        assert!(args.notes.is_empty());
    }

    #[test]
    fn without_a_separator_the_first_other_word_ends_the_kernels() {
        let args = BootArgs::parse("-freq 2000 thp=never foo thp=always -freq").unwrap();
        assert_eq!(args.thp, Some(ThpMode::Never));
        assert_eq!(args.app_args, ["foo", "thp=always", "-freq"]);
        assert_eq!(args.notes, ["the boot argument '-freq 2000' has no effect"]);
        assert_eq!(BootArgs::parse("").unwrap(), BootArgs::default());
        assert_eq!(BootArgs::parse(" -- ").unwrap(), BootArgs::default());
    }

    #[test]
    fn errors_are_precise() {
        assert_eq!(
            sentence("xyz --"),
            "unknown boot argument 'xyz' (known: thp=, numa-fake=, report, debug-frames, env=, mount=, -env, -freq, -ip, -gateway, -mask, -mount, --)"
        );
        assert_eq!(
            sentence("thp=madvise --"),
            "the boot argument 'thp' cannot be 'madvise' (allowed: never, always)"
        );
        assert_eq!(
            sentence("numa-fake=0"),
            "the boot argument 'numa-fake' cannot be '0' (allowed: a positive number of nodes)"
        );
        assert_eq!(
            sentence("-mount"),
            "the boot argument '-mount' lacks its value"
        );
        assert_eq!(
            sentence("env=novalue"),
            "the boot argument 'env' cannot be 'novalue' (allowed: KEY=VALUE)"
        );
        assert_eq!(
            sentence("-- 'open"),
            "the boot arguments end within a quotation or after a backslash"
        );
    }

    #[test]
    fn mounts_are_read_with_their_colons() {
        let line =
            r"mount=d0:/data/of\ test 'mount=d\:1:/in\:out:one\\two\:three' mount=d0:/x -- y";
        let args = BootArgs::parse(line).unwrap();
        let mount = |tag: &str, guest: &str, file: Option<&str>| Mount {
            tag: tag.to_owned(),
            guest: guest.to_owned(),
            file: file.map(str::to_owned),
        };
        assert_eq!(
            args.mounts,
            [
                mount("d0", "/data/of test", None),
                mount("d:1", "/in:out", Some(r"one\two:three")),
                mount("d0", "/x", None),
            ]
        );
        assert_eq!(args.app_args, ["y"]);
        for bad in [
            "",
            "d0",
            "d0:",
            "d0:x",
            ":/x",
            "d0:/x:",
            "d0:/x:y:z",
            "d0:/x\\",
        ] {
            let error = sentence(&format!("mount='{bad}'"));
            assert_eq!(
                error,
                format!(
                    "the boot argument 'mount' cannot be '{bad}' (allowed: TAG:/PATH, TAG:/PATH:NAME)"
                )
            );
        }
    }

    #[test]
    fn joining_and_splitting_are_inverse() {
        let words = Words {
            kernel: ["env=A=x y", "#", "thp=never", "it's", ""]
                .map(String::from)
                .to_vec(),
            app: ["--", "$HOME", "\"", "\\", "é\n"]
                .map(String::from)
                .to_vec(),
        };
        assert_eq!(Words::split(&words.join()), Ok(words));
    }
}
