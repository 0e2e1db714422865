//! How the arrays are allocated and who touches them first: what decides where their pages live.

use crate::fem::element::Mat3;
use crate::mesh::Vec3;
use crate::team::{Team, split_mut};
use serde::Serialize;
use std::fmt;

/// The three ways to place the arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// As the serial original: every row of a node vector and every matrix block (with its three rows) is an allocation
    /// of its own, made and touched by the main thread.
    Rows,
    /// As the OpenMP original: contiguous arrays, touched first in a parallel loop over nodes or matrix entries. The
    /// private vector of each thread is touched in slices by all of them.
    Parallel,
    /// Contiguous arrays, touched first by the main thread.
    Serial,
}

impl Placement {
    /// All of them, in the order in which they are listed to users.
    pub const ALL: [Self; 3] = [Self::Rows, Self::Parallel, Self::Serial];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Parallel => "parallel",
            Self::Serial => "serial",
        }
    }
}

/// The memory does not suffice for an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes of the array.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes.div_ceil(1 << 20);
        write!(
            f,
            "there is not enough memory for an array of {mib} MiB; use a smaller mesh or fewer threads"
        )
    }
}

/// Three values of a node, in place or behind a pointer.
pub trait Row: Send + Sync {
    /// Whether each access loads a pointer first.
    const BOXED: bool;
    /// The values.
    fn get(&self) -> &Vec3;
    /// The values, to change.
    fn get_mut(&mut self) -> &mut Vec3;
}

impl Row for Vec3 {
    const BOXED: bool = false;
    fn get(&self) -> &Vec3 {
        self
    }
    fn get_mut(&mut self) -> &mut Vec3 {
        self
    }
}

impl Row for Box<Vec3> {
    const BOXED: bool = true;
    fn get(&self) -> &Vec3 {
        self
    }
    fn get_mut(&mut self) -> &mut Vec3 {
        self
    }
}

/// A 3 × 3 block of the matrix.
pub trait Block: Send + Sync {
    /// What a row of the block is.
    type Row: Row;
    /// The three rows.
    fn rows(&self) -> &[Self::Row; 3];
    /// The three rows, to change.
    fn rows_mut(&mut self) -> &mut [Self::Row; 3];

    /// Adds a matrix to the block.
    fn add(&mut self, matrix: &Mat3) {
        for (row, add) in self.rows_mut().iter_mut().zip(matrix) {
            let row = row.get_mut();
            for j in 0..3 {
                row[j] += add[j];
            }
        }
    }
}

impl Block for Mat3 {
    type Row = Vec3;
    fn rows(&self) -> &[Vec3; 3] {
        self
    }
    fn rows_mut(&mut self) -> &mut [Vec3; 3] {
        self
    }
}

impl Block for Box<[Box<Vec3>; 3]> {
    type Row = Box<Vec3>;
    fn rows(&self) -> &[Box<Vec3>; 3] {
        self
    }
    fn rows_mut(&mut self) -> &mut [Box<Vec3>; 3] {
        self
    }
}

/// A way to store the arrays.
pub trait Store: Sized {
    /// A row of a node vector.
    type Row: Row;
    /// A block of the matrix.
    type Block: Block;

    /// A node vector of zeros.
    fn vector(&self, nodes: usize, team: &mut Team) -> Result<Vec<Self::Row>, OutOfMemory>;
    /// One node vector for each thread, one after the other.
    fn private_vectors(&self, nodes: usize, team: &mut Team)
    -> Result<Vec<Self::Row>, OutOfMemory>;
    /// The flags that belong to them: one for each thread and node.
    fn private_flags(&self, nodes: usize, team: &mut Team) -> Result<Vec<u32>, OutOfMemory>;
    /// Matrix blocks of zeros.
    fn blocks(&self, count: usize, team: &mut Team) -> Result<Vec<Self::Block>, OutOfMemory>;
}

/// Contiguous arrays.
#[derive(Debug, Clone, Copy)]
pub struct Contiguous {
    /// Whether all threads touch their parts first, or the main thread everything.
    pub parallel: bool,
}

