//! What passes the check can be loaded by `hermit_entry`; what would make it panic does not pass.

use std::mem::MaybeUninit;
use std::panic::catch_unwind;

use dolmen_loader::elf::{Checked, check};
use hermit_entry::elf::{KernelObject, LoadedKernel};

const NOTE_AT: usize = 0x160;
const SYMBOLS_AT: usize = 0x180;
const RELOCATIONS_AT: usize = 0x1c8;
const DYNAMIC_AT: usize = 0x228;
const DATA_AT: usize = 0x258;
const SECTIONS_AT: usize = 0x298;
const FILE_BYTES: usize = SECTIONS_AT + 2 * 64;
const IMAGE_BYTES: usize = 0x1000;

fn put(file: &mut [u8], offset: usize, bytes: &[u8]) {
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn put_words(file: &mut [u8], offset: usize, words: &[u64]) {
    for (i, word) in words.iter().enumerate() {
        put(file, offset + i * 8, &word.to_le_bytes());
    }
}

/// A small relocatable program with everything that the loader looks at.
fn program() -> Vec<u8> {
    let mut file = vec![0; FILE_BYTES];
    put(&mut file, 0, b"\x7fELF\x02\x01\x01\xff");
    put(&mut file, 16, &[3, 0, 62, 0, 1]);
    put_words(&mut file, 24, &[0x300, 64, SECTIONS_AT as u64]);
    put(&mut file, 52, &[64, 0, 56, 0, 5, 0, 64, 0, 2, 0]);

    let mut segment = |index: usize, kind: u64, at: usize, bytes: usize, memory: usize, align| {
        let (at, bytes, memory) = (at as u64, bytes as u64, memory as u64);
        let header = [kind, at, at, at, bytes, memory, align];
        put_words(&mut file, 64 + index * 56, &header);
    };
    segment(0, 1, 0, SECTIONS_AT, 0x800, 4096);
    segment(1, 1, 0x900, 0, IMAGE_BYTES - 0x900, 4096);
    segment(2, 2, DYNAMIC_AT, 48, 48, 8);
    segment(3, 4, NOTE_AT, 24, 24, 4);
    segment(4, 7, DATA_AT, 8, 16, 8);
    // The second segment has no bytes in the file.
    put_words(&mut file, 64 + 56 + 8, &[0]);

    put(&mut file, NOTE_AT, &[7, 0, 0, 0, 1, 0, 0, 0, 0, 0x5a, 0, 0]);
    put(&mut file, NOTE_AT + 12, b"HERMIT\0\0\x04");
    // Symbol 1 is weak and undefined, symbol 2 lies at 0x123.
    put(&mut file, SYMBOLS_AT + 24 + 4, &[0x20]);
    put(&mut file, SYMBOLS_AT + 48 + 4, &[0x10, 0, 1, 0]);
    put_words(&mut file, SYMBOLS_AT + 48 + 8, &[0x123]);
    let at = DATA_AT as u64;
    let relocations = [
        [at, 8, 0x456],
        [at + 8, 2 << 32 | 1, 0x10],
        [at + 16, 2 << 32 | 6, 0],
        [at + 24, 1 << 32 | 6, 0],
    ];
    put_words(&mut file, RELOCATIONS_AT, relocations.as_flattened());
    let dynamic = [7, RELOCATIONS_AT as u64, 8, 96, 0, 0];
    put_words(&mut file, DYNAMIC_AT, &dynamic);
    put(&mut file, SECTIONS_AT + 64 + 4, &[11]);
    put_words(&mut file, SECTIONS_AT + 64 + 24, &[SYMBOLS_AT as u64, 72]);
    file
}

/// Calls `f` with the file at a multiple of 8.
fn aligned<R>(file: &[u8], f: impl FnOnce(&[u8]) -> R) -> R {
    let mut room = vec![0; file.len() + 8];
    let start = room.as_ptr().align_offset(8);
    room[start..start + file.len()].copy_from_slice(file);
    f(&room[start..start + file.len()])
}

fn load(file: &[u8], start: u64) -> (Vec<u8>, LoadedKernel) {
    aligned(file, |file| {
        let object = KernelObject::parse(file).unwrap();
        let mut memory = vec![MaybeUninit::new(0u8); object.mem_size()];
        let loaded = object.load_kernel(&mut memory, start);
        let memory = memory
            .into_iter()
            // SAFETY: Every byte was initialised above, and loading writes initialised ones.
            .map(|byte| unsafe { byte.assume_init() })
            .collect();
        (memory, loaded)
    })
}

fn sentence(file: &[u8]) -> String {
    aligned(file, check).unwrap_err().to_string()
}

#[test]
fn a_relocatable_program_is_loaded() {
    let file = program();
    let bytes = IMAGE_BYTES as u64;
    assert_eq!(aligned(&file, check), Ok(Checked { bytes, start: None }));
    let start = 0x40_0000;
    let (memory, loaded) = load(&file, start);
    let word = |at: usize| u64::from_le_bytes(memory[at..at + 8].try_into().unwrap());
    assert_eq!(word(DATA_AT), start + 0x456);
    assert_eq!(word(DATA_AT + 8), start + 0x133);
    assert_eq!(word(DATA_AT + 16), start + 0x123);
    assert_eq!(word(DATA_AT + 24), 0);
    assert_eq!(loaded.entry_point, start + 0x300);
    assert_eq!(
        loaded.load_info.kernel_image_addr_range,
        start..start + bytes
    );
}

#[test]
fn a_fixed_program_says_where_it_must_be() {
    let mut file = program();
    file[16] = 2;
    for segment in 0..2 {
        file[64 + segment * 56 + 16 + 3] = 1;
    }
    // Relocations are not applied, and not looked at: they are behind the addresses of before.
    put_words(&mut file, DYNAMIC_AT, &[0, 0, 0, 0]);
    file[64 + 4 * 56 + 16 + 3] = 1;
    file[24 + 3] = 1;
    let start = Some(0x100_0000);
    let bytes = IMAGE_BYTES as u64;
    assert_eq!(aligned(&file, check), Ok(Checked { bytes, start }));
    assert_eq!(load(&file, 0x100_0000).1.entry_point, 0x100_0300);
}

#[test]
fn each_refusal_is_a_sentence() {
    let with = |offset: usize, bytes: &[u8]| {
        let mut file = program();
        put(&mut file, offset, bytes);
        let sentence = sentence(&file);
        let prefix = "the application cannot be loaded: ";
        sentence.strip_prefix(prefix).unwrap().to_owned()
    };
    assert_eq!(with(0, b"\x7fELG"), "it is not an ELF file");
    assert_eq!(with(4, &[1]), "it is not a 64-bit program");
    assert_eq!(with(5, &[2]), "it is not little endian");
    assert_eq!(
        with(16, &[1]),
        "it is an object file or a core dump, not a program"
    );
    assert_eq!(with(18, &[183]), "it is not for x86-64");
    assert_eq!(with(24, &[0, 0x10]), "its entry point lies outside of it");
    assert_eq!(
        with(56, &[200]),
        "the file is truncated or its program headers are misplaced"
    );
    assert_eq!(
        with(60, &[200]),
        "the file is truncated or its section headers are misplaced"
    );
    assert_eq!(
        with(64 + 32, &[0xff, 0xff]),
        "the file is truncated: a segment lies behind its end"
    );
    assert_eq!(
        with(64 + 56 + 16, &[0, 1]),
        "its segments overlap or are not in order"
    );
    assert_eq!(
        with(64 + 16, &[0, 1]),
        "it can be relocated but does not start at address 0"
    );
    assert_eq!(
        with(64 + 40, &[1, 0]),
        "a segment is larger in the file than in memory"
    );
    assert_eq!(
        with(64 + 3 * 56, &[6]),
        "it has no notes, so it is not an application for Hermit or Dolmen"
    );
    assert_eq!(
        with(NOTE_AT + 8, &[1]),
        "it has no entry note, so it is not an application for Hermit or Dolmen"
    );
    assert_eq!(with(NOTE_AT + 4, &[0xff]), "its notes are malformed");
    assert_eq!(with(NOTE_AT, &[0]), "its notes are malformed");
    assert_eq!(with(NOTE_AT + 4, &[0]), "its notes are malformed");
    assert_eq!(with(DYNAMIC_AT, &[1]), "it needs shared libraries");
    assert_eq!(
        with(DYNAMIC_AT + 24, &[0xff, 0xff]),
        "its relocations are misplaced"
    );
    assert_eq!(
        with(RELOCATIONS_AT + 8, &[37]),
        "it has a relocation of an unknown kind"
    );
    assert_eq!(
        with(RELOCATIONS_AT, &[0xff, 0xff]),
        "a relocation lies outside of it or leads out of the address space"
    );
    assert_eq!(
        with(RELOCATIONS_AT + 24 + 12, &[9]),
        "a relocation refers to a symbol that there is not"
    );
    assert_eq!(
        with(SYMBOLS_AT + 24 + 4, &[0x10]),
        "it refers to an undefined symbol"
    );
    assert_eq!(
        with(DATA_AT + 24, &[1]),
        "the place of an undefined weak symbol is not zero"
    );
}

/// Passes the check, and then neither panics nor fails otherwise than by an error.
fn survives(file: &[u8]) -> bool {
    let Ok(checked) = aligned(file, check) else {
        return true;
    };
    let loads = checked.bytes < 1 << 20;
    catch_unwind(|| {
        aligned(file, |file| {
            if let Ok(object) = KernelObject::parse(file) {
                assert_eq!(object.mem_size() as u64, checked.bytes);
                assert_eq!(object.start_addr(), checked.start);
                if loads {
                    let mut memory = vec![MaybeUninit::new(0u8); object.mem_size()];
                    object.load_kernel(&mut memory, checked.start.unwrap_or(0x20_0000));
                }
            }
        });
    })
    .is_ok()
}

#[test]
fn cut_off_programs_are_refused() {
    let file = program();
    for cut in 0..file.len() {
        assert!(aligned(&file[..cut], check).is_err(), "{cut}");
    }
}

#[test]
fn changed_programs_never_make_the_loader_panic() {
    let file = program();
    for bit in 0..file.len() * 8 {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(survives(&changed), "bit {bit}");
    }
    let mut seed = 1u64;
    let mut next = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    for round in 0..50_000 {
        let mut changed = file.clone();
        for _ in 0..=next() % 3 {
            let at = next() % changed.len();
            changed[at] = [0, 1, 7, 0x7f, 0x80, 0xff, next() as u8][next() % 7];
        }
        assert!(survives(&changed), "round {round}");
    }
}
