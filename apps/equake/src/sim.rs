//! The simulation: assembly and time steps.

use crate::fem::boundary::Boundary;
use crate::fem::source::{Fault, mark_elements, slip_at};
use crate::fem::{DT, EPICENTRE, HYPOCENTRE, ROCK};
use crate::mesh::{Mesh, Vec3, ordered};
use crate::smvp::{self, Workspace};
use crate::store::{Block, OutOfMemory, Row, Store};
use crate::team::{Team, chunk, split_mut};
use std::time::{Duration, Instant};

/// A running simulation of M ü + C u̇ + K u = f(t) by central differences, M and C being diagonal.
pub struct Simulation<'m, S: Store> {
    /// The mesh.
    pub mesh: &'m Mesh,
    /// The stiffness matrix K, upper triangle.
    pub stiffness: Vec<S::Block>,
    /// Displacements of the next, the current and the previous step.
    pub displacement: [Vec<S::Row>; 3],
    /// The private vectors of the product.
    pub work: Workspace<S::Row>,
    mass: Vec<S::Row>,
    damping: Vec<S::Row>,
    /// What the slip, its first and its second derivative are multiplied with.
    source: [Vec<S::Row>; 3],
    velocity: Vec<S::Row>,
    epicentre: usize,
    hypocentre: usize,
    steps: u64,
    product_time: Duration,
}

impl<'m, S: Store> Simulation<'m, S> {
    /// Allocates the arrays, touches them first as `store` says, and assembles the matrices.
    pub fn new(mesh: &'m Mesh, store: &S, team: &mut Team) -> Result<Self, OutOfMemory> {
        let nodes = mesh.nodes();
        let mut vector = || store.vector(nodes, team);
        let displacement = [vector()?, vector()?, vector()?];
        let source = [vector()?, vector()?, vector()?];
        let (mass, damping, velocity) = (vector()?, vector()?, vector()?);
        let mut simulation = Self {
            mesh,
            stiffness: store.blocks(mesh.graph.entries(), team)?,
            displacement,
            work: Workspace::new(store, nodes, team)?,
            mass,
            damping,
            source,
            velocity,
            epicentre: mesh.nearest_node(EPICENTRE),
            hypocentre: mesh.nearest_node(HYPOCENTRE),
            steps: 0,
            product_time: Duration::ZERO,
        };
        simulation.assemble();
        Ok(simulation)
    }

    /// Adds up the elements' matrices.
    fn assemble(&mut self) {
        let mesh = self.mesh;
        let fault = Fault::new();
        let marks = mark_elements(mesh, self.hypocentre, &fault);
        let boundary = Boundary::new(mesh);
        let rayleigh = ROCK.damping_factor();
        for (element, mark) in mesh.elements.iter().zip(marks) {
            // Both sources of meshes have refused flat elements.
            let Some(shape) = mesh.tetrahedron(element) else {
                continue;
            };
            let mass = shape.corner_mass(&ROCK);
            let dashpots = boundary.damping(&ROCK, &mesh.corners(element));
            let damping = dashpots.map(|corner| corner.map(|c| c + rayleigh * mass));
            for (a, &node) in element.iter().enumerate() {
                let node = node as usize;
                add(&mut self.mass[node], [mass; 3]);
                add(&mut self.damping[node], damping[a]);
                for (b, &other) in element.iter().enumerate() {
                    if (a == b || node < other as usize)
                        && let Some(entry) = find(mesh, node as u32, other)
                    {
                        self.stiffness[entry].add(&shape.stiffness(&ROCK, a, b));
                    }
                }
            }
            if mark != 0
                && let Some(torn) = element.iter().position(|&n| n as usize == self.hypocentre)
            {
                let moved = fault.slip.map(|slip| 0.5 * f64::from(mark) * slip);
                for (a, &node) in element.iter().enumerate() {
                    let block = shape.stiffness(&ROCK, a, torn);
                    let force =
                        block.map(|row| row[0] * moved[0] + row[1] * moved[1] + row[2] * moved[2]);
                    add(&mut self.source[0][node as usize], force);
                }
                let node = self.hypocentre;
                add(
                    &mut self.source[1][node],
                    [0, 1, 2].map(|d| damping[torn][d] * moved[d]),
                );
                add(&mut self.source[2][node], moved.map(|m| mass * m));
            }
        }
    }

