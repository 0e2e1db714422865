use alloc::vec;

use super::*;

/// Memory that starts at address 0.
struct Bytes(Vec<u8>);

impl PhysicalMemory for Bytes {
    fn read(&self, phys: u64, len: usize) -> Option<&[u8]> {
        self.0.get(usize::try_from(phys).ok()?..)?.get(..len)
    }
}

const INFO: u64 = 0x100;

fn put(memory: &mut [u8], at: usize, words: &[u32]) {
    for (i, word) in words.iter().enumerate() {
        memory[at + i * 4..][..4].copy_from_slice(&word.to_le_bytes());
    }
}

/// What QEMU says about a machine with 64 MiB and two modules.
fn qemu() -> Bytes {
    let mut memory = vec![0; 0x1000];
    let info = INFO as usize;
    put(&mut memory, info, &[1 << 2 | 1 << 3 | 1 << 6 | 1 << 9]);
    put(&mut memory, info + 16, &[0x300, 2, 0x400]);
    put(&mut memory, info + 44, &[3 * 24, 0x500]);
    put(&mut memory, info + 64, &[0x600]);
    memory[0x300..0x30d].copy_from_slice(b"/a/loader -- ");
    memory[0x30d..0x310].copy_from_slice("é\0".as_bytes());
    put(
        &mut memory,
        0x400,
        &[0x20_0000, 0x20_1234, 0, 0, 0x20_2000, 0x20_2001],
    );
    put(&mut memory, 0x500, &[20, 0, 0, 0x9_fc00, 0, 1]);
    put(&mut memory, 0x518, &[20, 0x10_0000, 0, 0x3ee_0000, 1, 1]);
    // A reserved range inside of the available one.
    put(&mut memory, 0x530, &[20, 0x300_0000, 0, 0x1000, 0, 2]);
    memory[0x600..0x605].copy_from_slice(b"qemu\0");
    Bytes(memory)
}

#[test]
fn reads_what_qemu_says() {
    let multiboot = Multiboot::read(&qemu(), INFO).unwrap();
    assert_eq!(
        multiboot.usable.as_slice(),
        [
            Range::new(0, 0x9_fc00),
            Range::new(0x10_0000, 0x300_0000),
            Range::new(0x300_1000, 0x1_03fe_0000)
        ]
    );
    assert_eq!(
        multiboot.modules,
        [
            Range::new(0x20_0000, 0x20_1234),
            Range::new(0x20_2000, 0x20_2001)
        ]
    );
    assert_eq!(multiboot.command_line, "-- é");
    assert_eq!(
        multiboot.occupied,
        [
            Range::with_len(INFO, 116),
            Range::with_len(0x500, 72),
            Range::with_len(0x600, 5),
            Range::with_len(0x300, 16),
            Range::with_len(0x400, 32)
        ]
    );
}

#[test]
fn only_qemu_puts_a_file_name_in_front() {
    let mut memory = qemu();
    memory.0[0x600] = b'Q';
    let line = Multiboot::read(&memory, INFO).unwrap().command_line;
    assert_eq!(line, "/a/loader -- é");
    let mut memory = qemu();
    memory.0[0x309] = 0;
    assert_eq!(Multiboot::read(&memory, INFO).unwrap().command_line, "");
}

#[test]
fn malformed_information_is_refused() {
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut memory = qemu();
        change(&mut memory.0);
        Multiboot::read(&memory, INFO).unwrap_err()
    };
    use MultibootError::*;
    assert_eq!(error(&|m| m.truncate(0x150)), Unreadable);
    assert_eq!(error(&|m| m[INFO as usize] ^= 1 << 6), NoMemoryMap);
    assert_eq!(error(&|m| m[0x500] = 19), BadMemoryMap);
    assert_eq!(error(&|m| m[0x530] = 21), BadMemoryMap);
    assert_eq!(error(&|m| m[0x30d] = 0xff), BadCommandLine);
    assert_eq!(error(&|m| m[INFO as usize + 23] = 0xff), Unreadable);
    assert_eq!(error(&|m| m[INFO as usize + 18] = 1), Unreadable);
}

#[test]
fn changed_information_never_panics() {
    for bit in 0..0x610 * 8 {
        let mut memory = qemu();
        memory.0[bit / 8] ^= 1 << (bit % 8);
        let _ = Multiboot::read(&memory, INFO);
    }
}
