//! Whether an application can be loaded.
//!
//! `hermit_entry::elf` parses and loads, but it indexes and asserts its way through the file: a
//! malformed one makes it panic. [`check`] looks at everything that it relies upon first, so that
//! every malformed file is refused with a sentence.

use core::fmt;

use dolmen_firmware::bytes::Fields;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: usize = 64;
const DYNAMIC_BYTES: usize = 16;
const RELOCATION_BYTES: usize = 24;
const SYMBOL_BYTES: usize = 24;
const NOTE_HEADER_BYTES: usize = 12;
/// Addresses and addends beyond this cannot be meant.
const MAX_ADDRESS: u64 = 1 << 47;

/// What is known of an application that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The memory that it needs, in bytes.
    pub bytes: u64,
    /// Where it must be, if it cannot be relocated.
    pub start: Option<u64>,
}

/// Why an application is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfError(&'static str);

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the application cannot be loaded: {}", self.0)
    }
}

impl core::error::Error for ElfError {}

type Result<T> = core::result::Result<T, ElfError>;

fn check_that(condition: bool, otherwise: &'static str) -> Result<()> {
    condition.then_some(()).ok_or(ElfError(otherwise))
}

/// Fixed-size records of `file` at `offset`. `hermit_entry` wants them aligned to `align`.
fn records<const N: usize>(
    file: &[u8],
    offset: u64,
    bytes: u64,
    align: usize,
) -> Option<&[[u8; N]]> {
    let offset = usize::try_from(offset).ok()?;
    let bytes = usize::try_from(bytes).ok()?;
    let records = file.get(offset..)?.get(..bytes)?;
    (offset.is_multiple_of(align)).then_some(records.as_chunks().0)
}

/// A program header.
struct Segment<'a> {
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
    content: &'a [u8],
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const NOTE: u32 = 4;
const TLS: u32 = 7;

fn segment<'a>(file: &'a [u8], header: &[u8; PROGRAM_HEADER_BYTES]) -> Option<Segment<'a>> {
    let header = header.as_slice();
    let mut segment = Segment {
        kind: header.u32(0)?,
        offset: header.u64(8)?,
        address: header.u64(16)?,
        file_bytes: header.u64(32)?,
        memory_bytes: header.u64(40)?,
        align: header.u64(48)?,
        content: &[],
    };
    if matches!(segment.kind, LOAD | DYNAMIC | NOTE | TLS) {
        let offset = usize::try_from(segment.offset).ok()?;
        let bytes = usize::try_from(segment.file_bytes).ok()?;
        segment.content = file.get(offset..)?.get(..bytes)?;
    }
    Some(segment)
}

/// Checks an application whose bytes start at a multiple of 8.
pub fn check(file: &[u8]) -> Result<Checked> {
    let field = |offset| file.u16(offset).unwrap_or_default();
    let table = |offset| file.u64(offset).unwrap_or_default();
    check_that(file.len() >= HEADER_BYTES, "the file is truncated")?;
    check_that(file.starts_with(b"\x7fELF"), "it is not an ELF file")?;
    check_that(file.u8(4) == Some(2), "it is not a 64-bit program")?;
    check_that(file.u8(5) == Some(1), "it is not little endian")?;
    check_that(field(18) == 62, "it is not for x86-64")?;
    let relocatable = match field(16) {
        2 => false,
        3 => true,
        _ => {
            return Err(ElfError(
                "it is an object file or a core dump, not a program",
            ));
        }
    };
    check_that(
        field(56) == 0 || usize::from(field(54)) == PROGRAM_HEADER_BYTES,
        "its program headers have an unknown size",
    )?;
    check_that(
        field(60) == 0 || usize::from(field(58)) == SECTION_HEADER_BYTES,
        "its section headers have an unknown size",
    )?;
    let headers = records::<PROGRAM_HEADER_BYTES>(
        file,
        table(32),
        u64::from(field(56)) * PROGRAM_HEADER_BYTES as u64,
        8,
    )
    .ok_or(ElfError(
        "the file is truncated or its program headers are misplaced",
    ))?;
    let sections = records::<SECTION_HEADER_BYTES>(
        file,
        table(40),
        u64::from(field(60)) * SECTION_HEADER_BYTES as u64,
        8,
    )
    .ok_or(ElfError(
        "the file is truncated or its section headers are misplaced",
    ))?;
    for header in headers {
        segment(file, header).ok_or(ElfError(
            "the file is truncated: a segment lies behind its end",
        ))?;
    }
    let segments = || headers.iter().filter_map(|header| segment(file, header));

    check_notes(segments().find(|s| s.kind == NOTE))?;
    let checked = check_segments(segments(), relocatable)?;
    let start = checked.start.unwrap_or(0);
    let entry = table(24);
    check_that(
        entry >= start && entry - start < checked.bytes,
        "its entry point lies outside of it",
    )?;
    if let Some(dynamic) = segments().find(|s| s.kind == DYNAMIC) {
        let symbols = symbols(file, sections)?;
        let relocations = relocations(file, &dynamic, &segments)?;
        if relocatable {
            for relocation in relocations {
                check_relocation(relocation, symbols, checked.bytes, &segments)?;
            }
        }
    } else {
        symbols(file, sections)?;
    }
    Ok(checked)
}

