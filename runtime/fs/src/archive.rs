//! The tar format: from bytes to entries, without copying.

use core::fmt;

const BLOCK: usize = 512;
const MAX_PATH: usize = 4096;

/// Why an archive is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The archive ends inside an entry or without the mark that ends it, a block of zeros.
    CutOff {
        /// Where the entry or the mark starts.
        at: usize,
    },
    /// A header's checksum is wrong.
    Checksum {
        /// Where the header starts.
        at: usize,
    },
    /// A number in a header cannot be read.
    Number {
        /// Where the header starts.
        at: usize,
        /// Which number.
        field: &'static str,
    },
    /// A pax extended header is malformed.
    Pax {
        /// Where its header starts.
        at: usize,
    },
    /// A path is longer than 4096 bytes, or a part of it longer than 255.
    LongPath {
        /// Where the header starts.
        at: usize,
    },
    /// Sparse files are not supported.
    Sparse {
        /// Where the header starts.
        at: usize,
    },
    /// One path is a file and a directory.
    FileAndDirectory {
        /// Where the second of both starts.
        at: usize,
    },
    /// A hard link names a file that does not precede it.
    HardLink {
        /// Where the header starts.
        at: usize,
    },
    /// There is no memory for the index.
    OutOfMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::CutOff { at } => {
                write!(
                    f,
                    "the archive is cut off: no complete entry and no end mark at byte {at}"
                )
            }
            Self::Checksum { at } => write!(
                f,
                "the archive is damaged: wrong checksum in the header at byte {at}"
            ),
            Self::Number { at, field } => write!(
                f,
                "the archive is damaged: the {field} in the header at byte {at} is not a number"
            ),
            Self::Pax { at } => write!(
                f,
                "the archive is damaged: malformed extended header at byte {at}"
            ),
            Self::LongPath { at } => write!(
                f,
                "the path of the archive's entry at byte {at} is too long (4096 bytes, 255 per part)"
            ),
            Self::Sparse { at } => write!(
                f,
                "the archive's entry at byte {at} is a sparse file, which is not supported"
            ),
            Self::FileAndDirectory { at } => write!(
                f,
                "the archive's entry at byte {at} makes one path both a file and a directory"
            ),
            Self::HardLink { at } => write!(
                f,
                "the archive's entry at byte {at} is a hard link to a file that does not precede it"
            ),
            Self::OutOfMemory => f.write_str("there is no memory for the index of the archive"),
        }
    }
}

impl core::error::Error for Error {}

/// A path as the archive spells it: ustar splits long ones in two.
#[derive(Clone, Copy, Default)]
pub(crate) struct Path<'a> {
    prefix: &'a [u8],
    name: &'a [u8],
}

impl<'a> Path<'a> {
    pub(crate) fn whole(name: &'a [u8]) -> Self {
        Self { prefix: b"", name }
    }

    /// All parts that matter: no empty ones and no `.`.
    pub(crate) fn parts(self) -> impl Iterator<Item = &'a [u8]> {
        [self.prefix, self.name]
            .into_iter()
            .flat_map(|path| path.split(|&byte| byte == b'/'))
            .filter(|part| !matches!(*part, b"" | b"."))
    }

    fn check(self, at: usize) -> Result<Self, Error> {
        let fits = self.prefix.len() + self.name.len() <= MAX_PATH
            && self.parts().all(|part| part.len() <= 255);
        fits.then_some(self).ok_or(Error::LongPath { at })
    }
}

pub(crate) enum Kind<'a> {
    File(&'a [u8]),
    Directory,
    HardLink(Path<'a>),
    /// Symbolic links, devices, volume labels and the like.
    Other,
}

pub(crate) struct Entry<'a> {
    pub(crate) at: usize,
    pub(crate) path: Path<'a>,
    pub(crate) kind: Kind<'a>,
    pub(crate) mode: u32,
    pub(crate) mtime: i64,
}

/// Reads one entry after the other; ends after an error.
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What the extended headers in front of an entry say about it.
#[derive(Default)]
struct Extended<'a> {
    path: Option<&'a [u8]>,
    link: Option<&'a [u8]>,
    size: Option<u64>,
    mtime: Option<i64>,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn read(&mut self) -> Result<Option<Entry<'a>>, Error> {
        let mut extended = Extended::default();
        // Extended headers only ever precede the entry they belong to.
        let mut incomplete = false;
        loop {
            let at = self.at;
            let rest = &self.bytes[at..];
            let block = rest.first_chunk::<BLOCK>().ok_or(Error::CutOff { at })?;
            if block.iter().all(|&byte| byte == 0) {
                return if incomplete {
                    Err(Error::CutOff { at })
                } else {
                    Ok(None)
                };
            }
            let header = Header { at, block };
            header.verify()?;
            let kind = header.block[156];
            let sized_by_pax = if matches!(kind, b'x' | b'g' | b'L' | b'K') {
                None
            } else {
                extended.size
            };
            let size = sized_by_pax.map_or_else(|| header.number(124..136, "size"), Ok)?;
            // Links and directories may state a size, but no data follows.
            let stored = if matches!(kind, b'1'..=b'6') { 0 } else { size };
            let data = usize::try_from(stored)
                .ok()
                .and_then(|stored| rest[BLOCK..].get(..stored))
                .ok_or(Error::CutOff { at })?;
            // Where the padding is missing, the end mark is missing as well.
            self.at = (at + BLOCK + data.len().next_multiple_of(BLOCK)).min(self.bytes.len());
            match kind {
                b'L' => extended.path = Some(until_nul(data)),
                b'K' => extended.link = Some(until_nul(data)),
                b'x' => extended.read_pax(at, data)?,
                b'g' => {}
                _ => return header.entry(kind, data, &extended).map(Some),
            }
            incomplete = kind != b'g';
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read();
        if item.is_err() {
            self.at = self.bytes.len();
        }
        item.transpose()
    }
}

