//! The parts of Dolmen's boot loader that need no hardware, tested on the host.
//!
//! The binary of the same package is booted by a multiboot loader (GRUB, QEMU's `-kernel`). It
//! takes the first module, an application or a Hermit image, and starts it as Hermit's own loader
//! would. Here are the decisions:
//!
//! - [`multiboot`]: what the boot loader says;
//! - [`layout`]: what goes where in memory;
//! - [`image`]: what the module is, and what its `hermit.toml` asks for;
//! - [`mod@gzip`]: unpacking;
//! - [`elf`]: whether the application can be loaded;
//! - [`tree`]: the device tree for the application.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod elf;
pub mod gzip;
pub mod image;
pub mod layout;
pub mod multiboot;
pub mod tree;
