//! The absorbing boundary: waves leave the box through its sides and its bottom.
//!
//! A face with all three corners on such a plane carries dashpots that swallow waves arriving straight on: the density
//! times the speed of pressure waves along the plane's normal, of shear waves across it, times the face's area, a third
//! of it at each corner. The planes are those of the mesh's bounding box; its top is the free surface.

use super::Material;
use super::element::{cross, dot};
use crate::mesh::{Mesh, Vec3};

/// A node this share of the box's extent away from a plane lies on it.
const TOLERANCE: f64 = 1e-6;

/// The faces of a tetrahedron, as corners.
const FACES: [[usize; 3]; 4] = [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]];

/// The five absorbing planes of a mesh.
#[derive(Debug, Clone, Copy)]
pub struct Boundary {
    low: Vec3,
    high: Vec3,
}

impl Boundary {
    /// The planes of the mesh's bounding box.
    pub fn new(mesh: &Mesh) -> Self {
        let (low, high) = mesh.bounds();
        Self { low, high }
    }

    /// One bit for each absorbing plane that the point lies on.
    fn planes_of(&self, point: Vec3) -> u8 {
        let mut planes = 0;
        for d in 0..3 {
            let tolerance = TOLERANCE * (self.high[d] - self.low[d]);
            if point[d] - self.low[d] <= tolerance {
                planes |= 1 << d;
            }
            if d < 2 && self.high[d] - point[d] <= tolerance {
                planes |= 8 << d;
            }
        }
        planes
    }

    /// The dashpots of an element: three values for each corner.
    pub fn damping(&self, material: &Material, corners: &[Vec3; 4]) -> [Vec3; 4] {
        let planes = corners.map(|corner| self.planes_of(corner));
        let mut damping = [[0.0; 3]; 4];
        for face in FACES {
            let shared = face
                .iter()
                .fold(u8::MAX, |all, &corner| all & planes[corner]);
            if shared == 0 {
                continue;
            }
            let normal = shared.trailing_zeros() as usize % 3;
            let [a, b, c] = face.map(|corner| corners[corner]);
            let span = cross(
                [0, 1, 2].map(|d| b[d] - a[d]),
                [0, 1, 2].map(|d| c[d] - a[d]),
            );
            let share = material.density * (0.5 * dot(span, span).sqrt()) / 3.0;
            for corner in face {
                for (d, value) in damping[corner].iter_mut().enumerate() {
                    *value += share
                        * if d == normal {
                            material.vp
                        } else {
                            material.vs
                        };
                }
            }
        }
        damping
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fem::ROCK;
    use crate::mesh::generate;

    #[test]
    fn the_dashpots_of_the_box_add_up_to_its_five_faces() {
        let mesh = generate::generate(600).unwrap();
        let boundary = Boundary::new(&mesh);
        let mut sum = [0.0; 3];
        for element in &mesh.elements {
            for corner in boundary.damping(&ROCK, &mesh.corners(element)) {
                for d in 0..3 {
                    sum[d] += corner[d];
                }
            }
        }
        // Areas: 2 faces of 50 × 20 across x, 2 across y, the bottom of 50 × 50; density 2.
        let expected = [
            2.0 * (2000.0 * 6.0 + 2000.0 * 3.2 + 2500.0 * 3.2),
            2.0 * (2000.0 * 3.2 + 2000.0 * 6.0 + 2500.0 * 3.2),
            2.0 * (2000.0 * 3.2 + 2000.0 * 3.2 + 2500.0 * 6.0),
        ];
        for d in 0..3 {
            assert!((sum[d] - expected[d]).abs() < 1e-8 * expected[d], "{sum:?}");
        }
    }
}
