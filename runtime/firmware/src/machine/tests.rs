use super::*;
use crate::acpi::tests::q35;
use crate::acpi::{AcpiCpu, CpuAffinity, MemoryAffinity, find_rsdp};
use crate::fdt::{TreeCpu, TreeMemory};

const MIB: u64 = 1 << 20;
const LIMITS: Limits = Limits {
    cpus: 256,
    nodes: 16,
};

fn tree(memory: &[(u64, u64)]) -> BootTree {
    BootTree {
        memory: memory
            .iter()
            .map(|&(start, end)| TreeMemory {
                range: Range::new(start, end),
                node: None,
            })
            .collect(),
        ..BootTree::default()
    }
}

fn acpi(cpus: impl IntoIterator<Item = u32>) -> Acpi {
    Acpi {
        cpus: cpus
            .into_iter()
            .map(|apic_id| AcpiCpu {
                apic_id,
                uid: apic_id,
                enabled: true,
                online_capable: false,
            })
            .collect(),
        ..Acpi::default()
    }
}

fn affinity(start: u64, end: u64, domain: u32) -> MemoryAffinity {
    MemoryAffinity {
        start,
        bytes: end - start,
        domain,
        hot_pluggable: false,
        non_volatile: false,
    }
}

fn range(start: u64, end: u64, node: u32) -> MemoryRange {
    MemoryRange {
        start,
        bytes: end - start,
        node,
    }
}

fn cpus(machine: &Machine) -> Vec<(u32, u32)> {
    machine.cpus.iter().map(|c| (c.apic_id, c.node)).collect()
}

#[test]
fn an_emulated_machine_with_two_nodes() {
    let memory = q35();
    let acpi = Acpi::parse(&memory, find_rsdp(&memory).unwrap()).unwrap();
    let mut tree = tree(&[(0, 0x9_f000), (MIB, 0x1ffe_0000)]);
    tree.reservations = vec![Range::new(0x10_0000, 0x19_3000)];
    tree.initrd = Some(Range::new(0x40_0000, 0x40_0001));
    let machine = Machine::describe(&tree, Some(&acpi), 2, LIMITS).unwrap();
    assert_eq!(cpus(&machine), [(2, 1), (0, 0), (1, 0), (3, 1)]);
    assert_eq!(
        machine.memory,
        [
            range(0x19_3000, 0x40_0000, 0),
            range(0x40_1000, 128 * MIB, 0),
            range(128 * MIB, 0x1ffe_0000, 1)
        ]
    );
    assert_eq!(machine.distances, [10, 21, 21, 10]);
    assert_eq!(machine.distance(0, 1), Some(21));
    assert_eq!(machine.distance(0, 2), None);
    assert!(machine.notes.is_empty());
}

#[test]
fn domains_become_dense_and_uncovered_memory_goes_to_node_0() {
    let mut acpi = acpi([0, 4]);
    acpi.cpu_affinity = vec![CpuAffinity {
        apic_id: 4,
        domain: 70,
    }];
    acpi.memory_affinity = vec![
        affinity(64 * MIB, 128 * MIB, 9),
        // Nothing is there: no node comes of it.
        affinity(1 << 40, 1 << 41, 20),
        affinity(32 * MIB, 64 * MIB, 5),
    ];
    let tree = tree(&[(16 * MIB, 192 * MIB)]);
    let machine = Machine::describe(&tree, Some(&acpi), 0, LIMITS).unwrap();
    assert_eq!(machine.nodes, 3);
    assert_eq!(
        machine.memory,
        [
            range(16 * MIB, 64 * MIB, 0),
            range(64 * MIB, 128 * MIB, 1),
            range(128 * MIB, 192 * MIB, 0)
        ]
    );
    assert_eq!(cpus(&machine), [(0, 0), (4, 2)]);
    assert_eq!(machine.distances, [10, 20, 20, 20, 10, 20, 20, 20, 10]);
}

