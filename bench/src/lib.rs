//! Native benchmarks of the frame allocator against others that do the same work.
//!
//! All allocators manage the same pretended memory: they hand out numbers of frames, and nobody
//! touches the frames themselves. They are measured in turn, several times, in one process; what is
//! reported are medians and their ratios.

pub mod loops;
pub mod mixed;
pub mod peers;
pub mod random;
pub mod report;
pub mod soak;
