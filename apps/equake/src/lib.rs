//! Seismic wave propagation in an unstructured tetrahedral mesh: finite elements, explicit time steps.
//!
//! The time goes into a symmetric sparse matrix–vector product ([`smvp`]), whose speed depends on where the pages of
//! its arrays live. [`store`] offers three ways to allocate and first touch them, and [`audit`] counts exactly how many
//! of the product's memory accesses go to another node than the thread's.
//!
//! Results are bit-identical for a given number of threads, wherever the program runs: sums have a fixed order,
//! elementary functions come from the `libm` crate, and nothing is contracted or reassociated.

#![deny(unsafe_code)]
// Sums over indices of several arrays read like the formulas they compute.
#![allow(clippy::needless_range_loop)]

pub mod audit;
pub mod check;
pub mod cli;
pub mod fem;
pub mod mesh;
pub mod run;
pub mod sim;
pub mod smvp;
pub mod store;
pub mod team;
