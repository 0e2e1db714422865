//! Native benchmarks of the frame allocator against others that do the same work.
//!
//! All allocators manage the same pretended memory: they hand out numbers of frames, and nobody
//! touches the frames themselves. They are measured in turn, several times, in one process; what is
//! reported are medians, and ratios within a turn.
//!
//! criterion and divan measure one function to the end, then the next, each on threads of its own
//! choice. Here every turn has to see all allocators under the same load of the machine, on threads
//! that stay on their processors: hence loops of our own.

pub mod llfree;
pub mod loops;
pub mod mixed;
pub mod peers;
pub mod random;
pub mod report;
pub mod soak;
mod summary;
mod tables;

/// Keeps the calling thread on one processor, another one for each number as far as there are any.
/// Where that is not possible, the scheduler spreads the threads.
fn pin(thread: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(&core) = cores.get(thread) {
        core_affinity::set_for_current(core);
    }
}
