//! How many of the product's memory accesses go to another node than the thread's: counted, not sampled.
//!
//! After the run, the walk of [`crate::smvp::product`] is repeated without the arithmetic, and each access is credited
//! to the node where the page of its address lives. An access is one load or store of one element of an array:
//! eight bytes of a vector or a matrix block, four bytes of the index, the columns and the flags; in the placement
//! `rows` also each load of a pointer to a row or a block. For thread t, with the rows that are t's:
//!
//! - clearing: for each node three stores into t's private vector and one into its flags;
//! - each matrix row i: two loads of the index; the three values of the vector at i; the nine of the diagonal block;
//!   for each further entry its column, nine values of its block, three of the vector at the column, three loads and
//!   three stores of t's private vector at the column, one store of a flag; in the end three loads and three stores of
//!   the private vector at i and one store of a flag;
//! - the merge: for each node that is t's, one load of each thread's flag, three loads of the private vector of each
//!   thread whose flag is set, three stores of the result.
//!
//! A row, a column's row or a block that is used counts one pointer load for each of its pointers where there are any.
//! Loads that the compiler keeps in registers or the cache answers count all the same: what is counted is the
//! algorithm, so that the figure is the same wherever it runs. The three displacement vectors take turns as the
//! product's input and output; each turn is counted with the number of steps that used it.

use crate::mesh::Vec3;
use crate::sim::Simulation;
use crate::store::{Block, Row, Store};
use crate::team::{Team, chunk};
use dolmen::PAGE_BYTES;
use std::cell::Cell;

/// What the audit found, over all products of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Audit {
    /// All accesses.
    pub total: u64,
    /// Accesses to pages of another node than the thread's.
    pub remote: u64,
    /// Accesses to pages whose node is not known; not counted as remote.
    pub unplaced: u64,
}

impl Audit {
    /// The share of remote accesses.
    pub fn remote_share(&self) -> f64 {
        if self.total == 0 {
            0.0
        } else {
            self.remote as f64 / self.total as f64
        }
    }

    fn add(&mut self, other: Self, times: u64) {
        self.total += other.total * times;
        self.remote += other.remote * times;
        self.unplaced += other.unplaced * times;
    }
}

/// Counts the accesses of all products of a simulation that has run.
pub fn audit<S: Store>(simulation: &Simulation<'_, S>, team: &mut Team) -> Audit {
    let pages = Pages::of(simulation);
    let threads = team.threads();
    let steps = simulation.steps();
    let shares = team.map(|member| {
        let mut audit = Audit::default();
        let walk = Walk {
            simulation,
            counter: Counter::new(&pages, dolmen::current_node()),
            member,
            threads,
        };
        audit.add(walk.fixed_part(), steps);
        for back in 0..steps.min(3) {
            // The vectors of the step `back + 1` steps ago: each step since has moved them one place.
            let vectors = |place: usize| &simulation.displacement[(place + back as usize + 1) % 3];
            let times = (steps - back).div_ceil(3);
            audit.add(walk.vector_part(vectors(1), vectors(0)), times);
        }
        audit
    });
    let mut sum = Audit::default();
    for share in shares {
        sum.add(share, 1);
    }
    sum
}

/// One thread's walk.
struct Walk<'a, 'm, S: Store> {
    simulation: &'a Simulation<'m, S>,
    counter: Counter<'a>,
    member: usize,
    threads: usize,
}

