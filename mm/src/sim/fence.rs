//! A barrier on all processors, for allocators that real threads use.

use std::sync::Once;

use rustix::thread::{MembarrierCommand, membarrier};

/// Makes every thread of the process execute a full barrier: what an interrupt of all processors
/// does in the kernel.
///
/// # Panics
///
/// If the host cannot: Linux has `membarrier` since 4.14.
pub fn fence_others() {
    static REGISTERED: Once = Once::new();
    let barrier = |command| membarrier(command).expect("the host has no membarrier");
    REGISTERED.call_once(|| barrier(MembarrierCommand::RegisterPrivateExpedited));
    barrier(MembarrierCommand::PrivateExpedited);
}
