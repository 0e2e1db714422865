//! Which files of the host go into an image.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};

/// A file of the host and the path under which the application finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMapping {
    /// On the host.
    pub host: PathBuf,
    /// In the image, without a leading slash.
    pub guest: String,
}

impl FromStr for FileMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((host, guest)) = text.rsplit_once(':') else {
            return Err(format!("'{text}' is not of the form HOST:GUEST"));
        };
        let host = PathBuf::from(host);
        if !host.is_file() {
            return Err(format!("there is no file {}", host.display()));
        }
        match guest_path(Path::new(guest)) {
            Some(guest) => Ok(Self { host, guest }),
            None => Err(format!("'{guest}' names no file in the image")),
        }
    }
}

/// The path inside an image that `path` means there.
///
/// The application starts in `/`, above which there is nothing: `..` at the top stays at the top,
/// as it does for the kernel that resolves the same path.
pub fn guest_path(path: &Path) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// All files a run needs: the ones named explicitly, and every argument, or value of a
/// `--option=PATH`, that names a file of the host, relative to `directory`.
pub fn collect_files(
    directory: &Path,
    explicit: &[FileMapping],
    args: &[String],
) -> Result<Vec<FileMapping>> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for file in explicit {
        let other = files.insert(file.guest.clone(), file.host.clone());
        if other.is_some_and(|host| host != file.host) {
            bail!("two different files are both to be /{}", file.guest);
        }
    }
    for arg in args {
        let value = match arg.split_once('=') {
            Some((option, value)) if option.starts_with("--") => value,
            _ => arg,
        };
        let host = directory.join(value);
        if value.is_empty() || !host.is_file() {
            continue;
        }
        if let Some(guest) = guest_path(Path::new(value)) {
            // What was mapped explicitly stays: the user knows better.
            files.entry(guest).or_insert(host);
        }
    }
    Ok(files
        .into_iter()
        .map(|(guest, host)| FileMapping { host, guest })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(path: &str) -> Option<String> {
        guest_path(Path::new(path))
    }

    #[test]
    fn guest_paths_are_normalised() {
        assert_eq!(guest("../shared/data/x").as_deref(), Some("shared/data/x"));
        assert_eq!(guest("/a/./b/../c").as_deref(), Some("a/c"));
        assert_eq!(guest("a/../../b").as_deref(), Some("b"));
        assert_eq!(guest(".."), None);
        assert_eq!(guest("/"), None);
    }

    #[test]
    fn arguments_that_name_files_are_collected() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(directory.path().join("mesh"), "m").unwrap();
        std::fs::write(inner.join("out"), "o").unwrap();
        let args: Vec<String> = [
            "--mesh",
            "../mesh",
            "--check=out",
            "--steps",
            "3",
            "-",
            "",
            ".",
        ]
        .map(String::from)
        .to_vec();
        let files = collect_files(&inner, &[], &args).unwrap();
        let guests: Vec<&str> = files.iter().map(|f| f.guest.as_str()).collect();
        assert_eq!(guests, ["mesh", "out"]);
        assert_eq!(files[1].host, inner.join("out"));
    }

    #[test]
    fn explicit_files_win_and_must_not_collide() {
        let directory = tempfile::tempdir().unwrap();
        let a = directory.path().join("a");
        let b = directory.path().join("b");
        std::fs::write(&a, "a").unwrap();
        std::fs::write(&b, "b").unwrap();
        let map = |text: &Path, guest: &str| -> FileMapping {
            format!("{}:{guest}", text.display()).parse().unwrap()
        };
        let files = collect_files(directory.path(), &[map(&b, "/a")], &["a".to_owned()]).unwrap();
        assert_eq!(
            files,
            [FileMapping {
                host: b.clone(),
                guest: "a".into()
            }]
        );
        let error = collect_files(directory.path(), &[map(&a, "x"), map(&b, "/x")], &[]);
        assert!(error.unwrap_err().to_string().contains("/x"));
    }

    #[test]
    fn bad_mappings_are_explained() {
        assert!(
            "abc"
                .parse::<FileMapping>()
                .unwrap_err()
                .contains("HOST:GUEST")
        );
        assert!(
            "/nowhere:/x"
                .parse::<FileMapping>()
                .unwrap_err()
                .contains("/nowhere")
        );
    }
}
