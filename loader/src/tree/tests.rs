use dolmen_firmware::fdt::BootTree;

use super::*;

fn set(ranges: &[(u64, u64)]) -> RangeSet {
    ranges.iter().map(|&(s, e)| Range::new(s, e)).collect()
}

#[test]
fn the_application_reads_what_was_written() {
    let memory = set(&[(0, 0x9_f000), (0x10_0000, 0x3fe_0000)]);
    let kept = set(&[(0x10_0000, 0x19_0000), (0x40_0000, 0x52_6000)]);
    let tree = Tree {
        memory: &memory,
        kept: &kept,
        boot_args: "thp=never -- 'a b' é",
        archive: Some(Range::new(0x20_0000, 0x20_0800)),
        rsdp: Some(0xf_59e0),
    };
    let read = BootTree::parse(&tree.write().unwrap()).unwrap();
    assert_eq!(read.compatible, ["hermit,multiboot"]);
    let ranges: Vec<Range> = read.memory.iter().map(|m| m.range).collect();
    assert_eq!(ranges, memory.as_slice());
    assert_eq!(read.reservations, kept.as_slice());
    assert_eq!(read.bootargs, "thp=never -- 'a b' é");
    assert_eq!(read.initrd, tree.archive);
    assert_eq!(read.rsdp, tree.rsdp);
}

#[test]
fn what_there_is_not_is_left_out() {
    let tree = Tree {
        memory: &set(&[(0, 4096)]),
        kept: &RangeSet::new(),
        boot_args: "",
        archive: None,
        rsdp: None,
    };
    let read = BootTree::parse(&tree.write().unwrap()).unwrap();
    assert_eq!((read.initrd, read.rsdp), (None, None));
    assert_eq!(read.bootargs, "");
    assert!(read.reservations.is_empty());
}
