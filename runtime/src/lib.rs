//! Dolmen's kernel.
//!
//! A static library that exports Hermit's application ABI: an application built with std for
//! `x86_64-unknown-hermit` links against it, and the two are one image in one address space at one
//! privilege level. The memory manager is the crate `dolmen-mm`; this crate gives it a processor
//! to run on, and the application its threads, clocks, files and console.
//!
//! The order of the boot is [`boot`]; what an application calls is in [`syscall`].
#![no_std]
// `Arc::try_new`: a kernel that is out of memory says so and goes on. The kernel is built with its
// own `core` and `alloc`, so it needs unstable features in any case.
#![feature(allocator_api)]

extern crate alloc;

mod boot;
mod console;
mod cpu;
mod dev;
mod entropy;
pub mod entry;
mod fatal;
mod host;
mod mem;
mod report;
mod sched;
mod sync;
pub mod syscall;
