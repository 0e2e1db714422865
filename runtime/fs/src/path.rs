//! Paths as applications name them.

use alloc::vec::Vec;
use core::ffi::CStr;

use crate::errno::Errno;

/// The longest path that an application may name.
const PATH_MAX: usize = 4096;
/// The longest name in a path.
const NAME_MAX: usize = 255;

/// An absolute path without `.`, `..` and empty names.
///
/// `..` takes back the name in front of it whether or not that exists: the image's tree has no
/// links, and of the host's directories it holds only those on the way to a file that was packed.
/// Relative paths start at the root, and `..` above the root stays there.
#[derive(Debug)]
pub struct FilePath {
    /// With a zero byte at its end.
    text: Vec<u8>,
    names_directory: bool,
}

impl FilePath {
    /// Resolves a path by its names. It holds no zero byte.
    pub fn new(path: &[u8]) -> Result<Self, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut text = Vec::new();
        // No longer than what is given, but for a slash in front and a zero byte behind.
        text.try_reserve_exact(path.len() + 2)
            .map_err(|_| Errno::NOMEM)?;
        for name in path.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => {
                    let parent = text.iter().rposition(|&byte| byte == b'/');
                    text.truncate(parent.unwrap_or(0));
                }
                name if name.len() > NAME_MAX => return Err(Errno::NAMETOOLONG),
                name if name.contains(&0) => return Err(Errno::INVAL),
                name => {
                    text.push(b'/');
                    text.extend_from_slice(name);
                }
            }
        }
        if text.is_empty() {
            text.push(b'/');
        }
        text.push(0);
        let last = path.rsplit(|&byte| byte == b'/').next();
        Ok(Self {
            text,
            names_directory: matches!(last, Some(b"" | b"." | b"..")),
        })
    }

    /// Whether only a directory can have been meant: what stands behind a slash is one.
    pub fn names_directory(&self) -> bool {
        self.names_directory
    }

    /// The path without its zero byte.
    pub fn as_bytes(&self) -> &[u8] {
        self.text.split_last().map_or(&[], |(_, path)| path)
    }

    /// The path with its zero byte.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.text).unwrap_or(c"/")
    }

    /// The names in the path, from the root on.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.as_bytes()
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide() {
        let resolved = |path: &str| FilePath::new(path.as_bytes()).unwrap().text;
        for (path, expected) in [
            ("/", "/\0"),
            ("..", "/\0"),
            ("a", "/a\0"),
            ("//a///b/", "/a/b\0"),
            ("/a/./b/../c", "/a/c\0"),
            ("../../x/../../y", "/y\0"),
            ("...", "/...\0"),
        ] {
            assert_eq!(resolved(path), expected.as_bytes(), "{path}");
        }
        let path = FilePath::new(b"a/b").unwrap();
        assert_eq!(path.as_bytes(), b"/a/b");
        assert_eq!(path.as_c_str(), c"/a/b");
        assert!(path.names().eq([b"a", b"b"]));
        assert_eq!(FilePath::new(b"/").unwrap().names().count(), 0);
    }

    #[test]
    fn a_slash_at_the_end_means_a_directory() {
        for (path, directory) in [("/", true), ("a/", true), ("a/.", true), ("a/..", true)]
            .into_iter()
            .chain([("a", false), ("a/b", false), ("a/.b", false)])
        {
            let path = FilePath::new(path.as_bytes()).unwrap();
            assert_eq!(path.names_directory(), directory, "{path:?}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let refused = |path: &[u8]| FilePath::new(path).err();
        assert_eq!(refused(b""), Some(Errno::NOENT));
        assert_eq!(refused(b"a\0b"), Some(Errno::INVAL));
        assert_eq!(refused(&[b'x'; 256]), Some(Errno::NAMETOOLONG));
        assert_eq!(refused(&[b'x'; 255]), None);
        assert_eq!(refused(&[b'/'; 4096]), Some(Errno::NAMETOOLONG));
        assert_eq!(refused(&[b'/'; 4095]), None);
    }
}
