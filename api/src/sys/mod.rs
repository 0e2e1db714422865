//! The two platforms. Each module offers the same functions.

#[cfg(target_os = "hermit")]
mod dolmen;
#[cfg(target_os = "hermit")]
pub(crate) use dolmen::*;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

#[cfg(not(any(target_os = "hermit", target_os = "linux")))]
compile_error!("dolmen applications run on Dolmen (target x86_64-unknown-hermit) and on Linux");
