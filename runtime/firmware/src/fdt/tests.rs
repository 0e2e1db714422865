use alloc::vec::Vec;

use vm_fdt::{FdtReserveEntry, FdtWriter};

use super::*;

/// A tree with everything in it.
fn full() -> Vec<u8> {
    let kept = [
        FdtReserveEntry::new(0x10_0000, 0x5000).unwrap(),
        FdtReserveEntry::new(0x40_0000, 0x20_0000).unwrap(),
    ];
    let mut fdt = FdtWriter::new_with_mem_reserv(&kept).unwrap();
    let root = fdt.begin_node("").unwrap();
    fdt.property_string("compatible", "hermit,multiboot")
        .unwrap();
    fdt.property_u32("#address-cells", 2).unwrap();
    fdt.property_u32("#size-cells", 2).unwrap();
    for (start, bytes, node) in [(0u64, 0x9_f000u64, 0), (0x10_0000, 0x3ef_0000, 1)] {
        let memory = fdt.begin_node(&format!("memory@{start:x}")).unwrap();
        fdt.property_array_u64("reg", &[start, bytes]).unwrap();
        fdt.property_u32("numa-node-id", node).unwrap();
        fdt.end_node(memory).unwrap();
    }
    let cpus = fdt.begin_node("cpus").unwrap();
    fdt.property_u32("#address-cells", 1).unwrap();
    fdt.property_u32("#size-cells", 0).unwrap();
    let cpu = fdt.begin_node("cpu@0").unwrap();
    fdt.property_u32("reg", 6).unwrap();
    fdt.property_u32("numa-node-id", 1).unwrap();
    fdt.end_node(cpu).unwrap();
    let cpu = fdt.begin_node("cpu@a").unwrap();
    fdt.end_node(cpu).unwrap();
    fdt.end_node(cpus).unwrap();
    let rsdp = fdt.begin_node("hermit,rsdp@f59e0").unwrap();
    fdt.property_array_u64("reg", &[0xf_59e0, 1]).unwrap();
    fdt.end_node(rsdp).unwrap();
    let tsc = fdt.begin_node("hermit,tsc").unwrap();
    fdt.property_u32("khz", 2_400_000).unwrap();
    fdt.end_node(tsc).unwrap();
    let chosen = fdt.begin_node("chosen").unwrap();
    fdt.property_string("bootargs", "thp=never -- a").unwrap();
    fdt.property_u64("linux,initrd-start", 0x123_4000).unwrap();
    fdt.property_u64("linux,initrd-end", 0x123_5600).unwrap();
    fdt.end_node(chosen).unwrap();
    fdt.end_node(root).unwrap();
    fdt.finish().unwrap()
}

use alloc::format;

#[test]
fn reads_everything() {
    let blob = full();
    assert_eq!(total_size(&blob), Ok(blob.len()));
    let tree = BootTree::parse(&blob).unwrap();
    assert_eq!(tree.compatible, ["hermit,multiboot"]);
    let memory = |start, end, node| TreeMemory {
        range: Range::new(start, end),
        node: Some(node),
    };
    assert_eq!(
        tree.memory,
        [memory(0, 0x9_f000, 0), memory(0x10_0000, 0x3ff_0000, 1)]
    );
    assert_eq!(
        tree.reservations,
        [
            Range::new(0x10_0000, 0x10_5000),
            Range::new(0x40_0000, 0x60_0000)
        ]
    );
    assert_eq!(tree.bootargs, "thp=never -- a");
    assert_eq!(tree.initrd, Some(Range::new(0x123_4000, 0x123_5600)));
    assert_eq!(tree.rsdp, Some(0xf_59e0));
    assert_eq!(tree.tsc_khz, Some(2_400_000));
    let cpus: Vec<_> = tree.cpus.iter().map(|c| (c.apic_id, c.node)).collect();
    assert_eq!(cpus, [(6, Some(1)), (10, None)]);
}

#[test]
fn bytes_behind_the_tree_do_not_matter() {
    let mut blob = full();
    let tree = BootTree::parse(&blob);
    blob.extend([0xff; 100]);
    assert_eq!(BootTree::parse(&blob), tree);
}

/// A tree of only a root with one node in it.
fn with_node(name: &str, fill: impl FnOnce(&mut FdtWriter)) -> Vec<u8> {
    let mut fdt = FdtWriter::new().unwrap();
    let root = fdt.begin_node("").unwrap();
    let node = fdt.begin_node(name).unwrap();
    fill(&mut fdt);
    fdt.end_node(node).unwrap();
    fdt.end_node(root).unwrap();
    fdt.finish().unwrap()
}

#[test]
fn malformed_trees_give_a_sentence() {
    let sentence = |blob: &[u8]| BootTree::parse(blob).unwrap_err().to_string();
    assert_eq!(
        sentence(&[0; 64]),
        "there is no device tree where the loader says it is"
    );
    let blob = full();
    assert_eq!(
        sentence(&blob[..blob.len() - 1]),
        "the device tree is malformed: it is shorter than its header says"
    );
    let blob = with_node("chosen", |fdt| {
        fdt.property_u64("linux,initrd-start", 4096).unwrap();
    });
    assert_eq!(
        sentence(&blob),
        "the device tree's property 'linux,initrd-end' of 'chosen' is malformed"
    );
    let blob = with_node("memory@0", |fdt| {
        fdt.property_array_u32("reg", &[1, 2, 3, 4, 5]).unwrap();
    });
    assert_eq!(
        sentence(&blob),
        "the device tree's property 'reg' of 'memory@0' is malformed"
    );
    // Two address cells and one size cell are the default; the range must not wrap around.
    let blob = with_node("memory@0", |fdt| {
        fdt.property_array_u32("reg", &[u32::MAX, u32::MAX, 2])
            .unwrap();
    });
    assert_eq!(
        sentence(&blob),
        "the device tree's property 'reg' of 'memory@0' is malformed"
    );
}

#[test]
fn cut_off_or_changed_trees_never_panic() {
    let blob = full();
    for cut in 0..blob.len() {
        assert!(BootTree::parse(&blob[..cut]).is_err());
        // The same with a header that agrees.
        let mut short = blob[..cut].to_vec();
        if let Some(size) = short.get_mut(4..8) {
            size.copy_from_slice(&(cut as u32).to_be_bytes());
        }
        let _ = BootTree::parse(&short);
    }
    let (mut refused, mut accepted) = (0, 0);
    for bit in 0..blob.len() * 8 {
        let mut changed = blob.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        match BootTree::parse(&changed) {
            Ok(_) => accepted += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && accepted > 100, "{refused} {accepted}");
}
