//! Devices.

pub(crate) mod exit;
mod pci;
pub(crate) mod pic;
pub(crate) mod rtc;
pub(crate) mod serial;
pub(crate) mod virtio_9p;
