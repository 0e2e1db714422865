//! The loaded image: kernel and application in one.

use core::ops::Range;

use dolmen_mm::ids::PAGE_BYTES;

use crate::mem::direct::{self, Access};

const PT_LOAD: u32 = 1;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PF_EXECUTE: u32 = 1;
const PF_WRITE: u32 = 2;
/// Bytes of an ELF header and of a program header, 64 bit.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

/// A part of the image and what it allows.
struct Part {
    kind: u32,
    flags: u32,
    range: Range<u64>,
}

/// Maps the image at the addresses where it was loaded, with what its program headers allow: no
/// page is writable and executable. An image that does not hold its own headers is mapped with
/// everything allowed.
pub(super) fn map(image: Range<u64>) {
    let page = PAGE_BYTES as u64;
    let mut unmapped = image.start;
    let parts = || parts(&image).into_iter().flatten();
    for part in parts().filter(|part| part.kind == PT_LOAD) {
        let access = match (part.flags & PF_WRITE != 0, part.flags & PF_EXECUTE != 0) {
            (true, true) => Access::All,
            (true, false) => Access::Write,
            (false, true) => Access::Execute,
            (false, false) => Access::Read,
        };
        let start = (part.range.start & !(page - 1)).max(unmapped);
        let end = part.range.end.next_multiple_of(page);
        if start >= end {
            continue;
        }
        // Relocated constants are read-only once the loader has written them.
        let relro = parts().find(|other| {
            other.kind == PT_GNU_RELRO
                && part.range.start <= other.range.start
                && other.range.start < part.range.end
        });
        let mut from = start;
        if let Some(relro) = relro
            && access == Access::Write
        {
            let constant_end = (relro.range.end & !(page - 1)).clamp(start, end);
            direct::map(from, from, constant_end - from, Access::Read);
            from = constant_end;
        }
        direct::map(from, from, end - from, access);
        unmapped = end;
    }
    let end = image.end.next_multiple_of(page);
    if unmapped == image.start {
        let start = image.start & !(page - 1);
        direct::map(start, start, end - start, Access::All);
    }
}

/// The program headers of the image, read from its own first page.
fn parts(image: &Range<u64>) -> Option<impl Iterator<Item = Part>> {
    let base = image.start;
    let bytes = usize::try_from(image.end - base).ok()?.min(PAGE_BYTES);
    let memory = core::ptr::with_exposed_provenance::<u8>(base as usize);
    // SAFETY: the loader has mapped the whole image, and nothing writes to its headers.
    let header = unsafe { core::slice::from_raw_parts(memory, bytes) };
    let word = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_le_bytes(*header.get(at..)?.first_chunk()?));
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = usize::try_from(word(32)?).ok()?;
    let entry_bytes = usize::from(half(54)?);
    let count = usize::from(half(56)?);
    if table < HEADER_BYTES || entry_bytes != PROGRAM_HEADER_BYTES {
        return None;
    }
    let table = header.get(table..table.checked_add(count * entry_bytes)?)?;
    let entries = || {
        table.chunks_exact(PROGRAM_HEADER_BYTES).map(|entry| {
            let word = |at: usize| {
                u64::from_le_bytes(*entry[at..].first_chunk().expect("within a program header"))
            };
            let kind_and_flags = word(0);
            (
                kind_and_flags as u32,
                (kind_and_flags >> 32) as u32,
                word(16),
                word(40),
            )
        })
    };
    // The first loaded part starts where the image does.
    let first = entries().find(|part| part.0 == PT_LOAD)?.2;
    Some(entries().map(move |(kind, flags, address, bytes)| Part {
        kind,
        flags,
        range: base + (address - first)..base + (address - first) + bytes,
    }))
}
