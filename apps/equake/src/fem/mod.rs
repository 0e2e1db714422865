//! The physics: material, source and the pieces that the equation of motion is assembled from.

pub mod boundary;
pub mod element;
pub mod source;

use crate::mesh::Vec3;

/// The length of a time step in s.
pub const DT: f64 = 0.0024;
/// Where the earthquake starts, in km.
pub const HYPOCENTRE: Vec3 = [32.264153, 23.814432, -11.25];
/// The point of the surface above it.
pub const EPICENTRE: Vec3 = [HYPOCENTRE[0], HYPOCENTRE[1], 0.0];

/// An elastic material: speeds in km/s, density in g/cm³.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Material {
    /// Speed of pressure waves.
    pub vp: f64,
    /// Speed of shear waves.
    pub vs: f64,
    /// Mass per volume.
    pub density: f64,
}

/// The rock of the model.
pub const ROCK: Material = Material {
    vp: 6.0,
    vs: 3.2,
    density: 2.0,
};

/// The damping ratio is ζ / vs with vs in m/s, kept between the limits a and b.
const ZETA: f64 = 30.0;
const DAMPING_LOW: f64 = 0.00533333;
const DAMPING_HIGH: f64 = 0.06666667;
/// The frequency, in Hz, at which the damping has that ratio.
const DAMPING_FREQUENCY: f64 = 0.5;

impl Material {
    /// Lamé's first parameter.
    pub fn lambda(&self) -> f64 {
        self.density * (self.vp * self.vp - 2.0 * (self.vs * self.vs))
    }

    /// The shear modulus.
    pub fn mu(&self) -> f64 {
        self.density * (self.vs * self.vs)
    }

    /// The factor α of the mass-proportional (Rayleigh) damping C = α M, which damps a wave of the reference frequency
    /// with the material's damping ratio ξ: α = 2 ξ ω.
    pub fn damping_factor(&self) -> f64 {
        let ratio = (ZETA / (1000.0 * self.vs)).clamp(DAMPING_LOW, DAMPING_HIGH);
        2.0 * ratio * (2.0 * std::f64::consts::PI * DAMPING_FREQUENCY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rock_has_the_moduli_of_its_speeds() {
        let rock = ROCK;
        assert!((rock.mu() - 20.48).abs() < 1e-12);
        assert!((rock.lambda() - 31.04).abs() < 1e-12);
        assert!(((rock.lambda() + 2.0 * rock.mu()) / rock.density - 36.0).abs() < 1e-12);
        let alpha = rock.damping_factor();
        assert!((alpha - 2.0 * 0.009375 * std::f64::consts::PI).abs() < 1e-12);
    }
}
