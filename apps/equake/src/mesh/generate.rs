//! Generated meshes: a graded box, cut into tetrahedra.
//!
//! The box is 50 × 50 × 20 km and holds the hypocentre and, on its top, the epicentre. Its grid is finest at the
//! surface and under the epicentre and grows away from them, as meshes of sedimentary valleys do. Each cell is cut into
//! the six tetrahedra around its long diagonal, all cells the same way, so that an inner node has 14 neighbours.

use super::{Graph, Mesh, Vec3};
use crate::fem::HYPOCENTRE;

/// The smallest mesh that can be asked for: one cell.
pub const MIN_NODES: usize = 8;

/// The largest: its matrix entries can still be counted with 32 bits.
pub const MAX_NODES: usize = 500_000_000;

/// Lower corner of the box in km.
pub const LOW: Vec3 = [0.0, 0.0, -20.0];
/// Upper corner of the box in km.
pub const HIGH: Vec3 = [50.0, 50.0, 0.0];

/// The ratio of the largest to the smallest spacing along an axis.
const GRADING: f64 = 3.0;

/// The cuts of a cell: steps along the axes in each order, and whether the order is an odd permutation.
const CUTS: [([usize; 3], bool); 6] = [
    ([0, 1, 2], false),
    ([1, 2, 0], false),
    ([2, 0, 1], false),
    ([0, 2, 1], true),
    ([1, 0, 2], true),
    ([2, 1, 0], true),
];

/// A mesh of about `nodes` nodes (at least [`MIN_NODES`]), or `None` when the memory does not suffice.
pub fn generate(nodes: usize) -> Option<Mesh> {
    let size = grid_size(nodes.max(MIN_NODES));
    let axes = [0, 1, 2].map(|d| {
        let finest = if d == 2 { HIGH[2] } else { HYPOCENTRE[d] };
        graded(LOW[d], HIGH[d], finest, size[d])
    });
    let total = size.iter().product::<usize>();
    let cells = size.iter().map(|n| n - 1).product::<usize>();
    let mut coords = Vec::new();
    let mut elements: Vec<[u32; 4]> = Vec::new();
    coords.try_reserve_exact(total).ok()?;
    elements.try_reserve_exact(6 * cells).ok()?;
    for &z in &axes[2] {
        for &y in &axes[1] {
            coords.extend(axes[0].iter().map(|&x| [x, y, z]));
        }
    }
    let strides = [1, size[0], size[0] * size[1]];
    for z in 0..size[2] - 1 {
        for y in 0..size[1] - 1 {
            for x in 0..size[0] - 1 {
                let corner = x + y * strides[1] + z * strides[2];
                elements.extend(CUTS.iter().map(|cut| tetrahedron(corner, &strides, cut)));
            }
        }
    }
    // The graph is built from a list of all pairs; make sure of the memory before it takes it.
    Vec::<(u32, u32)>::new()
        .try_reserve_exact(total + 6 * elements.len())
        .ok()?;
    let graph = Graph::of_elements(total, &elements);
    Some(Mesh {
        coords,
        elements,
        graph,
    })
}

/// The corners of one of a cell's tetrahedra, in positive orientation.
fn tetrahedron(corner: usize, strides: &[usize; 3], (order, odd): &([usize; 3], bool)) -> [u32; 4] {
    let mut nodes = [corner as u32; 4];
    let mut at = corner;
    for (node, &axis) in nodes[1..].iter_mut().zip(order) {
        at += strides[axis];
        *node = at as u32;
    }
    if *odd {
        nodes.swap(2, 3);
    }
    nodes
}

