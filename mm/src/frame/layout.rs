//! From a list of RAM ranges to blocks: which frames exist, and where a block's metadata is.

use alloc::vec::Vec;

use super::{InitError, RamRange};
use crate::ids::{BlockId, FRAMES_PER_BLOCK, FrameId, NodeId, PAGE_BYTES};
use crate::numa::Topology;

/// Physical addresses end here on every x86-64 processor.
const ADDRESS_END: u64 = 1 << 52;

const BLOCK: u64 = FRAMES_PER_BLOCK as u64;

/// Consecutive frames of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameRange {
    /// The first frame's number.
    pub(super) first: u64,
    /// The number behind the last frame's.
    pub(super) end: u64,
    /// The node.
    pub(super) node: NodeId,
}

impl FrameRange {
    /// The frames it shares with a block.
    fn in_block(&self, block: u64) -> u64 {
        let first = self.first.max(block * BLOCK);
        let end = self.end.min((block + 1) * BLOCK);
        end.saturating_sub(first)
    }
}

/// Consecutive blocks of one node, whose metadata is consecutive too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    first: u64,
    count: u64,
    /// The node.
    pub(super) node: NodeId,
    base: usize,
}

impl Span {
    /// The blocks.
    pub(super) fn first(&self) -> BlockId {
        BlockId::new(self.first)
    }

    /// The number of blocks.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// The index of the first block's metadata in its node.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// The index in its node of the block that holds `frame`.
    pub(super) fn index_of(&self, frame: FrameId) -> Option<usize> {
        let offset = frame.block().get().wrapping_sub(self.first);
        (offset < self.count).then(|| self.base + offset as usize)
    }

    /// The first frame of the block at an index in its node.
    pub(super) fn frame_of(&self, index: usize) -> Option<FrameId> {
        let offset = index.checked_sub(self.base)? as u64;
        (offset < self.count).then(|| BlockId::new(self.first + offset).first_frame())
    }
}

/// The frames of `ram`, sorted and joined, each block on one node only.
///
/// A block on the border of nodes belongs to the one that has most of its frames; the others'
/// frames in it stay unused.
pub(super) fn frames(ram: &[RamRange], topology: &Topology) -> Result<Vec<FrameRange>, InitError> {
    let page = PAGE_BYTES as u64;
    let mut sorted: Vec<&RamRange> = ram.iter().filter(|range| range.bytes > 0).collect();
    sorted.sort_by_key(|range| range.start.0);
    let mut ranges = Vec::with_capacity(sorted.len());
    let mut before = 0;
    for range in sorted {
        if range.node.index() >= topology.node_count() {
            return Err(InitError::UnknownNode(range.node));
        }
        let end = range.start.0.checked_add(range.bytes);
        let end = end.filter(|&end| end <= ADDRESS_END);
        let end = end.ok_or(InitError::BeyondAddressSpace(range.start))?;
        if range.start.0 < before {
            return Err(InitError::Overlap(range.start));
        }
        before = end;
        let (first, end) = (range.start.0.div_ceil(page), end / page);
        if first < end {
            ranges.push(FrameRange {
                first,
                end,
                node: range.node,
            });
        }
    }
    let mut kept: Vec<FrameRange> = Vec::with_capacity(ranges.len());
    for range in ranges.iter().filter_map(|range| trimmed(range, &ranges)) {
        match kept.last_mut() {
            Some(last) if last.node == range.node && last.end == range.first => {
                last.end = range.end;
            }
            _ => kept.push(range),
        }
    }
    if kept.is_empty() {
        return Err(InitError::NoMemory);
    }
    Ok(kept)
}

/// What is left of `range` without the parts in blocks of other nodes.
fn trimmed(range: &FrameRange, all: &[FrameRange]) -> Option<FrameRange> {
    let mut kept = *range;
    if node_of_block(range.first / BLOCK, all) != range.node {
        kept.first = (range.first / BLOCK + 1) * BLOCK;
    }
    if node_of_block((range.end - 1) / BLOCK, all) != range.node {
        kept.end = (range.end - 1) / BLOCK * BLOCK;
    }
    (kept.first < kept.end).then_some(kept)
}

fn node_of_block(block: u64, all: &[FrameRange]) -> NodeId {
    let mut frames = [0; crate::ids::MAX_NODES];
    for range in all {
        frames[range.node.index()] += range.in_block(block);
    }
    let nodes = (0..frames.len()).rev();
    NodeId::new(nodes.max_by_key(|&node| frames[node]).unwrap_or(0) as u8)
}

/// The spans that cover `frames`. A hole gets metadata, as blocks without RAM, where it is small
/// compared to what lies before it: frames are looked up by span, so spans should be few.
pub(super) fn spans(frames: &[FrameRange], nodes: usize) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for range in frames {
        let first = range.first / BLOCK;
        let end = range.end.div_ceil(BLOCK);
        match spans.last_mut() {
            Some(last)
                if last.node == range.node
                    && first.saturating_sub(last.first + last.count) <= last.count / 4 =>
            {
                last.count = end - last.first;
            }
            _ => spans.push(Span {
                first,
                count: end - first,
                node: range.node,
                base: 0,
            }),
        }
    }
    let mut next = alloc::vec![0; nodes];
    for span in &mut spans {
        span.base = next[span.node.index()];
        next[span.node.index()] += span.count();
    }
    spans
}
