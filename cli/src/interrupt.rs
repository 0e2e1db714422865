//! Ctrl-C: remembered, and acted upon by whoever waits for a run.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static PENDING: AtomicBool = AtomicBool::new(false);
static INSTALL: Once = Once::new();

/// From now on, an interrupt ends the run that is going on instead of the tool at once.
pub fn install() {
    INSTALL.call_once(|| {
        // Should the handler not be installable, an interrupt ends the tool, and the machine it
        // started ends with it.
        let _ = ctrlc::set_handler(|| PENDING.store(true, Ordering::Relaxed));
    });
}

/// Whether an interrupt has come.
pub fn pending() -> bool {
    PENDING.load(Ordering::Relaxed)
}
