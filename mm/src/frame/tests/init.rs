use alloc::format;
use alloc::vec::Vec;

use super::super::InitError;
use super::*;

fn refused(ram: &[RamRange], cpus: usize) -> InitError {
    let topology = Topology::uniform(2, &split_cpus(4, 2)).unwrap();
    FrameAllocator::new(ram, &topology, cpus).err().unwrap()
}

#[test]
fn what_cannot_be_managed_is_refused_with_a_sentence() {
    let fine = ram(0, MIB, 0);
    let cases = [
        (refused(&[], 1), InitError::NoMemory, "no usable memory"),
        (
            refused(&[ram(4097, 8190, 0)], 1),
            InitError::NoMemory,
            "no usable memory",
        ),
        (refused(&[fine], 0), InitError::CpuCount(0), "0 processors"),
        (refused(&[fine], 5), InitError::CpuCount(5), "5 processors"),
        (
            refused(&[ram(0, MIB, 2)], 1),
            InitError::UnknownNode(node(2)),
            "NUMA node 2",
        ),
        (
            refused(&[fine, ram(MIB - 1, 9, 0)], 1),
            InitError::Overlap(PhysAddr(MIB - 1)),
            "overlap at 0xfffff",
        ),
        (
            refused(&[ram(u64::MAX - 5, 100, 0)], 1),
            InitError::BeyondAddressSpace(PhysAddr(u64::MAX - 5)),
            "beyond the address space",
        ),
        (
            refused(&[ram(0, 1 << 60, 0)], 1),
            InitError::BeyondAddressSpace(PhysAddr(0)),
            "beyond the address space",
        ),
    ];
    for (found, expected, words) in cases {
        assert_eq!(found, expected);
        assert!(format!("{found}").contains(words), "{found}");
    }
}

#[test]
fn only_whole_frames_inside_the_ranges_are_managed() {
    // Half frames at both ends, a hole of 5 frames, and a hole of many blocks.
    let frames = allocator(
        &[
            ram(0x9800, 0x10000, 0),
            ram(0x1e000, 3 * MIB, 0),
            ram(3 << 30, MIB, 0),
        ],
        1,
    );
    let expected = 0x0f + 768 + 256;
    assert_eq!(frames.total_frames(), expected);
    let mut all: Vec<u64> = core::iter::from_fn(|| frames.any(0, Order::BASE))
        .map(FrameId::get)
        .collect();
    all.sort_unstable();
    let ranges = [0x0a..0x19, 0x1e..0x1e + 768, (3 << 18)..(3 << 18) + 256];
    let wanted: Vec<u64> = ranges.into_iter().flatten().collect();
    assert_eq!(all, wanted);
    assert_eq!(frames.node_of(FrameId::new(0x19)), None);
    assert_eq!(frames.node_of(FrameId::new(0x09)), None);
    assert_eq!(frames.node_of(FrameId::new(3 << 18)), Some(node(0)));
    assert_eq!(frames.node_of(FrameId::new((3 << 18) + 256)), None);
    frames.check();
}

#[test]
fn a_block_on_a_border_belongs_to_the_node_that_has_most_of_it() {
    let border = 8 * MIB + 0x5000;
    let frames = allocator(&[ram(0, border, 0), ram(border, 8 * MIB, 1)], 2);
    // Node 0 loses the 5 frames behind 8 MiB.
    assert_eq!(frames.node_memory(node(0)).total_frames, 2048);
    assert_eq!(frames.node_memory(node(1)).total_frames, 2048);
    assert_eq!(frames.node_of(FrameId::new(2048)), None);
    assert_eq!(frames.node_of(FrameId::new(2053)), Some(node(1)));
    frames.check();
}

#[test]
fn metadata_is_a_small_part_of_memory_and_within_what_is_announced() {
    for (mib, cpus) in [(64, 1), (4096, 8), (1 << 20, 64)] {
        let ranges = [ram(MIB, mib * MIB / 2, 0), ram(1 << 42, mib * MIB / 2, 0)];
        let frames = allocator(&ranges, cpus);
        let blocks: usize = frames.nodes.iter().map(|node| node.blocks().len()).sum();
        let used = (blocks * size_of::<super::super::block::Block>()
            + (blocks / 64 + blocks / 4096 + 4) * 256
            + cpus * size_of::<super::super::cpu::Cpu>()) as u64;
        let announced = FrameAllocator::metadata_bytes(&ranges, cpus);
        assert!(used <= announced, "{used} {announced}");
        if mib > 64 && !cfg!(debug_assertions) {
            assert!(announced * 10_000 <= 2 * mib * MIB, "{announced} {mib}");
        }
    }
}