impl<S: Store> Walk<'_, '_, S> {
    /// The accesses to everything but the product's input and output.
    fn fixed_part(&self) -> Audit {
        let (counter, graph) = (&self.counter, &self.simulation.mesh.graph);
        let work = &self.simulation.work;
        let nodes = graph.rows();
        let mine = self.member * nodes..(self.member + 1) * nodes;
        let (own, flags) = (&work.vectors[mine.clone()], &work.flags[mine]);
        for (row, flag) in own.iter().zip(flags) {
            counter.row(row, 3);
            counter.element(flag);
        }
        for i in chunk(nodes, self.threads, self.member) {
            counter.element(&graph.index[i]);
            counter.element(&graph.index[i + 1]);
            let entries = graph.index[i] as usize..graph.index[i + 1] as usize;
            counter.block(&self.simulation.stiffness[entries.start]);
            for entry in entries.start + 1..entries.end {
                counter.element(&graph.cols[entry]);
                counter.block(&self.simulation.stiffness[entry]);
                let j = graph.cols[entry] as usize;
                counter.row(&own[j], 6);
                counter.element(&flags[j]);
            }
            counter.row(&own[i], 6);
            counter.element(&flags[i]);
            for at in (i..work.flags.len()).step_by(nodes) {
                counter.element(&work.flags[at]);
                if work.flags[at] != 0 {
                    counter.row(&work.vectors[at], 3);
                }
            }
        }
        counter.take()
    }

    /// The accesses to the product's input and output.
    fn vector_part(&self, input: &[S::Row], output: &[S::Row]) -> Audit {
        let (counter, graph) = (&self.counter, &self.simulation.mesh.graph);
        for i in chunk(graph.rows(), self.threads, self.member) {
            counter.row(&input[i], 3);
            let entries = graph.index[i] as usize + 1..graph.index[i + 1] as usize;
            for &col in &graph.cols[entries] {
                counter.row(&input[col as usize], 3);
            }
            counter.row(&output[i], 3);
        }
        counter.take()
    }
}

/// Credits accesses to nodes.
struct Counter<'a> {
    pages: &'a Pages,
    node: u32,
    counts: Cell<Audit>,
}

impl<'a> Counter<'a> {
    fn new(pages: &'a Pages, node: u32) -> Self {
        Self {
            pages,
            node,
            counts: Cell::default(),
        }
    }

    fn take(&self) -> Audit {
        self.counts.take()
    }

    fn count(&self, address: usize, times: u64) {
        let mut counts = self.counts.get();
        counts.total += times;
        match self.pages.home(address) {
            Some(node) if node != self.node => counts.remote += times,
            Some(_) => {}
            None => counts.unplaced += times,
        }
        self.counts.set(counts);
    }

    fn element<T>(&self, element: &T) {
        self.count(std::ptr::from_ref(element).addr(), 1);
    }

    /// `accesses` (a multiple of 3) to the three values of a row, and the pointer in front of them.
    fn row<R: Row>(&self, row: &R, accesses: u64) {
        if R::BOXED {
            self.element(row);
        }
        let values = row.get();
        let (first, last) = (address(&values[0]), address(&values[2]));
        if first / PAGE_BYTES == last / PAGE_BYTES {
            self.count(first, accesses);
        } else {
            for value in values {
                self.count(address(value), accesses / 3);
            }
        }
    }

    fn block<B: Block>(&self, block: &B) {
        if B::Row::BOXED {
            self.element(block);
        }
        for row in block.rows() {
            self.row(row, 3);
        }
    }
}

fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

/// The homes of all pages of the product's arrays, asked for once.
struct Pages {
    /// Runs of pages without a gap, in ascending order: the first page, and where its home is in `homes`.
    runs: Vec<(usize, usize)>,
    homes: Vec<Option<u32>>,
}

impl Pages {
    fn of<S: Store>(simulation: &Simulation<'_, S>) -> Self {
        let mut pages = Vec::new();
        let graph = &simulation.mesh.graph;
        add_array(&mut pages, &graph.index);
        add_array(&mut pages, &graph.cols);
        add_array(&mut pages, &simulation.work.flags);
        add_rows(&mut pages, &simulation.work.vectors);
        for vector in &simulation.displacement {
            add_rows(&mut pages, vector);
        }
        add_array(&mut pages, &simulation.stiffness);
        if <S::Block as Block>::Row::BOXED {
            for block in &simulation.stiffness {
                add_rows(&mut pages, block.rows());
            }
        }
        pages.sort_unstable();
        pages.dedup();
        Self::new(&pages, dolmen::page_homes)
    }

