//! Dolmen's boot loader for bare x86-64. See the library of this package.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod bare;

#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    eprintln!("dolmen-loader runs on bare metal: build it for x86_64-unknown-none");
    std::process::ExitCode::FAILURE
}
