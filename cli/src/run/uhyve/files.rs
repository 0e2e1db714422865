//! Files of the host on their way into the Linux in which uhyve runs, and back.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use super::nested::Nested;
use crate::image::FileMapping;

/// The files of one run, as they were before it.
pub(in crate::run) struct Files(Vec<Mapped>);

struct Mapped {
    host: PathBuf,
    guest: String,
    before: Contents,
}

enum Contents {
    /// Nothing: the application is to make it.
    None,
    File(Vec<u8>),
    /// A folder: a tar archive, and the paths of its files.
    Folder(Vec<u8>, BTreeSet<PathBuf>),
}

impl Files {
    /// Reads what `mappings` name.
    pub(super) fn read(mappings: &[FileMapping]) -> Result<Self> {
        let read = |mapping: &FileMapping| {
            let host = mapping.host.clone();
            let before = if host.is_dir() {
                let archive = archive(&host)?;
                let files = paths(&archive)?;
                Contents::Folder(archive, files)
            } else if host.exists() {
                let contents = fs::read(&host);
                Contents::File(contents.with_context(|| format!("cannot read {}", host.display()))?)
            } else {
                Contents::None
            };
            Ok(Mapped {
                host,
                guest: format!("/{}", mapping.guest),
                before,
            })
        };
        mappings.iter().map(read).collect::<Result<_>>().map(Self)
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |mapped: &Mapped| match &mapped.before {
            Contents::None => 0,
            Contents::File(contents) | Contents::Folder(contents, _) => contents.len() as u64,
        };
        self.0.iter().map(bytes).sum()
    }

    /// Puts them into the Linux; returns where they are there, and the guest's paths.
    pub(super) fn send(&self, linux: &mut Nested) -> Result<Vec<(PathBuf, String)>> {
        let mut places = Vec::new();
        for (number, mapped) in self.0.iter().enumerate() {
            // Each in a folder of its own: uhyve may make what is not there yet beside it.
            let folder = format!("/job/files{number}");
            let place = format!("{folder}/it");
            match &mapped.before {
                Contents::None => linux.unpack(&folder, &empty_archive()?)?,
                Contents::File(contents) => {
                    linux.unpack(&folder, &empty_archive()?)?;
                    linux.put(&place, contents)?;
                }
                Contents::Folder(archive, _) => linux.unpack(&place, archive)?,
            }
            places.push((place.into(), mapped.guest.clone()));
        }
        Ok(places)
    }

    /// Brings back what the guest has written or removed.
    pub(in crate::run) fn receive(&self, linux: &mut Nested) -> Result<()> {
        for (number, mapped) in self.0.iter().enumerate() {
            let place = format!("/job/files{number}/it");
            match &mapped.before {
                Contents::Folder(before, files) => {
                    let archive = linux.pack(&place)?;
                    if archive != *before {
                        unpack(&archive, files, &mapped.host)?;
                    }
                }
                before => match linux.get(&place)? {
                    Some(contents) => {
                        if !matches!(before, Contents::File(old) if *old == contents) {
                            write(&mapped.host, &contents)?;
                        }
                    }
                    None => {
                        if matches!(before, Contents::File(_)) {
                            remove(&mapped.host)?;
                        }
                    }
                },
            }
        }
        Ok(())
    }
}

fn empty_archive() -> Result<Vec<u8>> {
    Ok(tar::Builder::new(Vec::new()).into_inner()?)
}

fn archive(folder: &Path) -> Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    builder
        .append_dir_all(".", folder)
        .and_then(|()| builder.into_inner())
        .with_context(|| format!("cannot read the folder {}", folder.display()))
}

/// A path within a folder; none that leads out of it.
fn inner(path: &Path) -> Option<PathBuf> {
    let mut inner = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inner.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(inner)
}

fn paths(archive: &[u8]) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for entry in tar::Archive::new(archive).entries()? {
        let entry = entry?;
        if entry.header().entry_type().is_file() {
            files.extend(inner(&entry.path()?));
        }
    }
    Ok(files)
}

/// Makes `folder` what `archive` holds: changed files are written, those of `before` that are gone
/// are removed.
fn unpack(archive: &[u8], before: &BTreeSet<PathBuf>, folder: &Path) -> Result<()> {
    let mut gone = before.clone();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let Some(path) = inner(&entry.path()?) else {
            continue;
        };
        gone.remove(&path);
        let host = folder.join(&path);
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            let made = fs::create_dir_all(&host);
            made.with_context(|| format!("cannot make {}", host.display()))?;
        } else if kind.is_file() {
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents)?;
            if fs::read(&host).ok().as_ref() != Some(&contents) {
                write(&host, &contents)?;
            }
        }
    }
    gone.iter().try_for_each(|path| remove(&folder.join(path)))
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_becomes_what_the_archive_holds() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        for (folder, name, text) in [
            (&old, "same", "s"),
            (&old, "changed", "1"),
            (&old, "gone", "g"),
            (&new, "same", "s"),
            (&new, "changed", "22"),
            (&new, "deep/made", "m"),
        ] {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let before = paths(&archive(&old).unwrap()).unwrap();
        assert_eq!(before.len(), 3);
        unpack(&archive(&new).unwrap(), &before, &old).unwrap();
        assert_eq!(fs::read(old.join("changed")).unwrap(), b"22");
        assert_eq!(fs::read(old.join("deep/made")).unwrap(), b"m");
        assert!(!old.join("gone").exists() && old.join("same").exists());
    }

    #[test]
    fn no_path_leads_out_of_a_folder() {
        assert_eq!(inner(Path::new("./a/b")), Some("a/b".into()));
        assert_eq!(inner(Path::new("../a")), None);
        assert_eq!(inner(Path::new("/a")), None);
    }
}
