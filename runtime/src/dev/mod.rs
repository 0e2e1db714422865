//! Devices.

pub(crate) mod exit;
pub(crate) mod pic;
pub(crate) mod rtc;
mod serial;
pub(crate) mod terminal;
pub(crate) mod uhyve;
