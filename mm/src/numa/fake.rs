//! `numa-fake=N`: a machine divided into nodes that it does not have.

use alloc::vec::Vec;

use super::{Topology, TopologyError};
use crate::frame::RamRange;
use crate::ids::{HUGE_BYTES, MAX_NODES, NodeId, PhysAddr};

/// Divides RAM, whatever nodes it was on, into `nodes` nodes of as equal a size as possible. The
/// borders lie between blocks of 2 MiB.
pub fn split_ram(ranges: &[RamRange], nodes: usize) -> Result<Vec<RamRange>, TopologyError> {
    if nodes == 0 || nodes > MAX_NODES {
        return Err(TopologyError::NodeCount(nodes));
    }
    let mut sorted: Vec<RamRange> = ranges.iter().copied().filter(|r| r.bytes > 0).collect();
    sorted.sort_by_key(|range| range.start.0);
    let total: u64 = sorted.iter().map(|range| range.bytes).sum();
    let huge = HUGE_BYTES as u64;

    // Walk the RAM block by block; a block goes to the node in whose share its first byte lies, so
    // that a node's size is off by less than a block.
    let mut split: Vec<RamRange> = Vec::new();
    let mut before = 0u64;
    let mut previous: Option<(u64, u8)> = None;
    for range in &sorted {
        let end = range.start.0 + range.bytes;
        let mut at = range.start.0;
        while at < end {
            let block = at / huge;
            let piece_end = ((block + 1) * huge).min(end);
            let node = match previous {
                // The rest of a block that another range began.
                Some((same, node)) if same == block => node,
                _ => (u128::from(before) * nodes as u128 / u128::from(total)) as u8,
            };
            previous = Some((block, node));
            match split.last_mut() {
                Some(last) if last.node.get() == node && last.start.0 + last.bytes == at => {
                    last.bytes += piece_end - at;
                }
                _ => split.push(RamRange {
                    start: PhysAddr(at),
                    bytes: piece_end - at,
                    node: NodeId::new(node),
                }),
            }
            before += piece_end - at;
            at = piece_end;
        }
    }
    let mut seen = [false; MAX_NODES];
    for range in &split {
        seen[range.node.index()] = true;
    }
    if seen[..nodes].iter().all(|&seen| seen) {
        Ok(split)
    } else {
        Err(TopologyError::TooFewBlocks {
            blocks: total.div_ceil(huge),
            nodes,
        })
    }
}

/// Divides `cpus` processors evenly over `nodes` nodes, in contiguous groups.
pub fn split_cpus(cpus: usize, nodes: usize) -> Vec<NodeId> {
    (0..cpus)
        .map(|cpu| NodeId::new((cpu * nodes / cpus) as u8))
        .collect()
}

/// The RAM and the topology of a machine that plays `nodes` nodes.
pub fn fake_nodes(
    ranges: &[RamRange],
    cpus: usize,
    nodes: usize,
) -> Result<(Vec<RamRange>, Topology), TopologyError> {
    let ram = split_ram(ranges, nodes)?;
    let topology = Topology::uniform(nodes, &split_cpus(cpus, nodes))?;
    Ok((ram, topology))
}