impl<'a> Extended<'a> {
    /// Records of the form `LENGTH KEY=VALUE\n`.
    fn read_pax(&mut self, at: usize, mut data: &'a [u8]) -> Result<(), Error> {
        while data.first().is_some_and(|&byte| byte != 0) {
            let (key, value, rest) = pax_record(data).ok_or(Error::Pax { at })?;
            if key.starts_with(b"GNU.sparse.") {
                return Err(Error::Sparse { at });
            }
            self.set(key, value).ok_or(Error::Pax { at })?;
            data = rest;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &'a [u8]) -> Option<()> {
        match key {
            b"path" => self.path = Some(value),
            b"linkpath" => self.link = Some(value),
            b"size" => self.size = Some(decimal(value)?),
            b"mtime" => {
                let seconds = value.split(|&byte| byte == b'.').next()?;
                let (sign, digits) = match seconds.strip_prefix(b"-") {
                    Some(digits) => (-1, digits),
                    None => (1, seconds),
                };
                self.mtime = Some(sign * i64::try_from(decimal(digits)?).ok()?);
            }
            _ => {}
        }
        Some(())
    }
}

/// Splits `LENGTH KEY=VALUE\n` off the front: key, value, and the rest.
fn pax_record(data: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = data.iter().position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(&data[..space])?).ok()?;
    let (record, rest) = data.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], rest))
}

struct Header<'a> {
    at: usize,
    block: &'a [u8; BLOCK],
}

impl<'a> Header<'a> {
    fn verify(&self) -> Result<(), Error> {
        let stated = self.number(148..156, "checksum")?;
        // The checksum field counts as spaces. Some old programs summed signed bytes.
        let byte = |(i, &byte): (usize, &u8)| if (148..156).contains(&i) { b' ' } else { byte };
        let unsigned: u64 = self.block.iter().enumerate().map(byte).map(u64::from).sum();
        let signed: i64 = (self.block.iter().enumerate())
            .map(|pair| i64::from(byte(pair).cast_signed()))
            .sum();
        if stated == unsigned || i64::try_from(stated) == Ok(signed) {
            Ok(())
        } else {
            Err(Error::Checksum { at: self.at })
        }
    }

    /// Octal digits, or GNU's base 256. Negative numbers (times before 1970) read as zero.
    fn number(&self, range: core::ops::Range<usize>, field: &'static str) -> Result<u64, Error> {
        let bytes = &self.block[range];
        let malformed = Error::Number { at: self.at, field };
        if bytes[0] & 0x80 != 0 {
            if bytes[0] & 0x40 != 0 {
                return Ok(0);
            }
            return (bytes.iter().enumerate()).try_fold(0_u64, |value, (i, &byte)| {
                let digit = if i == 0 { byte & 0x3f } else { byte };
                let shifted = value.checked_mul(256).ok_or(malformed)?;
                Ok(shifted | u64::from(digit))
            });
        }
        let digits = bytes.trim_ascii_start();
        let end = digits.iter().position(|&byte| matches!(byte, 0 | b' '));
        let digits = &digits[..end.unwrap_or(digits.len())];
        digits.iter().try_fold(0_u64, |value, &byte| match byte {
            b'0'..=b'7' => Ok(value << 3 | u64::from(byte - b'0')),
            _ => Err(malformed),
        })
    }

    fn entry(&self, kind: u8, data: &'a [u8], extended: &Extended<'a>) -> Result<Entry<'a>, Error> {
        let at = self.at;
        let own_path = Path {
            // GNU's own format keeps other things in the place of ustar's prefix.
            prefix: if &self.block[257..263] == b"ustar\0" {
                until_nul(&self.block[345..500])
            } else {
                b""
            },
            name: until_nul(&self.block[..100]),
        };
        let path = extended.path.map_or(own_path, Path::whole).check(at)?;
        let own_link = until_nul(&self.block[157..257]);
        let kind = match kind {
            b'S' => return Err(Error::Sparse { at }),
            // The format before ustar marks directories by the slash only.
            b'\0' | b'0' | b'7' if path.name.ends_with(b"/") => Kind::Directory,
            b'\0' | b'0' | b'7' => Kind::File(data),
            b'1' => Kind::HardLink(Path::whole(extended.link.unwrap_or(own_link)).check(at)?),
            b'5' => Kind::Directory,
            _ => Kind::Other,
        };
        let mode = self.number(100..108, "mode")?;
        let mtime = match extended.mtime {
            Some(mtime) => mtime,
            None => i64::try_from(self.number(136..148, "time")?).unwrap_or(0),
        };
        Ok(Entry {
            at,
            path,
            kind,
            mode: (mode & 0o777) as u32,
            mtime,
        })
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

fn decimal(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits)
        .ok()
        .filter(|digits| !digits.starts_with('+'))?
        .parse()
        .ok()
}
