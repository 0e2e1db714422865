use alloc::vec;
use alloc::vec::Vec;

use super::*;

const RSDP_AT: u64 = 0xf_59e0;
const TABLES_AT: u64 = 0x1ffe_21f0;

/// Pieces of memory; nothing else can be read.
pub(crate) struct Pieces(pub(crate) Vec<(u64, Vec<u8>)>);

impl PhysicalMemory for Pieces {
    fn read(&self, phys: u64, len: usize) -> Option<&[u8]> {
        self.0.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(phys.checked_sub(*start)?).ok()?;
            bytes.get(offset..)?.get(..len)
        })
    }
}

/// The tables of an emulated machine with 4 processors and 2 nodes.
pub(crate) fn q35() -> Pieces {
    let rsdp = include_bytes!("../../testdata/q35-rsdp.bin");
    let tables = include_bytes!("../../testdata/q35-tables.bin");
    Pieces(vec![
        (0, vec![0; 0x1000]),
        (0xe_0000, {
            let mut bios = vec![0; 0x2_0000];
            bios[(RSDP_AT - 0xe_0000) as usize..][..rsdp.len()].copy_from_slice(rsdp);
            bios
        }),
        (TABLES_AT, tables.to_vec()),
    ])
}

fn seal(bytes: &mut [u8], checksum: usize) {
    bytes[checksum] = 0;
    let sum = bytes.iter().fold(0u8, |sum, &b| sum.wrapping_add(b));
    bytes[checksum] = sum.wrapping_neg();
}

fn make_table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = vec![0; 36];
    table[..4].copy_from_slice(signature);
    table.extend_from_slice(body);
    let bytes = table.len() as u32;
    table[4..8].copy_from_slice(&bytes.to_le_bytes());
    seal(&mut table, 9);
    table
}

/// A second-version root pointer at 0x1000, an XSDT and the tables given.
fn machine(tables: &[Vec<u8>]) -> Pieces {
    let mut pieces = Vec::new();
    let mut xsdt = Vec::new();
    for (i, table) in tables.iter().enumerate() {
        let address = 0x1_0000_0000 + i as u64 * 0x1_0000;
        xsdt.extend_from_slice(&address.to_le_bytes());
        pieces.push((address, table.clone()));
    }
    pieces.push((0x2000, make_table(b"XSDT", &xsdt)));
    let mut rsdp = vec![0; 36];
    rsdp[..8].copy_from_slice(b"RSD PTR ");
    rsdp[15] = 2;
    rsdp[20] = 36;
    rsdp[24..32].copy_from_slice(&0x2000u64.to_le_bytes());
    seal(&mut rsdp[..20], 8);
    seal(&mut rsdp, 32);
    pieces.push((0x1000, rsdp));
    Pieces(pieces)
}

fn madt(entries: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![0, 0, 0xe0, 0xfe, 0, 0, 0, 0];
    body.extend(entries.concat());
    make_table(b"APIC", &body)
}

fn parse(tables: &[Vec<u8>]) -> Result<Acpi, AcpiError> {
    Acpi::parse(&machine(tables), 0x1000)
}

fn sentence(tables: &[Vec<u8>]) -> String {
    use alloc::string::ToString;
    parse(tables).unwrap_err().to_string()
}

use alloc::string::String;

const CPU_0: &[u8] = &[0, 8, 0, 0, 1, 0, 0, 0];

