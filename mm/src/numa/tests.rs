use alloc::format;
use alloc::vec::Vec;

use super::*;

fn node(node: u8) -> NodeId {
    NodeId::new(node)
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