#[test]
fn without_acpi_the_tree_tells_or_there_is_one_processor() {
    let mut tree = tree(&[(2 * MIB, 4 * MIB), (4 * MIB, 6 * MIB)]);
    let machine = Machine::describe(&tree, None, 3, LIMITS).unwrap();
    assert_eq!(cpus(&machine), [(3, 0)]);
    assert_eq!(machine.memory, [range(2 * MIB, 6 * MIB, 0)]);
    assert_eq!((machine.nodes, &machine.distances[..]), (1, &[10][..]));

    tree.memory[1].node = Some(8);
    tree.memory[0].node = Some(7);
    tree.cpus = (0..3)
        .map(|apic_id| TreeCpu {
            apic_id,
            node: Some(8),
        })
        .collect();
    let machine = Machine::describe(&tree, None, 1, LIMITS).unwrap();
    assert_eq!(cpus(&machine), [(1, 1), (0, 1), (2, 1)]);
    assert_eq!(
        machine.memory,
        [range(2 * MIB, 4 * MIB, 0), range(4 * MIB, 6 * MIB, 1)]
    );
}

#[test]
fn limits_are_kept_and_said() {
    let mut acpi = acpi(0..300);
    acpi.memory_affinity = (0..20)
        .map(|i| affinity(i * 2 * MIB, (i + 1) * 2 * MIB, i as u32))
        .collect();
    let tree = tree(&[(0, 40 * MIB)]);
    let machine = Machine::describe(&tree, Some(&acpi), 299, LIMITS).unwrap();
    assert_eq!(machine.cpus.len(), 256);
    assert_eq!(machine.cpus[0].apic_id, 299);
    assert_eq!(machine.nodes, 16);
    assert_eq!(machine.memory.last(), Some(&range(30 * MIB, 40 * MIB, 15)));
    assert_eq!(
        machine.notes,
        [
            "the machine has 300 processors, 256 are used",
            "the machine has 20 NUMA nodes, 16 are told apart"
        ]
    );
}

#[test]
fn no_memory_is_an_error() {
    for memory in [&[][..], &[(0, MIB)], &[(2 * MIB + 1, 2 * MIB + 4096)]] {
        assert_eq!(
            Machine::describe(&tree(memory), None, 0, LIMITS),
            Err(MachineError::NoMemory)
        );
    }
}

#[test]
fn the_booting_processor_counts_even_if_it_is_not_listed() {
    let machine = Machine::describe(&tree(&[(0, 4 * MIB)]), Some(&acpi([1])), 5, LIMITS).unwrap();
    assert_eq!(cpus(&machine), [(5, 0), (1, 0)]);
    assert_eq!(
        machine.notes,
        ["the firmware does not list the processor that booted (APIC 5)"]
    );
}

#[test]
fn fake_nodes_share_evenly_at_huge_page_borders() {
    let memory = [
        (MIB, 0x30_5000),
        (16 * MIB, 250 * MIB),
        (4096 * MIB, 5000 * MIB),
    ];
    for count in 1..=8 {
        let mut machine = Machine::describe(&tree(&memory), Some(&acpi(0..8)), 0, LIMITS).unwrap();
        let before = machine.memory_bytes();
        let count = NonZero::new(count).unwrap();
        machine.fake_nodes(count, LIMITS).unwrap();
        let nodes = count.get();
        assert_eq!(machine.nodes, nodes as usize);
        assert_eq!(machine.memory_bytes(), before);
        for node in 0..nodes {
            let bytes: u64 = machine
                .memory
                .iter()
                .filter(|m| m.node == node)
                .map(|m| m.bytes)
                .sum();
            assert!(
                bytes.abs_diff(before / u64::from(nodes)) <= 4 * MIB,
                "{bytes}"
            );
            let on_node = machine.cpus.iter().filter(|c| c.node == node).count();
            assert!(on_node.abs_diff(8 / nodes as usize) <= 1);
        }
        for pair in machine.memory.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            assert!(a.start + a.bytes <= b.start);
            if a.start + a.bytes == b.start {
                assert!(a.node != b.node && b.start.is_multiple_of(2 * MIB));
            }
        }
        assert_eq!(
            machine.distance(0, nodes - 1),
            Some(if nodes == 1 { 10 } else { 20 })
        );
    }
}

#[test]
fn fake_nodes_that_cannot_be() {
    let mut machine = Machine::describe(&tree(&[(0, 5 * MIB)]), None, 0, LIMITS).unwrap();
    let before = machine.clone();
    let mut sentence = |n| {
        let error = machine
            .fake_nodes(NonZero::new(n).unwrap(), LIMITS)
            .unwrap_err();
        assert_eq!(machine, before);
        error.to_string()
    };
    use alloc::string::ToString;
    assert_eq!(sentence(17), "numa-fake=17 asks for more than 16 nodes");
    assert_eq!(
        sentence(9),
        "4 MiB of usable memory are too few for numa-fake=9"
    );
}
