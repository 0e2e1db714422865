//! The product against the reference outputs of the Spark98 kernels.
//!
//! The matrix is made of ones: every element adds 1 to all nine values of the block of each of its pairs of corners;
//! diagonal blocks stay zero. Times a vector of ones, the first component at each node is an integer that the
//! reference lists, one line `node value` for each node, counted from 1.

use crate::mesh::{Mesh, PAIRS, ordered};
use crate::smvp::{self, Workspace};
use crate::store::{Block, OutOfMemory, Row, Store};
use crate::team::Team;

/// The first component of the reference product at each node, computed with the simulation's product.
pub fn reference_product<S: Store>(
    mesh: &Mesh,
    store: &S,
    team: &mut Team,
) -> Result<Vec<f64>, OutOfMemory> {
    let nodes = mesh.nodes();
    let mut matrix = store.blocks(mesh.graph.entries(), team)?;
    let mut vector = store.vector(nodes, team)?;
    let mut result = store.vector(nodes, team)?;
    let mut work = Workspace::new(store, nodes, team)?;
    for element in &mesh.elements {
        for (a, b) in PAIRS {
            let (row, col) = ordered(element[a], element[b]);
            if let Some(entry) = mesh.graph.find(row, col) {
                matrix[entry].add(&[[1.0; 3]; 3]);
            }
        }
    }
    for row in &mut vector {
        *row.get_mut() = [1.0; 3];
    }
    smvp::product(&mesh.graph, &matrix, &vector, &mut result, &mut work, team);
    Ok(result.iter().map(|row| row.get()[0]).collect())
}

/// Compares a product with the text of a reference; gives the number of lines, or what differs first.
pub fn compare(product: &[f64], reference: &str) -> Result<usize, String> {
    let mut lines = 0;
    for (at, line) in reference.lines().enumerate() {
        let number = at + 1;
        let mut words = line.split_ascii_whitespace();
        let pair = (words.next(), words.next(), words.next());
        let (Some(node), Some(value), None) = pair else {
            return Err(format!(
                "line {number} of the reference is not a node and a value: '{line}'"
            ));
        };
        if node.parse() != Ok(number) {
            return Err(format!(
                "line {number} of the reference is for node '{node}', not {number}"
            ));
        }
        let Some(&found) = product.get(at) else {
            return Err(format!(
                "the reference has a line {number}, but the mesh has only {} nodes",
                product.len()
            ));
        };
        let expected: i64 = value.parse().map_err(|_| {
            format!("line {number} of the reference has no integer value: '{line}'")
        })?;
        if found != expected as f64 {
            return Err(format!(
                "line {number} differs: the reference has {expected}, the product is {found}"
            ));
        }
        lines = number;
    }
    if lines < product.len() {
        return Err(format!(
            "the reference ends after line {lines}, but the mesh has {} nodes",
            product.len()
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::pack;
    use crate::store::{Boxed, Contiguous};
    use std::path::PathBuf;

    /// A file of the Spark98 data, if it is there.
    pub(crate) fn spark98(name: &str) -> Option<Vec<u8>> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../../shared/data/spark98")
            .join(name);
        let data = std::fs::read(&path).ok();
        if data.is_none() {
            println!("skipped: {} is not there", path.display());
        }
        data
    }

    #[test]
    fn the_references_are_reproduced() {
        for name in ["tiny", "sf10"] {
            let (Some(mesh), Some(reference)) = (
                spark98(&format!("{name}.1.pack")),
                spark98(&format!("{name}.out")),
            ) else {
                return;
            };
            let mesh = pack::parse(&mesh).unwrap();
            let reference = String::from_utf8(reference).unwrap();
            for threads in [1, 4] {
                let mut team = Team::new(threads, false).unwrap();
                let plain =
                    reference_product(&mesh, &Contiguous { parallel: true }, &mut team).unwrap();
                let rows = reference_product(&mesh, &Boxed, &mut team).unwrap();
                assert_eq!(compare(&plain, &reference), Ok(mesh.nodes()));
                assert_eq!(plain, rows);
            }
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        let product = [3.0, 5.0];
        assert_eq!(compare(&product, "1 3\n2 5\n"), Ok(2));
        let error = |text| compare(&product, text).unwrap_err();
        assert!(error("1 3\n2 6\n").starts_with("line 2 differs: the reference has 6"));
        assert!(error("1 3\n").starts_with("the reference ends after line 1"));
        assert!(error("1 3\n2 5\n3 1\n").contains("only 2 nodes"));
        assert!(error("1 3\n3 5\n").contains("line 2"));
        assert!(error("1 x\n").contains("no integer"));
        assert!(error("1\n").contains("not a node and a value"));
    }
}