/// The notes must be walkable, and Hermit's must not be empty.
fn check_notes(notes: Option<Segment<'_>>) -> Result<()> {
    const MALFORMED: ElfError = ElfError("its notes are malformed");
    let notes = notes.ok_or(ElfError(
        "it has no notes, so it is not an application for Hermit or Dolmen",
    ))?;
    let align = match notes.align {
        align @ (4 | 8) if notes.offset.is_multiple_of(4) => align as usize,
        _ => return Err(MALFORMED),
    };
    let mut rest = notes.content;
    let mut found = false;
    while rest.len() >= NOTE_HEADER_BYTES {
        let word = |offset| rest.u32(offset).unwrap_or_default();
        let (name_bytes, content_bytes) = (word(0) as usize, word(4) as usize);
        let name = name_bytes
            .checked_sub(1)
            .and_then(|len| rest.get(NOTE_HEADER_BYTES..)?.get(..len))
            .ok_or(MALFORMED)?;
        core::str::from_utf8(name).map_err(|_| MALFORMED)?;
        let content = (NOTE_HEADER_BYTES + name_bytes).next_multiple_of(align);
        let end = (content + content_bytes).next_multiple_of(align);
        if name == b"HERMIT" && word(8) == 0x5a00 {
            check_that(content_bytes > 0, "its notes are malformed")?;
            found = true;
        }
        rest = rest.get(end..).ok_or(MALFORMED)?;
    }
    check_that(
        found,
        "it has no entry note, so it is not an application for Hermit or Dolmen",
    )
}

/// The loadable segments must ascend and must not overlap.
fn check_segments<'a>(
    segments: impl Iterator<Item = Segment<'a>> + Clone,
    relocatable: bool,
) -> Result<Checked> {
    let mut start = None;
    let mut end = 0;
    for load in segments.clone().filter(|s| s.kind == LOAD) {
        let base = *start.get_or_insert(load.address);
        check_that(
            load.address >= end && load.address >= base,
            "its segments overlap or are not in order",
        )?;
        check_that(
            load.file_bytes <= load.memory_bytes,
            "a segment is larger in the file than in memory",
        )?;
        end = load
            .address
            .checked_add(load.memory_bytes)
            .filter(|&end| end <= MAX_ADDRESS)
            .ok_or(ElfError("a segment lies outside of the address space"))?;
    }
    let start = start.ok_or(ElfError("it has nothing to load"))?;
    check_that(
        !relocatable || start == 0,
        "it can be relocated but does not start at address 0",
    )?;
    let bytes = end - start;
    check_that(bytes > 0, "it has nothing to load")?;
    if let Some(tls) = segments.clone().find(|s| s.kind == TLS) {
        // The zeroed part takes no room in the image.
        let inside = tls.file_bytes <= tls.memory_bytes
            && tls.memory_bytes <= MAX_ADDRESS
            && tls.address >= start
            && tls.address <= end
            && tls.file_bytes <= end - tls.address;
        check_that(inside, "its thread-local storage lies outside of it")?;
        check_that(
            tls.align == 0 || tls.align.is_power_of_two(),
            "its thread-local storage has an impossible alignment",
        )?;
    }
    Ok(Checked {
        bytes,
        start: (!relocatable).then_some(start),
    })
}

/// The dynamic symbols.
fn symbols<'a>(
    file: &'a [u8],
    sections: &[[u8; SECTION_HEADER_BYTES]],
) -> Result<&'a [[u8; SYMBOL_BYTES]]> {
    const DYNAMIC_SYMBOLS: u32 = 11;
    let section = sections
        .iter()
        .map(<[u8; SECTION_HEADER_BYTES]>::as_slice)
        .find(|section| section.u32(4) == Some(DYNAMIC_SYMBOLS));
    let Some(section) = section else {
        return Ok(&[]);
    };
    let field = |offset| section.u64(offset).unwrap_or_default();
    records(file, field(24), field(32), 8).ok_or(ElfError(
        "the file is truncated or its symbols are misplaced",
    ))
}

