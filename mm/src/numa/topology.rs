//! Nodes, their distances, and the nodes of processors.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::ids::{CpuId, MAX_CPUS, MAX_NODES, NodeId};

/// The distance of a node from itself, by definition of the SLIT.
pub const LOCAL_DISTANCE: u8 = 10;
/// The distance between nodes when the firmware gives none.
pub const REMOTE_DISTANCE: u8 = 20;

/// Why a topology was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TopologyError {
    /// There is no node, or there are more than [`MAX_NODES`].
    NodeCount(usize),
    /// There is no processor, or there are more than [`MAX_CPUS`].
    CpuCount(usize),
    /// The distance matrix has another number of entries than nodes squared.
    MatrixSize {
        /// Entries that the matrix has.
        entries: usize,
        /// Nodes that it should describe.
        nodes: usize,
    },
    /// A distance is out of the range that the SLIT allows: the local one must be 10, any other more.
    Distance {
        /// The row.
        from: NodeId,
        /// The column.
        to: NodeId,
        /// The value found there.
        distance: u8,
    },
    /// A processor is on a node that does not exist.
    CpuNode {
        /// The processor.
        cpu: CpuId,
        /// The node it claims.
        node: NodeId,
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NodeCount(n) => {
                write!(f, "{n} NUMA nodes: between 1 and {MAX_NODES} are supported")
            }
            Self::CpuCount(n) => {
                write!(f, "{n} processors: between 1 and {MAX_CPUS} are supported")
            }
            Self::MatrixSize { entries, nodes } => {
                write!(
                    f,
                    "the distance matrix of {nodes} NUMA nodes has {entries} entries"
                )
            }
            Self::Distance { from, to, distance } => write!(
                f,
                "the distance from NUMA node {} to node {} is {distance}, which is out of range",
                from.get(),
                to.get()
            ),
            Self::CpuNode { cpu, node } => write!(
                f,
                "processor {} is said to be on NUMA node {}, which does not exist",
                cpu.get(),
                node.get()
            ),
        }
    }
}

impl core::error::Error for TopologyError {}

/// Nodes, distances between them, and which node each processor is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    nodes: usize,
    distances: Box<[u8]>,
    node_of_cpu: Box<[NodeId]>,
    /// Row `n`: all nodes, by distance from `n` and then by number; `n` itself comes first.
    fallback: Box<[NodeId]>,
}

impl Topology {
    /// A topology of `nodes` nodes. `distances` is the SLIT's matrix in rows; `node_of_cpu` has one
    /// entry per processor.
    pub fn new(
        nodes: usize,
        distances: &[u8],
        node_of_cpu: &[NodeId],
    ) -> Result<Self, TopologyError> {
        if nodes == 0 || nodes > MAX_NODES {
            return Err(TopologyError::NodeCount(nodes));
        }
        if node_of_cpu.is_empty() || node_of_cpu.len() > MAX_CPUS {
            return Err(TopologyError::CpuCount(node_of_cpu.len()));
        }
        if distances.len() != nodes * nodes {
            return Err(TopologyError::MatrixSize {
                entries: distances.len(),
                nodes,
            });
        }
        for (index, &distance) in distances.iter().enumerate() {
            let (from, to) = (index / nodes, index % nodes);
            let valid = if from == to {
                distance == LOCAL_DISTANCE
            } else {
                distance > LOCAL_DISTANCE
            };
            if !valid {
                return Err(TopologyError::Distance {
                    from: NodeId::new(from as u8),
                    to: NodeId::new(to as u8),
                    distance,
                });
            }
        }
        for (cpu, &node) in node_of_cpu.iter().enumerate() {
            if node.index() >= nodes {
                return Err(TopologyError::CpuNode {
                    cpu: CpuId::new(cpu as u16),
                    node,
                });
            }
        }
        let mut fallback = Vec::with_capacity(nodes * nodes);
        for row in distances.chunks(nodes) {
            let mut order: Vec<NodeId> = (0..nodes).map(|n| NodeId::new(n as u8)).collect();
            order.sort_by_key(|node| row[node.index()]);
            fallback.extend(order);
        }
        Ok(Self {
            nodes,
            distances: distances.into(),
            node_of_cpu: node_of_cpu.into(),
            fallback: fallback.into(),
        })
    }

    /// A topology whose nodes are all [`REMOTE_DISTANCE`] from each other.
    pub fn uniform(nodes: usize, node_of_cpu: &[NodeId]) -> Result<Self, TopologyError> {
        if nodes > MAX_NODES {
            return Err(TopologyError::NodeCount(nodes));
        }
        let distances: Vec<u8> = (0..nodes * nodes)
            .map(|index| {
                if index / nodes == index % nodes {
                    LOCAL_DISTANCE
                } else {
                    REMOTE_DISTANCE
                }
            })
            .collect();
        Self::new(nodes, &distances, node_of_cpu)
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes
    }

    /// The number of processors.
    pub fn cpu_count(&self) -> usize {
        self.node_of_cpu.len()
    }

    /// All nodes, in order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes as u8).map(NodeId::new)
    }

    /// The distance from one node to another; 10 is local.
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.distances[from.index() * self.nodes + to.index()]
    }

    /// The node that `cpu` is on.
    pub fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.node_of_cpu[cpu.index()]
    }

    /// All nodes, nearest to `node` first (so `node` itself is first); equal distances by number.
    pub fn fallback_order(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.fallback[node.index() * self.nodes..][..self.nodes]
            .iter()
            .copied()
    }
}

/// Divides `cpus` processors evenly over `nodes` nodes, in contiguous groups.
pub fn split_cpus(cpus: usize, nodes: usize) -> Vec<NodeId> {
    (0..cpus)
        .map(|cpu| NodeId::new((cpu * nodes / cpus) as u8))
        .collect()
}