    /// Makes one time step.
    pub fn step(&mut self, team: &mut Team) {
        let slip = slip_at(self.steps as f64 * DT);
        let threads = team.threads();
        let [next, current, previous] = &mut self.displacement;
        let start = Instant::now();
        smvp::product(
            &self.mesh.graph,
            &self.stiffness,
            current,
            next,
            &mut self.work,
            team,
        );
        self.product_time += start.elapsed();
        let (mass, damping, source) = (&self.mass, &self.damping, &self.source);
        let (current, previous) = (&*current, &*previous);
        let nodes = self.mesh.nodes();
        let parts = split_mut(next, threads)
            .into_iter()
            .zip(split_mut(&mut self.velocity, threads))
            .collect();
        team.run_parts(
            parts,
            |member, (next, velocity): (&mut [S::Row], &mut [S::Row])| {
                let range = chunk(nodes, threads, member);
                for row in next.iter_mut() {
                    *row.get_mut() = row.get().map(|force| force * -(DT * DT));
                }
                for (i, row) in range.clone().zip(next.iter_mut()) {
                    let (m, c) = (mass[i].get(), damping[i].get());
                    let (now, before) = (current[i].get(), previous[i].get());
                    let [s0, s1, s2] = [0, 1, 2].map(|which| source[which][i].get());
                    let row = row.get_mut();
                    for d in 0..3 {
                        let force = s0[d] * slip[0] + s1[d] * slip[1] + s2[d] * slip[2];
                        row[d] += 2.0 * m[d] * now[d]
                            - (m[d] - DT / 2.0 * c[d]) * before[d]
                            - DT * DT * force;
                    }
                }
                for (i, row) in range.clone().zip(next.iter_mut()) {
                    let (m, c) = (mass[i].get(), damping[i].get());
                    let row = row.get_mut();
                    for d in 0..3 {
                        row[d] /= m[d] + DT / 2.0 * c[d];
                    }
                }
                for ((i, row), velocity) in range.zip(next.iter()).zip(velocity) {
                    let (after, before) = (row.get(), previous[i].get());
                    *velocity.get_mut() = [0, 1, 2].map(|d| (after[d] - before[d]) * (0.5 / DT));
                }
            },
        );
        // The next becomes the current, the current the previous, and the previous is free for the next.
        self.displacement.rotate_right(1);
        self.steps += 1;
    }

    /// The number of steps made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The time simulated so far, in s.
    pub fn time(&self) -> f64 {
        self.steps as f64 * DT
    }

    /// The time spent in products.
    pub fn product_time(&self) -> Duration {
        self.product_time
    }

    /// The displacements in cm at the epicentre and the hypocentre.
    pub fn displacements(&self) -> (Vec3, Vec3) {
        let current = &self.displacement[1];
        (
            *current[self.epicentre].get(),
            *current[self.hypocentre].get(),
        )
    }

    /// A hash over the bits of the current and previous displacements and of the velocities.
    pub fn checksum(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for vector in [&self.displacement[1], &self.displacement[2], &self.velocity] {
            for value in vector.iter().flat_map(|row| row.get()) {
                for byte in value.to_bits().to_le_bytes() {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
            }
        }
        hash
    }

    /// Bytes of all arrays and of the mesh, all of which the run has touched.
    pub fn bytes(&self) -> usize {
        let row = size_of::<S::Row>() + if S::Row::BOXED { size_of::<Vec3>() } else { 0 };
        let boxed = <S::Block as Block>::Row::BOXED;
        let block = size_of::<S::Block>()
            + if boxed {
                size_of::<[Box<Vec3>; 3]>() + size_of::<[Vec3; 3]>()
            } else {
                0
            };
        let mesh = self.mesh;
        size_of_val(&*mesh.coords)
            + size_of_val(&*mesh.elements)
            + size_of_val(&*mesh.graph.index)
            + size_of_val(&*mesh.graph.cols)
            + block * self.stiffness.len()
            + row * (9 * mesh.nodes() + self.work.vectors.len())
            + size_of_val(&*self.work.flags)
    }
}

/// The matrix entry of two nodes; an entry that is not there was refused with the mesh.
fn find(mesh: &Mesh, a: u32, b: u32) -> Option<usize> {
    let (row, col) = ordered(a, b);
    mesh.graph.find(row, col)
}

fn add<R: Row>(row: &mut R, values: Vec3) {
    for (to, value) in row.get_mut().iter_mut().zip(values) {
        *to += value;
    }
}

#[cfg(test)]
mod tests;