#[test]
fn reads_the_tables_of_an_emulated_machine() {
    let memory = q35();
    assert_eq!(find_rsdp(&memory), Some(RSDP_AT));
    let acpi = Acpi::parse(&memory, RSDP_AT).unwrap();
    assert_eq!(acpi.local_apic, 0xfee0_0000);
    let ids: Vec<u32> = acpi.cpus.iter().map(|c| c.apic_id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    assert!(acpi.cpus.iter().all(|c| c.enabled));
    let domains: Vec<u32> = acpi.cpu_affinity.iter().map(|c| c.domain).collect();
    assert_eq!(domains, [0, 0, 1, 1]);
    let memory: Vec<_> = acpi
        .memory_affinity
        .iter()
        .map(|m| (m.start, m.bytes, m.domain))
        .collect();
    assert_eq!(
        memory,
        [
            (0, 0xa_0000, 0),
            (0x10_0000, 0x7f0_0000, 0),
            (0x800_0000, 0x1800_0000, 1)
        ]
    );
    let distances = acpi.distances.unwrap();
    assert_eq!(distances.get(0, 1), Some(21));
    assert_eq!(distances.get(1, 1), Some(10));
    assert_eq!(distances.get(0, 2), None);
    assert_eq!(acpi.hpet, Some(0xfed0_0000));
    assert_eq!(acpi.fixed.pm_timer_port, Some(0x608));
    let reset = Reset {
        register: Register::Port(0xcf9),
        value: 0xf,
    };
    assert_eq!(acpi.fixed.reset, Some(reset));
}

#[test]
fn finds_the_root_pointer_in_the_extended_bios_data_area() {
    let mut memory = q35();
    memory.0[0].1[0x40e..0x410].copy_from_slice(&0x9fc0u16.to_le_bytes());
    let mut ebda = vec![0; 1024];
    ebda[16..36].copy_from_slice(include_bytes!("../../testdata/q35-rsdp.bin"));
    memory.0.push((0x9_fc00, ebda));
    assert_eq!(find_rsdp(&memory), Some(0x9_fc10));
    memory.0[3].1[20] ^= 1;
    assert_eq!(find_rsdp(&memory), Some(RSDP_AT));
    memory.0[1].1.fill(0);
    assert_eq!(find_rsdp(&memory), None);
}

#[test]
fn processors_of_all_kinds() {
    let acpi = parse(&[madt(&[
        CPU_0,
        &[0, 8, 1, 1, 0, 0, 0, 0],
        &[0, 8, 2, 2, 2, 0, 0, 0],
        &[0, 8, 3, 0xff, 1, 0, 0, 0],
        // The same processor once more, as x2APIC, and one that only an x2APIC can name.
        &[9, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &[9, 16, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0],
        &[5, 12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        &[42, 2],
    ])])
    .unwrap();
    let cpus: Vec<_> = acpi
        .cpus
        .iter()
        .map(|c| (c.apic_id, c.uid, c.enabled, c.online_capable))
        .collect();
    assert_eq!(
        cpus,
        [
            (0, 0, true, false),
            (2, 2, false, true),
            (256, 7, true, false)
        ]
    );
    assert_eq!(acpi.local_apic, 1 << 32);
    assert_eq!(acpi.distances, None);
    assert!(acpi.memory_affinity.is_empty());
}

#[test]
fn affinity_of_all_kinds() {
    let mut body = vec![0; 12];
    // Domain 0x04030201 in two parts, the lowest byte apart.
    body.extend([0, 16, 1, 9, 1, 0, 0, 0, 0, 2, 3, 4, 0, 0, 0, 0]);
    body.extend([0, 16, 1, 8, 0, 0, 0, 0, 0, 2, 3, 4, 0, 0, 0, 0]);
    body.extend([2, 24, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0]);
    body.extend([0; 8]);
    let memory = |flags: u8| {
        let mut entry = vec![1, 40, 5, 0, 0, 0, 0, 0];
        entry.extend(0x1000u64.to_le_bytes());
        entry.extend(0x2000u64.to_le_bytes());
        entry.extend([0, 0, 0, 0, flags, 0, 0, 0]);
        entry.extend([0; 8]);
        entry
    };
    body.extend([memory(0), memory(1), memory(7)].concat());
    let acpi = parse(&[madt(&[CPU_0]), make_table(b"SRAT", &body)]).unwrap();
    let cpus: Vec<_> = acpi
        .cpu_affinity
        .iter()
        .map(|c| (c.apic_id, c.domain))
        .collect();
    assert_eq!(cpus, [(9, 0x0403_0201), (256, 5)]);
    let memory: Vec<_> = acpi
        .memory_affinity
        .iter()
        .map(|m| (m.start, m.bytes, m.domain, m.hot_pluggable, m.non_volatile))
        .collect();
    assert_eq!(
        memory,
        [
            (0x1000, 0x2000, 5, false, false),
            (0x1000, 0x2000, 5, true, true)
        ]
    );
}

#[test]
fn malformed_tables_give_a_sentence() {
    assert_eq!(sentence(&[]), "there is no ACPI table APIC");
    assert_eq!(
        sentence(&[madt(&[&[0, 8, 0, 0, 1, 0, 0]])]),
        "the ACPI table APIC has a malformed entry at offset 44"
    );
    assert_eq!(
        sentence(&[madt(&[CPU_0, &[1, 0]])]),
        "the ACPI table APIC has a malformed entry at offset 52"
    );
    assert_eq!(
        sentence(&[madt(&[&[9, 8, 0, 0, 0, 0, 0, 0]])]),
        "the ACPI table APIC has a malformed entry at offset 44"
    );
    assert_eq!(
        sentence(&[make_table(b"APIC", &[])]),
        "the ACPI table APIC is too short (36 bytes)"
    );
    let mut broken = madt(&[CPU_0]);
    broken[40] ^= 1;
    assert_eq!(
        sentence(&[broken]),
        "the ACPI table APIC at 0x100000000 has a wrong checksum"
    );
    let mut long = madt(&[CPU_0]);
    long[4] += 1;
    assert_eq!(
        sentence(&[long]),
        "the ACPI table APIC at 0x100000000 lies outside of the readable memory"
    );
    let mut huge = madt(&[CPU_0]);
    huge[7] = 0xff;
    assert_eq!(
        sentence(&[huge]),
        "the ACPI table APIC claims to be larger than 16 MiB"
    );
    let slit = |n: u8, distances: &[u8]| {
        let body = [&[n, 0, 0, 0, 0, 0, 0, 0], distances].concat();
        sentence(&[madt(&[CPU_0]), make_table(b"SLIT", &body)])
    };
    assert_eq!(
        slit(2, &[10, 20, 20]),
        "the ACPI table SLIT is too short (47 bytes)"
    );
    assert_eq!(
        slit(2, &[10, 20, 20, 11]),
        "the ACPI table SLIT has a distance below 10, or one to itself other than 10"
    );
    assert_eq!(
        Acpi::parse(&machine(&[]), 0x1001),
        Err(AcpiError::BadRoot { address: 0x1001 })
    );
}

#[test]
fn cut_off_or_changed_tables_never_panic() {
    let good = q35();
    let tables = good.0[2].1.clone();
    for cut in 0..tables.len() {
        let mut memory = q35();
        memory.0[2].1.truncate(cut);
        assert!(Acpi::parse(&memory, RSDP_AT).is_err());
    }
    // Every bit, with checksums that are wrong and with checksums made right again.
    let starts: Vec<usize> = (0..tables.len() - 3)
        .filter(|&i| {
            [b"FACP", b"APIC", b"HPET", b"SRAT", b"SLIT", b"RSDT"]
                .iter()
                .any(|&name| tables[i..].starts_with(name))
        })
        .collect();
    assert_eq!(starts.len(), 6);
    let (mut refused, mut accepted) = (0, 0);
    for bit in 0..tables.len() * 8 {
        let mut memory = q35();
        memory.0[2].1[bit / 8] ^= 1 << (bit % 8);
        let _ = Acpi::parse(&memory, RSDP_AT);
        for &start in &starts {
            let bytes = &mut memory.0[2].1;
            let length = u32::from_le_bytes(*bytes[start + 4..].first_chunk().unwrap()) as usize;
            if (36..=bytes.len() - start).contains(&length) {
                seal(&mut bytes[start..start + length], 9);
            }
        }
        match Acpi::parse(&memory, RSDP_AT) {
            Ok(_) => accepted += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && accepted > 100, "{refused} {accepted}");
}
