//! A whole run: mesh, check, simulation, report.

use crate::audit::{Audit, audit};
use crate::check::{compare, reference_product};
use crate::cli::{MeshSource, Options};
use crate::mesh::{Mesh, Vec3, generate, pack};
use crate::sim::Simulation;
use crate::smvp;
use crate::store::{Boxed, Contiguous, Placement, Store};
use crate::team::Team;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Displacements are printed every so many steps.
const PRINT_STEPS: u64 = 30;

/// What a run tells the host tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Report {
    mesh_nodes: usize,
    mesh_elements: usize,
    mesh_blocks: usize,
    steps: u64,
    threads: usize,
    placement: Placement,
    init_s: f64,
    steps_s: f64,
    smvp_s: f64,
    smvp_mflops: f64,
    checksum: String,
    remote_share: f64,
    remote_accesses: u64,
    total_accesses: u64,
    unplaced_accesses: u64,
    touched_bytes: usize,
}

/// Does what the options say. An error is one sentence without its full stop.
pub fn run(options: &Options) -> Result<(), String> {
    let start = Instant::now();
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let reference = match &options.check {
        Some(path) => Some((path, read_text(path)?)),
        None => None,
    };
    let mesh = load(&options.mesh)?;
    let mut team = Team::new(threads, true)
        .map_err(|error| format!("cannot start {threads} threads: {error}"))?;
    println!(
        "mesh: {} nodes, {} elements, {} matrix blocks; {threads} threads, placement {}",
        mesh.nodes(),
        mesh.elements.len(),
        mesh.graph.entries(),
        options.placement.name()
    );
    let job = Job {
        options,
        reference,
        mesh,
        start,
    };
    match options.placement {
        Placement::Rows => job.run(&Boxed, &mut team),
        Placement::Parallel => job.run(&Contiguous { parallel: true }, &mut team),
        Placement::Serial => job.run(&Contiguous { parallel: false }, &mut team),
    }
}

fn load(source: &MeshSource) -> Result<Mesh, String> {
    match source {
        MeshSource::File(path) => {
            let text = read(path)?;
            pack::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
        }
        MeshSource::Generated(nodes) => generate::generate(*nodes).ok_or_else(|| {
            format!("there is not enough memory for a mesh of {nodes} nodes; use a smaller one")
        }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn read_text(path: &Path) -> Result<String, String> {
    String::from_utf8(read(path)?).map_err(|_| format!("{} is not a text file", path.display()))
}

/// A run whose mesh is there.
struct Job<'a> {
    options: &'a Options,
    reference: Option<(&'a std::path::PathBuf, String)>,
    mesh: Mesh,
    start: Instant,
}

impl Job<'_> {
    fn run<S: Store>(&self, store: &S, team: &mut Team) -> Result<(), String> {
        if let Some((path, reference)) = &self.reference {
            let product =
                reference_product(&self.mesh, store, team).map_err(|error| error.to_string())?;
            let lines = compare(&product, reference).map_err(|error| {
                format!(
                    "the product does not agree with {}: {error}",
                    path.display()
                )
            })?;
            println!("all {lines} lines agree");
        }
        match self.options.steps {
            Some(steps) => self.simulate(steps, store, team),
            None => Ok(()),
        }
    }

    fn simulate<S: Store>(&self, steps: u64, store: &S, team: &mut Team) -> Result<(), String> {
        let mut simulation =
            Simulation::new(&self.mesh, store, team).map_err(|error| error.to_string())?;
        let init_s = self.start.elapsed().as_secs_f64();
        let start = Instant::now();
        for step in 1..=steps {
            simulation.step(team);
            dolmen::progress(step, steps, "step");
            if step % PRINT_STEPS == 0 {
                let (epicentre, hypocentre) = simulation.displacements();
                println!(
                    "step {step}, {:.3} s: epicentre {}, hypocentre {}",
                    simulation.time(),
                    show(epicentre),
                    show(hypocentre)
                );
            }
        }
        let steps_s = start.elapsed().as_secs_f64();
        let report = self.report(
            &simulation,
            init_s,
            steps_s,
            audit(&simulation, team),
            team.threads(),
        );
        print(&report);
        dolmen::report(&report);
        Ok(())
    }

    fn report<S: Store>(
        &self,
        simulation: &Simulation<'_, S>,
        init_s: f64,
        steps_s: f64,
        audit: Audit,
        threads: usize,
    ) -> Report {
        let smvp_s = simulation.product_time().as_secs_f64();
        let flops = (simulation.steps() * smvp::flops(&self.mesh.graph)) as f64;
        Report {
            mesh_nodes: self.mesh.nodes(),
            mesh_elements: self.mesh.elements.len(),
            mesh_blocks: self.mesh.graph.entries(),
            steps: simulation.steps(),
            threads,
            placement: self.options.placement,
            init_s,
            steps_s,
            smvp_s,
            smvp_mflops: if smvp_s > 0.0 {
                flops / smvp_s / 1e6
            } else {
                0.0
            },
            checksum: format!("{:016x}", simulation.checksum()),
            remote_share: audit.remote_share(),
            remote_accesses: audit.remote,
            total_accesses: audit.total,
            unplaced_accesses: audit.unplaced,
            touched_bytes: simulation.bytes(),
        }
    }
}

fn show(displacement: Vec3) -> String {
    let [x, y, z] = displacement;
    format!("({x:.6e}, {y:.6e}, {z:.6e}) cm")
}

fn print(report: &Report) {
    println!(
        "initialisation {:.3} s, {} steps {:.3} s, of which products {:.3} s ({:.1} Mflop/s)",
        report.init_s, report.steps, report.steps_s, report.smvp_s, report.smvp_mflops
    );
    println!("checksum {}", report.checksum);
    println!(
        "remote share {:.4} ({} of {} accesses of the products)",
        report.remote_share, report.remote_accesses, report.total_accesses
    );
    if report.unplaced_accesses > 0 {
        println!(
            "{} accesses went to pages whose node is not known",
            report.unplaced_accesses
        );
    }
}