/// Nodes along the three axes: among all grids of roughly cubic cells the one whose count comes nearest.
fn grid_size(nodes: usize) -> [usize; 3] {
    let volume = (0..3).map(|d| HIGH[d] - LOW[d]).product::<f64>();
    let spacing = libm::cbrt(volume / nodes as f64);
    let guess = [0, 1, 2].map(|d| ((HIGH[d] - LOW[d]) / spacing).round() as usize + 1);
    let around = |n: usize| n.saturating_sub(3).max(2)..=(n + 2).max(2);
    let mut best = (usize::MAX, [2; 3]);
    for nz in around(guess[2]) {
        for ny in around(guess[1]) {
            for nx in [ny, ny + 1] {
                let size = [nx, ny, nz];
                let miss = size.iter().product::<usize>().abs_diff(nodes);
                if miss < best.0 {
                    best = (miss, size);
                }
            }
        }
    }
    best.1
}

/// `count` points from `low` to `high`, closest together around `finest`: the spacing grows linearly with the distance
/// from it, up to [`GRADING`] times at the farther end.
fn graded(low: f64, high: f64, finest: f64, count: usize) -> Vec<f64> {
    let steps = count - 1;
    let far = (finest - low).max(high - finest);
    let spacing = |step: usize| {
        let at = low + (high - low) * (step as f64 + 0.5) / steps as f64;
        1.0 + (GRADING - 1.0) * (at - finest).abs() / far
    };
    let sum = (0..steps).map(spacing).sum::<f64>();
    let mut points = vec![low];
    let mut run = 0.0;
    for step in 0..steps {
        run += spacing(step);
        points.push(low + (high - low) * (run / sum));
    }
    points[steps] = high;
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_is_filled_by_positive_tetrahedra() {
        let mesh = generate(7000).unwrap();
        assert!(mesh.nodes().abs_diff(7000) <= 70, "{} nodes", mesh.nodes());
        let mut volume = 0.0;
        for element in &mesh.elements {
            let tetrahedron = mesh.tetrahedron(element).unwrap();
            assert!(tetrahedron.determinant() > 0.0);
            volume += tetrahedron.volume();
        }
        assert!((volume - 50_000.0).abs() < 1e-6 * 50_000.0, "{volume}");
        assert_eq!(mesh.bounds(), (LOW, HIGH));
    }

    #[test]
    fn inner_nodes_have_fourteen_neighbours_and_large_meshes_nearly_so_on_average() {
        let mesh = generate(100_000).unwrap();
        let graph = &mesh.graph;
        let mut degree = vec![0u32; mesh.nodes()];
        for row in 0..graph.rows() {
            for &col in &graph.cols[graph.index[row] as usize + 1..graph.index[row + 1] as usize] {
                degree[row] += 1;
                degree[col as usize] += 1;
            }
        }
        let inner = |c: &Vec3| (0..3).all(|d| c[d] > LOW[d] && c[d] < HIGH[d]);
        for (coords, &degree) in mesh.coords.iter().zip(&degree) {
            if inner(coords) {
                assert_eq!(degree, 14);
            }
        }
        let average = degree.iter().sum::<u32>() as f64 / degree.len() as f64;
        assert!((13.0..14.0).contains(&average), "{average}");
    }

    #[test]
    fn the_count_is_near_and_the_mesh_always_the_same() {
        for nodes in [8, 100, 1000, 7000, 30_169] {
            let mesh = generate(nodes).unwrap();
            let miss = mesh.nodes().abs_diff(nodes);
            assert!(miss <= 4 || miss * 50 <= nodes, "{nodes}: {}", mesh.nodes());
        }
        assert_eq!(generate(500), generate(500));
        assert_eq!(generate(1).unwrap().nodes(), 8);
    }

    #[test]
    fn the_grid_is_finest_at_the_hypocentre_and_grows_away_from_it() {
        let points = graded(0.0, 50.0, 32.0, 40);
        let spacing: Vec<f64> = points.windows(2).map(|p| p[1] - p[0]).collect();
        let largest = spacing.iter().copied().fold(0.0, f64::max);
        let smallest = spacing.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(largest / smallest > 2.0 && largest / smallest <= GRADING + 0.1);
        let epicentre = generate(7000).unwrap();
        let node = epicentre.nearest_node([HYPOCENTRE[0], HYPOCENTRE[1], 0.0]);
        assert_eq!(epicentre.coords[node][2], 0.0);
    }
}
