//! Writes the archive that applications link.

use std::io::Cursor;
use std::path::Path;

use anyhow::{Context, Result};
use ar_archive_writer::{
    ArchiveKind, DEFAULT_OBJECT_READER, NewArchiveMember, write_archive_to_stream,
};

/// Packs objects into an archive with a symbol index, byte for byte the same for the same objects.
pub(super) fn pack(members: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let members: Vec<NewArchiveMember<'_>> = members
        .iter()
        .map(|(name, object)| {
            NewArchiveMember::new(*object, &DEFAULT_OBJECT_READER, (*name).to_owned())
        })
        .collect();
    let mut out = Cursor::new(Vec::new());
    write_archive_to_stream(&mut out, &members, ArchiveKind::Gnu, false, Some(false))
        .context("the archive cannot be written")?;
    Ok(out.into_inner())
}

/// Writes `contents` to `path` by way of a neighbour, so that nobody reads half a file.
pub(super) fn write_whole(path: &Path, contents: &[u8]) -> Result<()> {
    let directory = path.parent().context("a file needs a directory")?;
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let partial = path.with_extension(format!("partial-{}", std::process::id()));
        std::fs::write(&partial, contents)?;
        std::fs::rename(&partial, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