/// The relocations that the dynamic section names.
fn relocations<'a, I: Iterator<Item = Segment<'a>>>(
    file: &'a [u8],
    dynamic: &Segment<'_>,
    segments: &impl Fn() -> I,
) -> Result<&'a [[u8; RELOCATION_BYTES]]> {
    const NEEDED: u64 = 1;
    const RELA: u64 = 7;
    const RELA_BYTES: u64 = 8;
    const REL: u64 = 17;
    const REL_COUNT: u64 = 0x6fff_fffa;
    const MISPLACED: ElfError = ElfError("its relocations are misplaced");

    check_that(
        dynamic.offset.is_multiple_of(8),
        "its dynamic section is misplaced",
    )?;
    let (mut address, mut bytes) = (None, 0);
    for entry in dynamic.content.as_chunks::<DYNAMIC_BYTES>().0 {
        let tag = entry.u64(0).unwrap_or_default();
        let value = entry.u64(8).unwrap_or_default();
        match tag {
            NEEDED => return Err(ElfError("it needs shared libraries")),
            RELA => address = Some(value),
            RELA_BYTES => bytes = value,
            REL | REL_COUNT => return Err(ElfError("it has relocations of the wrong kind")),
            _ => {}
        }
    }
    let Some(address) = address else {
        check_that(bytes == 0, "its relocations are misplaced")?;
        return Ok(&[]);
    };
    let load = segments()
        .find(|s| s.kind == LOAD && address >= s.address && address - s.address < s.memory_bytes)
        .ok_or(MISPLACED)?;
    let inside = address - load.address;
    check_that(
        inside
            .checked_add(bytes)
            .is_some_and(|end| end <= load.file_bytes),
        "its relocations are misplaced",
    )?;
    records(file, load.offset + inside, bytes, 8).ok_or(MISPLACED)
}

fn check_relocation<'a, I: Iterator<Item = Segment<'a>>>(
    relocation: &[u8; RELOCATION_BYTES],
    symbols: &[[u8; SYMBOL_BYTES]],
    image_bytes: u64,
    segments: &impl Fn() -> I,
) -> Result<()> {
    const RELATIVE: u32 = 8;
    const ABSOLUTE: u32 = 1;
    const GLOBAL_DATA: u32 = 6;
    const OUTSIDE: &str = "a relocation lies outside of it or leads out of the address space";

    let field = |offset| relocation.u64(offset).unwrap_or_default();
    let place = field(0);
    let (kind, symbol) = (field(8) as u32, (field(8) >> 32) as usize);
    let addend = field(16).cast_signed();
    check_that(
        place.checked_add(8).is_some_and(|end| end <= image_bytes),
        OUTSIDE,
    )?;
    let mut value = 0;
    match kind {
        RELATIVE => {}
        ABSOLUTE | GLOBAL_DATA => {
            check_that(
                kind == ABSOLUTE || addend == 0,
                "a relocation of a symbol's address has an addend",
            )?;
            let symbol = symbols.get(symbol).ok_or(ElfError(
                "a relocation refers to a symbol that there is not",
            ))?;
            let weak = symbol.u8(4).unwrap_or_default() >> 4 == 2;
            let undefined = symbol.u16(6) == Some(0);
            if undefined {
                check_that(weak, "it refers to an undefined symbol")?;
                check_that(
                    is_zero(place, segments),
                    "the place of an undefined weak symbol is not zero",
                )?;
                return Ok(());
            }
            value = symbol.u64(8).unwrap_or_default().cast_signed();
        }
        _ => return Err(ElfError("it has a relocation of an unknown kind")),
    }
    let fits = MAX_ADDRESS
        .cast_signed()
        .checked_add(value)
        .and_then(|sum| sum.checked_add(addend))
        .is_some();
    check_that(fits, OUTSIDE)
}

/// Whether the eight bytes at `place` are zero once the segments are loaded.
fn is_zero<'a, I: Iterator<Item = Segment<'a>>>(place: u64, segments: &impl Fn() -> I) -> bool {
    segments().filter(|s| s.kind == LOAD).all(|load| {
        (place..place + 8).all(|address| {
            let byte = address
                .checked_sub(load.address)
                .and_then(|offset| load.content.get(usize::try_from(offset).ok()?));
            byte.is_none_or(|&byte| byte == 0)
        })
    })
}

#[cfg(test)]
mod tests;