impl Contiguous {
    fn zeroed<T: dolmen::Zeroed>(&self, len: usize) -> Result<Vec<T>, OutOfMemory> {
        dolmen::try_zeroed(len).ok_or(OutOfMemory {
            bytes: len.saturating_mul(size_of::<T>()),
        })
    }

    /// Writes every element of `array`, which is `array.len() / len` arrays of `len`, each of them in slices by the
    /// threads that will own the slices' nodes, or everything by this thread.
    fn touch<T: Copy + Send + Sync>(&self, array: &mut [T], len: usize, zero: T, team: &mut Team) {
        // The compiler knows that the memory is zero, but not what writing zeros to it is good for.
        let array = std::hint::black_box(array);
        if !self.parallel {
            array.fill(zero);
        } else if len > 0 {
            for part in array.chunks_mut(len) {
                let threads = team.threads();
                team.run_parts(split_mut(part, threads), |_, slice| slice.fill(zero));
            }
        }
        std::hint::black_box(array);
    }
}

impl Store for Contiguous {
    type Row = Vec3;
    type Block = Mat3;

    fn vector(&self, nodes: usize, team: &mut Team) -> Result<Vec<Vec3>, OutOfMemory> {
        let mut vector = self.zeroed(nodes)?;
        self.touch(&mut vector, nodes, [0.0; 3], team);
        Ok(vector)
    }

    fn private_vectors(&self, nodes: usize, team: &mut Team) -> Result<Vec<Vec3>, OutOfMemory> {
        let mut vectors = self.zeroed(nodes.saturating_mul(team.threads()))?;
        self.touch(&mut vectors, nodes, [0.0; 3], team);
        Ok(vectors)
    }

    fn private_flags(&self, nodes: usize, team: &mut Team) -> Result<Vec<u32>, OutOfMemory> {
        let mut flags = self.zeroed(nodes.saturating_mul(team.threads()))?;
        self.touch(&mut flags, nodes, 0, team);
        Ok(flags)
    }

    fn blocks(&self, count: usize, team: &mut Team) -> Result<Vec<Mat3>, OutOfMemory> {
        let mut blocks = self.zeroed(count)?;
        self.touch(&mut blocks, count, [[0.0; 3]; 3], team);
        Ok(blocks)
    }
}

/// An allocation for every row.
#[derive(Debug, Clone, Copy)]
pub struct Boxed;

impl Boxed {
    /// A vector filled one by one, after asking whether about that much memory is there at all: single small
    /// allocations have no way to fail but to end the program.
    fn fill<T>(
        count: usize,
        bytes_each: usize,
        mut make: impl FnMut() -> T,
    ) -> Result<Vec<T>, OutOfMemory> {
        let bytes = count.saturating_mul(size_of::<T>() + bytes_each);
        let error = OutOfMemory { bytes };
        Vec::<u8>::new()
            .try_reserve_exact(bytes)
            .map_err(|_| error)?;
        let mut items = Vec::new();
        items.try_reserve_exact(count).map_err(|_| error)?;
        items.resize_with(count, &mut make);
        Ok(items)
    }
}

/// What a heap takes for an allocation of 24 bytes.
const ROW_BYTES: usize = 32;

impl Store for Boxed {
    type Row = Box<Vec3>;
    type Block = Box<[Box<Vec3>; 3]>;

    fn vector(&self, nodes: usize, _team: &mut Team) -> Result<Vec<Self::Row>, OutOfMemory> {
        Self::fill(nodes, ROW_BYTES, Box::default)
    }

    fn private_vectors(
        &self,
        nodes: usize,
        team: &mut Team,
    ) -> Result<Vec<Self::Row>, OutOfMemory> {
        Self::fill(
            nodes.saturating_mul(team.threads()),
            ROW_BYTES,
            Box::default,
        )
    }

    fn private_flags(&self, nodes: usize, team: &mut Team) -> Result<Vec<u32>, OutOfMemory> {
        Self::fill(nodes.saturating_mul(team.threads()), 0, || 0)
    }

    fn blocks(&self, count: usize, _team: &mut Team) -> Result<Vec<Self::Block>, OutOfMemory> {
        Self::fill(count, 4 * ROW_BYTES, Box::default)
    }
}
