//! Linear tetrahedra.

use super::Material;
use crate::mesh::Vec3;

/// A 3 × 3 matrix, as rows.
pub type Mat3 = [Vec3; 3];

/// Volumes below this share of the cube of the longest edge count as none.
const FLAT: f64 = 1e-12;

/// A tetrahedron with the gradients of its four linear shape functions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tetrahedron {
    determinant: f64,
    gradients: [Vec3; 4],
}

fn minus(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// The scalar product.
pub fn dot(a: Vec3, b: Vec3) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The vector product.
pub fn cross(a: Vec3, b: Vec3) -> Vec3 {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

impl Tetrahedron {
    /// The tetrahedron with these corners, or `None` if it is flat.
    pub fn new(corners: [Vec3; 4]) -> Option<Self> {
        let [e1, e2, e3] = [1, 2, 3].map(|i| minus(corners[i], corners[0]));
        let normals = [cross(e2, e3), cross(e3, e1), cross(e1, e2)];
        let determinant = dot(e1, normals[0]);
        let longest = [e1, e2, e3, minus(e1, e2), minus(e2, e3), minus(e3, e1)]
            .map(|e| dot(e, e))
            .into_iter()
            .fold(0.0, f64::max)
            .sqrt();
        // Written so that a NaN counts as flat.
        let solid =
            determinant.abs() > FLAT * longest * longest * longest && determinant.is_finite();
        if !solid {
            return None;
        }
        let mut gradients = [[0.0; 3]; 4];
        for d in 0..3 {
            for (i, normal) in normals.iter().enumerate() {
                gradients[i + 1][d] = normal[d] / determinant;
            }
            gradients[0][d] = -(gradients[1][d] + gradients[2][d] + gradients[3][d]);
        }
        Some(Self {
            determinant,
            gradients,
        })
    }

    /// Six times the volume, negative if the corners are numbered the other way round.
    pub fn determinant(&self) -> f64 {
        self.determinant
    }

    /// The volume in km³.
    pub fn volume(&self) -> f64 {
        self.determinant.abs() / 6.0
    }

    /// The share of the element's mass that each corner carries.
    pub fn corner_mass(&self, material: &Material) -> f64 {
        material.density * self.volume() / 4.0
    }

    /// The 3 × 3 block of the stiffness matrix that turns a displacement of corner `b` into forces on corner `a`.
    pub fn stiffness(&self, material: &Material, a: usize, b: usize) -> Mat3 {
        let (ga, gb) = (self.gradients[a], self.gradients[b]);
        let lambda = self.volume() * material.lambda();
        let mu = self.volume() * material.mu();
        let shear = mu * dot(ga, gb);
        let mut block = [[0.0; 3]; 3];
        for i in 0..3 {
            for j in 0..3 {
                block[i][j] = lambda * (ga[i] * gb[j]) + mu * (gb[i] * ga[j]);
            }
            block[i][i] += shear;
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fem::ROCK;

    const REFERENCE: [Vec3; 4] = [
        [0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [0.0, 0.0, 1.0],
    ];
    const CROOKED: [Vec3; 4] = [
        [0.3, -0.2, 1.1],
        [2.0, 0.4, 0.9],
        [0.1, 1.7, 1.4],
        [0.6, 0.5, 3.0],
    ];

    #[test]
    fn the_reference_tetrahedron_has_the_matrices_computed_by_hand() {
        let element = Tetrahedron::new(REFERENCE).unwrap();
        let unit = Material {
            vp: 2.0,
            vs: 1.0,
            density: 3.0,
        };
        // λ = 3·(4 − 2) = 6, μ = 3, V = 1/6.
        assert_eq!(element.volume(), 1.0 / 6.0);
        assert!((element.corner_mass(&unit) - 0.125).abs() < 1e-15);
        let expect = |a, b, block: Mat3| {
            let found = element.stiffness(&unit, a, b);
            for i in 0..3 {
                for j in 0..3 {
                    assert!(
                        (found[i][j] - block[i][j] / 6.0).abs() < 1e-14,
                        "{a} {b} {i} {j}"
                    );
                }
            }
        };
        expect(1, 1, [[12.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]]);
        expect(1, 2, [[0.0, 6.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]);
        expect(3, 2, [[0.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 6.0, 0.0]]);
        expect(0, 0, [[18.0, 9.0, 9.0], [9.0, 18.0, 9.0], [9.0, 9.0, 18.0]]);
        expect(
            0,
            1,
            [[-12.0, -3.0, -3.0], [-6.0, -3.0, 0.0], [-6.0, 0.0, -3.0]],
        );
    }

    #[test]
    fn the_matrix_is_symmetric() {
        let element = Tetrahedron::new(CROOKED).unwrap();
        for a in 0..4 {
            for b in 0..4 {
                let (ab, ba) = (
                    element.stiffness(&ROCK, a, b),
                    element.stiffness(&ROCK, b, a),
                );
                for i in 0..3 {
                    for j in 0..3 {
                        assert_eq!(ab[i][j].to_bits(), ba[j][i].to_bits());
                    }
                }
            }
        }
    }

    #[test]
    fn rigid_motions_cost_no_force_and_stretching_does() {
        let element = Tetrahedron::new(CROOKED).unwrap();
        let force = |motion: &dyn Fn(Vec3) -> Vec3| -> f64 {
            let mut largest = 0.0f64;
            for a in 0..4 {
                for i in 0..3 {
                    let sum: f64 = (0..4)
                        .map(|b| dot(element.stiffness(&ROCK, a, b)[i], motion(CROOKED[b])))
                        .sum();
                    largest = largest.max(sum.abs());
                }
            }
            largest
        };
        for axis in [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.3, -2.0, 1.0]] {
            assert!(force(&|_| axis) < 1e-12);
            assert!(force(&|at| cross(axis, at)) < 1e-11);
        }
        assert!(force(&|at| [at[0], 0.0, 0.0]) > 1.0);
    }

    #[test]
    fn orientation_does_not_matter_and_flat_elements_are_refused() {
        let swapped =
            Tetrahedron::new([REFERENCE[0], REFERENCE[2], REFERENCE[1], REFERENCE[3]]).unwrap();
        let element = Tetrahedron::new(REFERENCE).unwrap();
        assert!(swapped.determinant() < 0.0);
        assert_eq!(swapped.volume(), element.volume());
        assert_eq!(
            swapped.stiffness(&ROCK, 2, 3),
            element.stiffness(&ROCK, 1, 3)
        );
        let mut flat = REFERENCE;
        flat[3] = [0.3, 0.3, 1e-14];
        assert_eq!(Tetrahedron::new(flat), None);
        flat[3] = [f64::NAN, 0.0, 1.0];
        assert_eq!(Tetrahedron::new(flat), None);
        assert_eq!(Tetrahedron::new([[1.0; 3]; 4]), None);
    }
}
