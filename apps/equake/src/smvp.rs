//! The product of the symmetric sparse matrix, of which the upper triangle is stored, with a node vector.
//!
//! Each thread works on its rows of the matrix, but a stored block (i, j) adds to row j as well, which may be another
//! thread's. So each thread adds into a vector of its own and flags the nodes it added to; afterwards each thread sums
//! its nodes over the threads' vectors, in the order of the threads, which makes the result repeatable.

use crate::mesh::{Graph, Vec3};
use crate::store::{Block, OutOfMemory, Row, Store};
use crate::team::{Team, chunk, split_mut};
use std::ops::Range;

/// The threads' private vectors.
pub struct Workspace<R> {
    /// One vector for each thread, one after the other.
    pub vectors: Vec<R>,
    /// For each thread and node whether the thread added to the node.
    pub flags: Vec<u32>,
}

impl<R: Row> Workspace<R> {
    /// Vectors for the members of `team`, placed by `store`.
    pub fn new<S: Store<Row = R>>(
        store: &S,
        nodes: usize,
        team: &mut Team,
    ) -> Result<Self, OutOfMemory> {
        Ok(Self {
            vectors: store.private_vectors(nodes, team)?,
            flags: store.private_flags(nodes, team)?,
        })
    }
}

/// Computes `result` = `matrix` · `vector`.
pub fn product<B: Block, R: Row>(
    graph: &Graph,
    matrix: &[B],
    vector: &[R],
    result: &mut [R],
    work: &mut Workspace<R>,
    team: &mut Team,
) {
    let nodes = graph.rows();
    let threads = team.threads();
    let parts = work
        .vectors
        .chunks_mut(nodes)
        .zip(work.flags.chunks_mut(nodes))
        .collect();
    team.run_parts(parts, |member, (own, flags): (&mut [R], &mut [u32])| {
        clear(own, flags);
        multiply(
            graph,
            matrix,
            vector,
            chunk(nodes, threads, member),
            own,
            flags,
        );
    });
    let parts = split_mut(result, threads);
    let work = &*work;
    team.run_parts(parts, |member, part| {
        merge(work, chunk(nodes, threads, member), nodes, part);
    });
}

fn clear<R: Row>(own: &mut [R], flags: &mut [u32]) {
    for row in own {
        *row.get_mut() = [0.0; 3];
    }
    flags.fill(0);
}

/// The part of the product that the matrix rows `rows` contribute.
fn multiply<B: Block, R: Row>(
    graph: &Graph,
    matrix: &[B],
    vector: &[R],
    rows: Range<usize>,
    own: &mut [R],
    flags: &mut [u32],
) {
    for i in rows {
        let entries = graph.index[i] as usize..graph.index[i + 1] as usize;
        let from = *vector[i].get();
        let mut sum = [0.0; 3];
        add_product(&matrix[entries.start], &from, &mut sum);
        for entry in entries.start + 1..entries.end {
            let j = graph.cols[entry] as usize;
            let block = &matrix[entry];
            add_product(block, vector[j].get(), &mut sum);
            add_transposed(block, &from, own[j].get_mut());
            flags[j] = 1;
        }
        let to = own[i].get_mut();
        for d in 0..3 {
            to[d] += sum[d];
        }
        flags[i] = 1;
    }
}

/// `sum` += `block` · `v`.
fn add_product<B: Block>(block: &B, v: &Vec3, sum: &mut Vec3) {
    for (row, sum) in block.rows().iter().zip(sum) {
        let row = row.get();
        *sum += row[0] * v[0] + row[1] * v[1] + row[2] * v[2];
    }
}

/// `sum` += `block`ᵀ · `v`.
fn add_transposed<B: Block>(block: &B, v: &Vec3, sum: &mut Vec3) {
    let [a, b, c] = block.rows();
    let (a, b, c) = (a.get(), b.get(), c.get());
    for (d, sum) in sum.iter_mut().enumerate() {
        *sum += a[d] * v[0] + b[d] * v[1] + c[d] * v[2];
    }
}

/// Sums the threads' vectors for the nodes `range` into `part`.
fn merge<R: Row>(work: &Workspace<R>, range: Range<usize>, nodes: usize, part: &mut [R]) {
    for (i, to) in range.zip(part) {
        let mut sum = [0.0; 3];
        for at in (i..work.flags.len()).step_by(nodes) {
            if work.flags[at] != 0 {
                let add = work.vectors[at].get();
                for d in 0..3 {
                    sum[d] += add[d];
                }
            }
        }
        *to.get_mut() = sum;
    }
}

/// Floating-point operations of one product, counted as 18 for each stored block and another 18 for each block off the
/// diagonal, which is used twice.
pub fn flops(graph: &Graph) -> u64 {
    let (blocks, diagonal) = (graph.entries() as u64, graph.rows() as u64);
    18 * blocks + 18 * (blocks - diagonal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::generate::generate;
    use crate::store::{Boxed, Contiguous};

    /// A reproducible random number in [−1, 1).
    fn random(state: &mut u64) -> f64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Products of random vectors with a random matrix, and the same by a dense matrix.
    fn against_dense<S: Store>(store: &S, threads: usize) {
        let graph = generate(150).unwrap().graph;
        let n = graph.rows();
        let mut team = Team::new(threads, false).unwrap();
        let mut matrix = store.blocks(graph.entries(), &mut team).unwrap();
        let mut dense = vec![vec![0.0; 3 * n]; 3 * n];
        let mut state = 0x1234_5678_9abc_def1;
        for i in 0..n {
            for entry in graph.index[i] as usize..graph.index[i + 1] as usize {
                let j = graph.cols[entry] as usize;
                let mut block = [[0.0; 3]; 3];
                for a in 0..3 {
                    for b in 0..3 {
                        // A diagonal block must be symmetric itself.
                        if i != j || a <= b {
                            block[a][b] = random(&mut state);
                            dense[3 * i + a][3 * j + b] = block[a][b];
                            dense[3 * j + b][3 * i + a] = block[a][b];
                        }
                        if i == j && a > b {
                            block[a][b] = block[b][a];
                        }
                    }
                }
                matrix[entry].add(&block);
            }
        }
        let mut vector = store.vector(n, &mut team).unwrap();
        let mut result = store.vector(n, &mut team).unwrap();
        let mut work = Workspace::new(store, n, &mut team).unwrap();
        for _ in 0..3 {
            for row in &mut vector {
                *row.get_mut() = [(); 3].map(|()| random(&mut state));
            }
            product(&graph, &matrix, &vector, &mut result, &mut work, &mut team);
            for (i, row) in dense.iter().enumerate() {
                let expected: f64 = row
                    .iter()
                    .enumerate()
                    .map(|(j, k)| k * vector[j / 3].get()[j % 3])
                    .sum();
                let found = result[i / 3].get()[i % 3];
                assert!(
                    (found - expected).abs() < 1e-12,
                    "{threads} threads, row {i}"
                );
            }
        }
    }

    #[test]
    fn agrees_with_a_dense_product() {
        for threads in [1, 2, 3, 8, 200] {
            against_dense(&Boxed, threads);
            against_dense(&Contiguous { parallel: true }, threads);
            against_dense(&Contiguous { parallel: false }, threads);
        }
    }
}
