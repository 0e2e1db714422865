//! Which files of the host an application sees.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// A file or folder of the host and the path under which the application finds it. What the
/// application writes there is on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMapping {
    /// On the host: a file, a folder, or a file that the application may make in a folder.
    pub host: PathBuf,
    /// For the application, without a leading slash.
    pub guest: String,
}

impl FromStr for FileMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((host, guest)) = text.rsplit_once(':') else {
            return Err(format!("'{text}' is not of the form HOST:GUEST"));
        };
        let Some(guest) = guest_path(Path::new(guest)) else {
            return Err(format!("'{guest}' names no place for a file"));
        };
        let host = PathBuf::from(host);
        let mapping = Self { host, guest };
        match mapping.place() {
            Ok(_) => Ok(mapping),
            Err(error) => Err(format!("{error:#}")),
        }
    }
}

/// Where a mapping's host side is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A folder that exists, absolute and without links.
    pub folder: PathBuf,
    /// The one file in it that is meant.
    pub file: Option<PathBuf>,
}

impl Place {
    /// The file or folder.
    pub fn path(&self) -> PathBuf {
        match &self.file {
            Some(file) => self.folder.join(file),
            None => self.folder.clone(),
        }
    }
}

impl FileMapping {
    /// Finds the host side; only the last part of its path may be missing.
    pub fn place(&self) -> Result<Place> {
        let host = &self.host;
        if host.is_dir() {
            return Ok(Place {
                folder: absolute(host)?,
                file: None,
            });
        }
        let path = if host.exists() {
            absolute(host)?
        } else {
            host.clone()
        };
        // A path that ends with a slash means a folder.
        let is_folder = host.as_os_str().as_encoded_bytes().ends_with(b"/");
        let Some(file) = path.file_name().filter(|_| !is_folder) else {
            bail!("there is no folder {}", host.display());
        };
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        if !folder.is_dir() {
            bail!(
                "there is no folder {} for the file {}",
                folder.display(),
                file.display()
            );
        }
        Ok(Place {
            folder: absolute(folder)?,
            file: Some(file.into()),
        })
    }

    /// Whether a path for the application lies at or below this one's.
    pub fn holds(&self, guest: &str) -> bool {
        guest
            .strip_prefix(&self.guest)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("cannot open {}", path.display()))
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

/// The files that go into an image: every argument, or value of a `--option=PATH`, that names a
/// file of the host, relative to `directory`, unless one of `mapped` holds its place.
pub fn collect_files(
    directory: &Path,
    mapped: &[FileMapping],
    args: &[String],
) -> Vec<FileMapping> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for arg in args {
        let value = match arg.split_once('=') {
            Some((option, value)) if option.starts_with("--") => value,
            _ => arg,
        };
        let host = directory.join(value);
        if value.is_empty() || !host.is_file() {
            continue;
        }
        if let Some(guest) = guest_path(Path::new(value))
            && !mapped.iter().any(|mapping| mapping.holds(&guest))
        {
            files.entry(guest).or_insert(host);
        }
    }
    files
        .into_iter()
        .map(|(guest, host)| FileMapping { host, guest })
        .collect()
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
        let files = collect_files(&inner, &[], &args);
        let guests: Vec<&str> = files.iter().map(|f| f.guest.as_str()).collect();
        assert_eq!(guests, ["mesh", "out"]);
        assert_eq!(files[1].host, inner.join("out"));
    }

    fn map(host: &Path, guest: &str) -> FileMapping {
        format!("{}:{guest}", host.display()).parse().unwrap()
    }

    #[test]
    fn mapped_places_are_not_packed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("in")).unwrap();
        for name in ["a", "ab", "in/c"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let mapped = [
            map(&directory.path().join("ab"), "/a"),
            map(directory.path(), "in"),
        ];
        let args = ["a", "ab", "in/c"].map(String::from);
        let files = collect_files(directory.path(), &mapped, &args);
        assert!(files.iter().map(|file| &*file.guest).eq(["ab"]));
    }

    #[test]
    fn a_mapping_is_a_folder_or_a_file_in_one() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().canonicalize().unwrap();
        std::fs::write(folder.join("there"), "t").unwrap();
        std::os::unix::fs::symlink("there", folder.join("link")).unwrap();
        let place = |host: &str| map(&folder.join(host), "x").place().unwrap();
        assert_eq!(place("").file, None);
        for (host, file) in [("there", "there"), ("link", "there"), ("new", "new")] {
            let file = Some(PathBuf::from(file));
            let folder = folder.clone();
            assert_eq!(place(host), Place { folder, file });
        }
    }

    #[test]
    fn bad_mappings_are_explained() {
        let error = |text: &str| text.parse::<FileMapping>().unwrap_err();
        assert!(error("abc").contains("HOST:GUEST"));
        assert_eq!(
            error("/nowhere/x:/x"),
            "there is no folder /nowhere for the file x"
        );
        assert_eq!(error("/nowhere/:/x"), "there is no folder /nowhere/");
        assert!(error("/proc/self/exe/x:/x").contains("no folder /proc/self/exe"));
        assert!(error("/proc:/").contains("'/' names no place"));
    }
}
