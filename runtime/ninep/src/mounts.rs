//! Which share a path belongs to.

use alloc::vec::Vec;

/// A place at which the application sees a share, or one file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The share, by its number.
    pub share: usize,
    /// The names of the place's path.
    path: Vec<Vec<u8>>,
    /// The file of the share that is seen there, instead of all of it.
    file: Option<Vec<u8>>,
}

impl Mount {
    /// The share number `share`, or its file of the name `file`, at `path`.
    pub fn new(share: usize, path: &[u8], file: Option<&[u8]>) -> Self {
        Self {
            share,
            path: names(path).map(<[u8]>::to_vec).collect(),
            file: file.map(<[u8]>::to_vec),
        }
    }

    /// What lies below the place on the way of `path`, if it leads there.
    fn below<'p, 'a>(&self, path: &'p [&'a [u8]]) -> Option<&'p [&'a [u8]]> {
        let (front, rest) = path.split_at_checked(self.path.len())?;
        (front == self.path).then_some(rest)
    }
}

/// What a path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved<'a> {
    /// A file or directory of a share, whether it exists or not.
    Share {
        /// The share's number.
        share: usize,
        /// The names from the share's root.
        names: Vec<&'a [u8]>,
    },
    /// A directory that exists because places lie below it; it cannot be changed.
    OnTheWay,
}

/// All places. Of several that hold a path, the one closest to it counts.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// All of these.
    pub fn new(mounts: Vec<Mount>) -> Self {
        Self(mounts)
    }

    /// What an absolute, normalised path stands for.
    pub fn resolve<'a>(&'a self, path: &'a [u8]) -> Option<Resolved<'a>> {
        let path: Vec<&[u8]> = names(path).collect();
        let holding = self
            .0
            .iter()
            .filter_map(|mount| Some((mount, mount.below(&path)?)));
        // Of two for the same place the later one counts.
        if let Some((mount, rest)) = holding.max_by_key(|(mount, _)| mount.path.len()) {
            let file = mount.file.iter().map(Vec::as_slice);
            return Some(Resolved::Share {
                share: mount.share,
                names: file.chain(rest.iter().copied()).collect(),
            });
        }
        self.ways(&path).next().map(|_| Resolved::OnTheWay)
    }

    /// The names in a directory on the way, each once, in order.
    pub fn entries<'a>(&'a self, path: &[u8]) -> Vec<&'a [u8]> {
        let path: Vec<&[u8]> = names(path).collect();
        let mut entries: Vec<&[u8]> = self.ways(&path).collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }

    /// The next name of each place below `path`.
    fn ways<'a>(&'a self, path: &[&[u8]]) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |mount| {
            let (front, rest) = mount.path.split_at_checked(path.len())?;
            (front == path).then_some(())?;
            rest.first().map(Vec::as_slice)
        })
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn mounts() -> Mounts {
        Mounts::new(vec![
            Mount::new(0, b"/data", None),
            Mount::new(1, b"/data/inner", None),
            Mount::new(2, b"/in/of test/mesh", Some(b"sf10.pack")),
            Mount::new(2, b"/in/other", Some(b"other")),
        ])
    }

    #[track_caller]
    fn leads_to(path: &[u8], share: usize, names: &[&[u8]]) {
        let expected = Resolved::Share {
            share,
            names: names.to_vec(),
        };
        assert_eq!(mounts().resolve(path), Some(expected));
    }

    #[test]
    fn the_closest_place_counts() {
        leads_to(b"/data", 0, &[]);
        leads_to(b"/data/a/b", 0, &[b"a", b"b"]);
        leads_to(b"/data/innermost", 0, &[b"innermost"]);
        leads_to(b"/data/inner", 1, &[]);
        leads_to(b"/data/inner/a", 1, &[b"a"]);
    }

    #[test]
    fn a_single_file_has_its_own_name_on_the_host() {
        leads_to(b"/in/of test/mesh", 2, &[b"sf10.pack"]);
        // Whether it is a directory is the server's to say.
        leads_to(b"/in/of test/mesh/x", 2, &[b"sf10.pack", b"x"]);
        assert_eq!(mounts().resolve(b"/in/of test/mesh2"), None);
    }

    #[test]
    fn directories_lead_to_the_places() {
        for way in [&b"/"[..], b"/in", b"/in/of test"] {
            assert_eq!(mounts().resolve(way), Some(Resolved::OnTheWay));
        }
        assert_eq!(mounts().entries(b"/"), [&b"data"[..], b"in"]);
        assert_eq!(mounts().entries(b"/in"), [&b"of test"[..], b"other"]);
        assert_eq!(mounts().resolve(b"/elsewhere"), None);
        assert_eq!(Mounts::default().resolve(b"/"), None);
    }

    #[test]
    fn of_two_for_one_place_the_later_counts() {
        let mounts = Mounts::new(vec![
            Mount::new(0, b"/a", None),
            Mount::new(1, b"/a", Some(b"file")),
        ]);
        let resolved = mounts.resolve(b"/a");
        assert!(matches!(resolved, Some(Resolved::Share { share: 1, .. })));
    }
}
