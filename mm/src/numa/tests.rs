use alloc::format;
use alloc::vec::Vec;

use super::*;
use crate::frame::RamRange;
use crate::ids::PhysAddr;

const MIB: u64 = 1 << 20;

fn node(node: u8) -> NodeId {
    NodeId::new(node)
}

fn ram(start: u64, bytes: u64, on: u8) -> RamRange {
    RamRange {
        start: PhysAddr(start),
        bytes,
        node: node(on),
    }
}

#[test]
fn wrong_tables_are_refused_with_a_sentence() {
    let cpus = [node(0), node(1)];
    let good = [10, 20, 20, 10];
    assert!(Topology::new(2, &good, &cpus).is_ok());
    let cases = [
        (Topology::new(0, &[], &cpus), "0 NUMA nodes"),
        (Topology::new(17, &[10; 289], &cpus), "17 NUMA nodes"),
        (Topology::new(2, &good, &[]), "0 processors"),
        (Topology::new(2, &good, &[node(0); 257]), "257 processors"),
        (Topology::new(2, &good[..3], &cpus), "has 3 entries"),
        (
            Topology::new(2, &[11, 20, 20, 10], &cpus),
            "from NUMA node 0 to node 0 is 11",
        ),
        (
            Topology::new(2, &[10, 20, 10, 10], &cpus),
            "from NUMA node 1 to node 0 is 10",
        ),
        (
            Topology::new(2, &good, &[node(0), node(2)]),
            "processor 1 is said to be on NUMA node 2",
        ),
    ];
    for (result, words) in cases {
        let message = format!("{}", result.unwrap_err());
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn fallback_goes_by_distance_and_then_by_number() {
    #[rustfmt::skip]
    let distances = [
        10, 30, 20, 30,
        30, 10, 255, 20,
        20, 30, 10, 30,
        30, 20, 20, 10,
    ];
    let topology = Topology::new(4, &distances, &[node(3)]).unwrap();
    let order = |from| -> Vec<u8> {
        topology
            .fallback_order(node(from))
            .map(NodeId::get)
            .collect()
    };
    assert_eq!(order(0), [0, 2, 1, 3]);
    assert_eq!(order(1), [1, 3, 0, 2]);
    assert_eq!(order(2), [2, 0, 1, 3]);
    assert_eq!(order(3), [3, 1, 2, 0]);
    assert_eq!(topology.distance(node(1), node(2)), 255);
    assert_eq!(topology.node_of_cpu(CpuId::new(0)), node(3));
}

#[test]
fn first_touch_places_on_the_node_of_the_processor() {
    let topology = Topology::uniform(2, &split_cpus(4, 2)).unwrap();
    let place = |cpu| Policy::Local.node_for(&topology, CpuId::new(cpu), VirtAddr(0x1234));
    assert_eq!([0, 1, 2, 3].map(place), [0, 0, 1, 1].map(node));
}

#[test]
fn processors_are_divided_into_even_groups() {
    let groups = |cpus, nodes| -> Vec<u8> {
        split_cpus(cpus, nodes)
            .into_iter()
            .map(NodeId::get)
            .collect()
    };
    assert_eq!(groups(8, 4), [0, 0, 1, 1, 2, 2, 3, 3]);
    assert_eq!(groups(5, 2), [0, 0, 0, 1, 1]);
    assert_eq!(groups(1, 4), [0]);
}

#[test]
fn memory_is_divided_at_block_borders() {
    // 0.6 MiB, then a hole in the same block, then 61 MiB, then a hole of gigabytes.
    let ranges = [
        ram(0x1000, 0x9e000, 0),
        ram(4 << 30, 66 * MIB, 1),
        ram(0x10_0000, 61 * MIB + 0x5000, 0),
    ];
    let total: u64 = ranges.iter().map(|range| range.bytes).sum();
    for nodes in 1..=16 {
        let split = split_ram(&ranges, nodes).unwrap();
        let mut sizes = alloc::vec![0; nodes];
        for range in &split {
            sizes[range.node.index()] += range.bytes;
            // Every byte was one before.
            let inside = |old: &RamRange| {
                old.start.0 <= range.start.0
                    && range.start.0 + range.bytes <= old.start.0 + old.bytes
            };
            assert!(ranges.iter().any(inside), "{range:?}");
        }
        assert_eq!(sizes.iter().sum::<u64>(), total);
        let fair = total / nodes as u64;
        assert!(
            sizes.iter().all(|size| size.abs_diff(fair) <= 2 * MIB),
            "{sizes:?}"
        );
        for pair in split.windows(2) {
            let (one, other) = (pair[0], pair[1]);
            assert!(one.start.0 + one.bytes <= other.start.0);
            let same_block = (one.start.0 + one.bytes - 1) / (2 * MIB) == other.start.0 / (2 * MIB);
            assert!(!same_block || one.node == other.node, "{one:?} {other:?}");
        }
    }
}

#[test]
fn a_machine_plays_nodes() {
    let (ram, topology) = fake_nodes(&[ram(0, 64 * MIB, 0)], 4, 2).unwrap();
    assert_eq!(ram.len(), 2);
    assert_eq!(ram[1].start, PhysAddr(32 * MIB));
    assert_eq!(topology.node_count(), 2);
    assert_eq!(topology.node_of_cpu(CpuId::new(2)), node(1));
    assert_eq!(topology.distance(node(0), node(1)), REMOTE_DISTANCE);
}

#[test]
fn too_little_memory_for_the_nodes_is_refused() {
    let split = |bytes, nodes| split_ram(&[ram(0, bytes, 0)], nodes);
    assert!(split(8 * MIB, 4).is_ok());
    let message = format!("{}", split(3 * MIB, 4).unwrap_err());
    assert!(message.contains("too few for 4 NUMA nodes"), "{message}");
    assert!(split_ram(&[], 2).is_err());
    assert_eq!(split(8 * MIB, 17), Err(TopologyError::NodeCount(17)));
}
