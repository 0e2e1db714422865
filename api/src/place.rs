//! Where threads and memory are.

use crate::sys;
use serde_json::{Map, Value};
use std::io;

/// Bytes of a base page.
pub const PAGE_BYTES: usize = 4096;

/// The NUMA node of the page that holds `ptr`, or `None` if no page is mapped there yet.
///
/// A machine without NUMA has one node, node 0.
pub fn page_home<T>(ptr: *const T) -> Option<u32> {
    sys::page_homes(&[ptr.addr()])[0]
}

/// [`page_home`] for many addresses at once: one answer for each.
pub fn page_homes(addresses: &[usize]) -> Vec<Option<u32>> {
    sys::page_homes(addresses)
}

/// The number of NUMA nodes, at least 1.
pub fn node_count() -> u32 {
    sys::node_count().max(1)
}

/// The CPU that runs the calling thread.
pub fn current_cpu() -> u32 {
    sys::current_cpu()
}

/// The node of the CPU that runs the calling thread.
pub fn current_node() -> u32 {
    sys::current_node()
}

/// The node of a CPU, or `None` if there is no such CPU.
pub fn node_of_cpu(cpu: u32) -> Option<u32> {
    sys::node_of_cpu(cpu)
}

/// The CPUs that this program may use, in ascending order; never empty.
pub fn cpus() -> Vec<u32> {
    sys::cpus()
}

/// Keeps the calling thread on one CPU.
///
/// On Dolmen threads are pinned from the start, one per CPU in the order of their creation, so that this is nothing
/// but a check that the CPU exists.
pub fn pin_current_thread(cpu: u32) -> io::Result<()> {
    sys::pin_current_thread(cpu)
}

/// The counters of the memory manager so far: Dolmen's, or on Linux the process's page faults and context switches,
/// under Linux's names.
pub fn counters() -> Map<String, Value> {
    sys::counters()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touched_page_has_a_home_and_a_fresh_one_may_have_none() {
        let mut page = vec![0u8; 3 * PAGE_BYTES];
        page.fill(1);
        let home = page_home(page.as_ptr()).expect("a page that was written is mapped");
        assert!(home < node_count());
        assert_eq!(
            page_homes(&[page.as_ptr().addr(), page[PAGE_BYTES..].as_ptr().addr()]).len(),
            2
        );
    }

    #[test]
    fn pinning_moves_the_thread() {
        for cpu in cpus() {
            std::thread::spawn(move || {
                pin_current_thread(cpu).unwrap();
                assert_eq!(current_cpu(), cpu);
                assert_eq!(node_of_cpu(cpu), Some(current_node()));
            })
            .join()
            .unwrap();
        }
        assert!(pin_current_thread(1 << 20).is_err());
        assert_eq!(node_of_cpu(1 << 20), None);
    }

    #[test]
    fn counters_count_faults() {
        let faults = |c: &Map<String, Value>| c["pgfault"].as_u64().unwrap();
        let before = faults(&counters());
        let mut pages = vec![0u8; 400 * PAGE_BYTES];
        for page in pages.chunks_mut(PAGE_BYTES) {
            page[0] = 1;
        }
        std::hint::black_box(&pages);
        assert!(faults(&counters()) > before);
    }
}
