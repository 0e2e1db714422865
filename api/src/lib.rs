//! What an application uses of Dolmen.
//!
//! The same source runs in two places: linked against the Dolmen runtime (`target_os = "hermit"`), where these calls
//! are system calls of the single address space, and as an ordinary Linux process, where they map to what Linux has
//! (`move_pages`, `sched_setaffinity`, `mmap`, `getrusage`). That is what makes comparisons honest.
//!
//! - [`report`] and [`progress`] tell the host tool what the application found and how far it is;
//! - [`page_home`], [`page_homes`], [`node_count`], [`current_node`], [`node_of_cpu`] say where memory and threads live;
//! - [`pin_current_thread`] and [`cpus`] place threads;
//! - [`GlobalAlloc`] and [`try_zeroed`] give large zeroed memory that nobody has touched yet, so that first touch decides.
//!
//! ```no_run
//! #[global_allocator]
//! static ALLOCATOR: dolmen::GlobalAlloc = dolmen::GlobalAlloc;
//!
//! fn main() {
//!     let samples = vec![0u64; 1 << 20];
//!     dolmen::report_value("home_of_first_page", dolmen::page_home(samples.as_ptr()));
//! }
//! ```

mod alloc;
mod place;
mod record;
mod sys;
mod zeroed;

pub use alloc::{GlobalAlloc, LARGE_BYTES};
pub use place::{
    PAGE_BYTES, counters, cpus, current_cpu, current_node, node_count, node_of_cpu, page_home,
    page_homes, pin_current_thread,
};
pub use record::{progress, report, report_value};
pub use zeroed::{Zeroed, try_zeroed};