    /// A table of pages (numbers in ascending order, each once), asking `query` for their homes.
    fn new(pages: &[usize], query: impl Fn(&[usize]) -> Vec<Option<u32>>) -> Self {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (at, &page) in pages.iter().enumerate() {
            if at == 0 || pages[at - 1] + 1 != page {
                runs.push((page, at));
            }
        }
        let addresses: Vec<usize> = pages.iter().map(|page| page * PAGE_BYTES).collect();
        Self {
            runs,
            homes: query(&addresses),
        }
    }

    /// The home of an address of one of the arrays.
    fn home(&self, address: usize) -> Option<u32> {
        let page = address / PAGE_BYTES;
        let after = self.runs.partition_point(|run| run.0 <= page);
        let (first, at) = self.runs[after.checked_sub(1)?];
        *self.homes.get(at + (page - first))?
    }
}

fn add_range(pages: &mut Vec<usize>, start: usize, bytes: usize) {
    if bytes > 0 {
        for page in start / PAGE_BYTES..=(start + bytes - 1) / PAGE_BYTES {
            if pages.last() != Some(&page) {
                pages.push(page);
            }
        }
    }
}

fn add_array<T>(pages: &mut Vec<usize>, array: &[T]) {
    add_range(pages, array.as_ptr().addr(), size_of_val(array));
}

fn add_rows<R: Row>(pages: &mut Vec<usize>, rows: &[R]) {
    add_array(pages, rows);
    if R::BOXED {
        for row in rows {
            add_range(pages, address(row.get()), size_of::<Vec3>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::generate::generate;
    use crate::store::{Boxed, Contiguous};

    /// The totals follow from the mesh alone.
    fn expected(nodes: u64, off_diagonal: u64, threads: u64, flagged: u64, boxed: bool) -> u64 {
        let clear = 4 * nodes * threads;
        let rows = nodes * (2 + 3 + 9 + 6 + 1) + off_diagonal * (1 + 9 + 3 + 6 + 1);
        let merge = nodes * (threads + 3) + 3 * flagged;
        let pointers =
            nodes * threads + nodes * (1 + 4 + 1) + off_diagonal * (4 + 1 + 1) + nodes + flagged;
        clear + rows + merge + if boxed { pointers } else { 0 }
    }

    #[test]
    fn every_access_is_counted() {
        let mesh = generate(300).unwrap();
        for threads in [1, 3] {
            for steps in [0, 1, 2, 5] {
                let mut team = Team::new(threads, false).unwrap();
                let nodes = mesh.nodes() as u64;
                let off = mesh.graph.entries() as u64 - nodes;
                let mut plain =
                    Simulation::new(&mesh, &Contiguous { parallel: true }, &mut team).unwrap();
                let mut rows = Simulation::new(&mesh, &Boxed, &mut team).unwrap();
                for _ in 0..steps {
                    plain.step(&mut team);
                    rows.step(&mut team);
                }
                let flagged: u32 = plain.work.flags.iter().sum();
                let total =
                    |boxed| steps * expected(nodes, off, threads as u64, u64::from(flagged), boxed);
                let found = audit(&plain, &mut team);
                assert_eq!(found.total, total(false));
                assert_eq!(audit(&rows, &mut team).total, total(true));
                if dolmen::node_count() == 1 {
                    assert_eq!((found.remote, found.unplaced), (0, 0));
                }
            }
        }
    }

    #[test]
    fn homes_are_looked_up_by_page() {
        let pages = Pages::new(&[3, 4, 5, 9], |addresses| {
            addresses
                .iter()
                .map(|a| (a / PAGE_BYTES != 5).then_some((a / PAGE_BYTES) as u32 % 2))
                .collect()
        });
        let home = |page: usize| pages.home(page * PAGE_BYTES + 17);
        assert_eq!([3, 4, 5, 9].map(home), [Some(1), Some(0), None, Some(1)]);
        let counter = Counter::new(&pages, 1);
        counter.count(3 * PAGE_BYTES, 5);
        counter.count(4 * PAGE_BYTES + 8, 3);
        counter.count(5 * PAGE_BYTES, 2);
        assert_eq!(
            counter.take(),
            Audit {
                total: 10,
                remote: 3,
                unplaced: 2
            }
        );
    }
}
