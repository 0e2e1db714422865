//! The earthquake: a slip across a fault through the hypocentre.
//!
//! The two sides of the fault are torn apart at the node nearest to the hypocentre: elements of that node whose centre
//! lies above the fault (the hanging wall) see it moved by half the slip, those below by half the slip the other way.
//! The slip grows smoothly from zero to its full size within the rise time.

use super::element::dot;
use crate::mesh::{Mesh, Vec3};
use std::f64::consts::PI;

/// The rise time in s.
const T0: f64 = 0.6;
/// Angles of the fault in degrees.
const STRIKE: f64 = 111.0;
const DIP: f64 = 44.0;
const RAKE: f64 = 70.0;
/// The slip in cm.
const SLIP: f64 = 29.640788;

/// The fault: its normal, which points into the hanging wall, and the slip of the hanging wall against the foot wall.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// A unit vector across the fault, upwards.
    pub normal: Vec3,
    /// The slip in cm.
    pub slip: Vec3,
}

impl Fault {
    /// The model's fault, in the mesh's axes: x east, y north, z up.
    pub fn new() -> Self {
        let radians = |degrees: f64| degrees * (PI / 180.0);
        let sin_cos = |degrees: f64| (libm::sin(radians(degrees)), libm::cos(radians(degrees)));
        let ((ss, cs), (sd, cd), (sr, cr)) = (sin_cos(STRIKE), sin_cos(DIP), sin_cos(RAKE));
        let along = [cr * ss - sr * cd * cs, cr * cs + sr * cd * ss, sr * sd];
        Self {
            normal: [sd * cs, -sd * ss, cd],
            slip: along.map(|component| SLIP * component),
        }
    }
}

impl Default for Fault {
    fn default() -> Self {
        Self::new()
    }
}

/// Marks the elements of the hypocentre's node: 1 in the hanging wall, −1 in the foot wall, 0 elsewhere.
pub fn mark_elements(mesh: &Mesh, hypocentre: usize, fault: &Fault) -> Vec<i8> {
    let origin = mesh.coords[hypocentre];
    mesh.elements
        .iter()
        .map(|element| {
            if !element.contains(&(hypocentre as u32)) {
                return 0;
            }
            let corners = mesh.corners(element);
            let centre =
                [0, 1, 2].map(|d| corners.iter().map(|c| c[d]).sum::<f64>() / 4.0 - origin[d]);
            if dot(centre, fault.normal) > 0.0 {
                1
            } else {
                -1
            }
        })
        .collect()
}

/// The share of the slip at a time, with its first and second derivatives.
pub fn slip_at(time: f64) -> [f64; 3] {
    if time >= T0 {
        return [1.0, 0.0, 0.0];
    }
    if time <= 0.0 {
        return [0.0; 3];
    }
    let angle = 2.0 * PI * time / T0;
    [
        (angle - libm::sin(angle)) / (2.0 * PI),
        (1.0 - libm::cos(angle)) / T0,
        2.0 * PI / (T0 * T0) * libm::sin(angle),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::generate;

    #[test]
    fn the_slip_lies_in_the_fault_and_has_its_length() {
        let fault = Fault::new();
        assert!((dot(fault.normal, fault.normal) - 1.0).abs() < 1e-14);
        assert!(dot(fault.normal, fault.slip).abs() < 1e-12);
        assert!((dot(fault.slip, fault.slip).sqrt() - SLIP).abs() < 1e-12);
        // Rake 70° is a thrust: the hanging wall goes up.
        assert!(fault.normal[2] > 0.0 && fault.slip[2] > 0.0);
    }

    #[test]
    fn the_rise_is_smooth() {
        assert_eq!(slip_at(0.0), [0.0; 3]);
        assert_eq!(slip_at(1.0), [1.0, 0.0, 0.0]);
        assert!((slip_at(T0 / 2.0)[0] - 0.5).abs() < 1e-15);
        let h = 1e-5;
        for time in [0.01, 0.2, 0.3, 0.59] {
            let [_, first, second] = slip_at(time);
            let (before, after) = (slip_at(time - h), slip_at(time + h));
            assert!(((after[0] - before[0]) / (2.0 * h) - first).abs() < 1e-6);
            assert!(((after[1] - before[1]) / (2.0 * h) - second).abs() < 1e-5);
        }
    }

    #[test]
    fn the_elements_of_one_node_are_marked_on_both_sides() {
        let mesh = generate::generate(1000).unwrap();
        let node = mesh.nearest_node(crate::fem::HYPOCENTRE);
        let marks = mark_elements(&mesh, node, &Fault::new());
        let count = |mark| marks.iter().filter(|&&m| m == mark).count();
        assert_eq!(count(1) + count(-1), 24);
        assert!(count(1) >= 6 && count(-1) >= 6);
    }
}
