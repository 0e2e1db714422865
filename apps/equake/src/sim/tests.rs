use super::*;
use crate::mesh::generate::generate;
use crate::store::{Boxed, Contiguous};

fn checksum<S: Store>(mesh: &Mesh, store: &S, threads: usize, steps: usize) -> u64 {
    let mut team = Team::new(threads, false).unwrap();
    let mut simulation = Simulation::new(mesh, store, &mut team).unwrap();
    for _ in 0..steps {
        simulation.step(&mut team);
    }
    simulation.checksum()
}

#[test]
fn placements_and_runs_give_the_same_bits() {
    let mesh = generate(400).unwrap();
    for threads in [1, 2, 4] {
        let first = checksum(&mesh, &Contiguous { parallel: true }, threads, 40);
        assert_eq!(
            first,
            checksum(&mesh, &Contiguous { parallel: true }, threads, 40)
        );
        assert_eq!(
            first,
            checksum(&mesh, &Contiguous { parallel: false }, threads, 40)
        );
        assert_eq!(first, checksum(&mesh, &Boxed, threads, 40));
        assert_ne!(first, checksum(&mesh, &Boxed, threads, 41));
    }
}

#[test]
fn the_mass_is_that_of_the_box() {
    let mesh = generate(500).unwrap();
    let mut team = Team::new(2, false).unwrap();
    let simulation = Simulation::new(&mesh, &Boxed, &mut team).unwrap();
    for d in 0..3 {
        let mass: f64 = simulation.mass.iter().map(|row| row.get()[d]).sum();
        assert!((mass - 2.0 * 50_000.0).abs() < 1e-6, "{mass}");
    }
    assert!(
        simulation
            .damping
            .iter()
            .flat_map(|row| row.get())
            .all(|&c| c > 0.0)
    );
}

/// The energy that central differences conserve between steps n and n + 1: the kinetic energy of the velocity between
/// them, and uₙ₊₁ · K · uₙ / 2.
fn energy(simulation: &mut Simulation<'_, Contiguous>, team: &mut Team) -> f64 {
    let [_, current, previous] = &simulation.displacement;
    let mut force = vec![[0.0; 3]; current.len()];
    smvp::product(
        &simulation.mesh.graph,
        &simulation.stiffness,
        current,
        &mut force,
        &mut simulation.work,
        team,
    );
    let mut energy = 0.0;
    for i in 0..current.len() {
        for d in 0..3 {
            let velocity = (current[i][d] - previous[i][d]) / DT;
            energy += 0.5 * simulation.mass[i][d] * velocity * velocity
                + 0.5 * previous[i][d] * force[i][d];
        }
    }
    energy
}

/// A simulation without an earthquake, displaced at one node.
fn plucked<'m>(mesh: &'m Mesh, team: &mut Team) -> Simulation<'m, Contiguous> {
    let mut simulation = Simulation::new(mesh, &Contiguous { parallel: true }, team).unwrap();
    for vector in &mut simulation.source {
        vector.fill([0.0; 3]);
    }
    let node = mesh.nearest_node([20.0, 20.0, -8.0]);
    simulation.displacement[1][node] = [1.0, -2.0, 0.5];
    simulation.displacement[2][node] = [1.0, -2.0, 0.5];
    simulation
}

#[test]
fn energy_is_kept_without_damping_and_lost_with_it() {
    let mesh = generate(300).unwrap();
    let mut team = Team::new(2, false).unwrap();
    let mut free = plucked(&mesh, &mut team);
    free.damping.fill([0.0; 3]);
    let start = energy(&mut free, &mut team);
    assert!(start > 1.0);
    for _ in 0..500 {
        free.step(&mut team);
    }
    let end = energy(&mut free, &mut team);
    assert!((end - start).abs() < 1e-9 * start, "{start} {end}");

    let mut damped = plucked(&mesh, &mut team);
    let mut last = energy(&mut damped, &mut team);
    for _ in 0..20 {
        for _ in 0..50 {
            damped.step(&mut team);
        }
        let now = energy(&mut damped, &mut team);
        assert!(now > 0.0 && now < last, "{last} {now}");
        last = now;
    }
    assert!(last < 0.9 * start);
}

#[test]
fn the_earthquake_moves_the_ground_and_stays_finite() {
    let mesh = generate(1000).unwrap();
    let mut team = Team::new(2, false).unwrap();
    let mut simulation = Simulation::new(&mesh, &Contiguous { parallel: true }, &mut team).unwrap();
    for _ in 0..1500 {
        simulation.step(&mut team);
    }
    let (epicentre, hypocentre) = simulation.displacements();
    let size = |v: Vec3| v.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    assert!(
        size(epicentre) > 1e-3 && size(epicentre) < 30.0,
        "{epicentre:?}"
    );
    assert!(size(hypocentre) < 30.0, "{hypocentre:?}");
}
