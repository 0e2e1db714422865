//! Tetrahedral meshes and the graph of the matrix that belongs to them.

pub mod generate;
pub mod pack;

use crate::fem::element::Tetrahedron;

/// A point or a vector in space.
pub type Vec3 = [f64; 3];

/// The six pairs of a tetrahedron's corners.
pub const PAIRS: [(usize, usize); 6] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];

/// A mesh of tetrahedra, coordinates in km, z upwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh {
    /// Where the nodes are.
    pub coords: Vec<Vec3>,
    /// The four corners of each element.
    pub elements: Vec<[u32; 4]>,
    /// The structure of the stiffness matrix.
    pub graph: Graph,
}

impl Mesh {
    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.coords.len()
    }

    /// The corners of an element.
    pub fn corners(&self, element: &[u32; 4]) -> [Vec3; 4] {
        element.map(|node| self.coords[node as usize])
    }

    /// The element's shape, or `None` if it has no volume.
    pub fn tetrahedron(&self, element: &[u32; 4]) -> Option<Tetrahedron> {
        Tetrahedron::new(self.corners(element))
    }

    /// The node nearest to a point; the first of several.
    pub fn nearest_node(&self, point: Vec3) -> usize {
        let distance =
            |p: &Vec3| -> f64 { (0..3).map(|d| (p[d] - point[d]) * (p[d] - point[d])).sum() };
        let mut best = (0, f64::INFINITY);
        for (node, coords) in self.coords.iter().enumerate() {
            let distance = distance(coords);
            if distance < best.1 {
                best = (node, distance);
            }
        }
        best.0
    }

    /// The lowest and the highest coordinates.
    pub fn bounds(&self) -> (Vec3, Vec3) {
        let mut bounds = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
        for coords in &self.coords {
            for d in 0..3 {
                bounds.0[d] = bounds.0[d].min(coords[d]);
                bounds.1[d] = bounds.1[d].max(coords[d]);
            }
        }
        bounds
    }
}

/// The upper triangle with diagonal of a symmetric sparse matrix, in compressed rows: the diagonal entry is the first
/// of its row, the others follow in ascending order of their columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// Where each row starts in `cols`, with one more element at the end.
    pub index: Vec<u32>,
    /// The column of each entry.
    pub cols: Vec<u32>,
}

/// Why a list of entries is no graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphError {
    /// An entry is there twice.
    Duplicate(u32, u32),
    /// A row lacks its diagonal entry.
    NoDiagonal(u32),
}

impl Graph {
    /// The graph of entries (row, column), in any order, each with row ≤ column < `nodes`.
    pub fn new(nodes: usize, mut entries: Vec<(u32, u32)>) -> Result<Self, GraphError> {
        if !entries.is_sorted() {
            entries.sort_unstable();
        }
        if let Some(pair) = entries.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(GraphError::Duplicate(pair[0].0, pair[0].1));
        }
        let mut index = Vec::with_capacity(nodes + 1);
        let mut next = 0;
        for row in 0..nodes as u32 {
            index.push(next as u32);
            if entries.get(next) != Some(&(row, row)) {
                return Err(GraphError::NoDiagonal(row));
            }
            next += entries[next..].iter().take_while(|e| e.0 == row).count();
        }
        index.push(next as u32);
        let cols = entries.into_iter().map(|(_, col)| col).collect();
        Ok(Self { index, cols })
    }

    /// The graph that joins all nodes that share an element.
    pub fn of_elements(nodes: usize, elements: &[[u32; 4]]) -> Self {
        let mut entries: Vec<(u32, u32)> = (0..nodes as u32).map(|node| (node, node)).collect();
        entries.reserve_exact(6 * elements.len());
        for element in elements {
            for (a, b) in PAIRS {
                entries.push(ordered(element[a], element[b]));
            }
        }
        entries.sort_unstable();
        entries.dedup();
        Self::new(nodes, entries).expect("sorted, without duplicates, with every diagonal entry")
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.index.len() - 1
    }

    /// The number of stored entries.
    pub fn entries(&self) -> usize {
        self.cols.len()
    }

    /// Which entry (row, col) is, found by walking along the row.
    pub fn find(&self, row: u32, col: u32) -> Option<usize> {
        let start = self.index[row as usize] as usize;
        let end = self.index[row as usize + 1] as usize;
        (start..end).find(|&entry| self.cols[entry] == col)
    }
}

/// A pair of nodes as (row, column) of the upper triangle.
pub fn ordered(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_sorted_and_complete() {
        let graph = Graph::new(3, vec![(0, 2), (2, 2), (0, 0), (1, 1), (0, 1)]).unwrap();
        assert_eq!(graph.index, [0, 3, 4, 5]);
        assert_eq!(graph.cols, [0, 1, 2, 1, 2]);
        assert_eq!(graph.find(0, 2), Some(2));
        assert_eq!(graph.find(1, 2), None);
        assert_eq!(
            Graph::new(2, vec![(0, 0), (0, 1), (0, 1), (1, 1)]),
            Err(GraphError::Duplicate(0, 1))
        );
        assert_eq!(
            Graph::new(2, vec![(0, 0), (0, 1)]),
            Err(GraphError::NoDiagonal(1))
        );
    }

    #[test]
    fn one_element_joins_its_corners() {
        let graph = Graph::of_elements(5, &[[4, 0, 2, 1]]);
        assert_eq!(graph.entries(), 5 + 6);
        assert_eq!(graph.find(3, 3), Some(graph.index[3] as usize));
        for (a, b) in [(0, 1), (0, 2), (0, 4), (1, 2), (1, 4), (2, 4)] {
            assert!(graph.find(a, b).is_some());
        }
    }
}
