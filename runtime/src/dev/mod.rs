//! Devices.

pub(crate) mod exit;
mod pci;
pub(crate) mod pic;
pub(crate) mod rtc;
mod serial;
pub(crate) mod terminal;
pub(crate) mod uhyve;
pub(crate) mod virtio_9p;
