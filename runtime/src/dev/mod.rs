//! Devices.

pub(crate) mod exit;
pub(crate) mod pic;
pub(crate) mod rtc;
pub(crate) mod serial;
