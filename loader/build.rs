//! Links the bare-metal binary by the linker script; on a host there is nothing to do.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=link.ld");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest's folder");
    let script = Path::new(&folder).join("link.ld");
    println!("cargo:rustc-link-arg-bins=-T{}", script.display());
    // The boot loader copies the file as it is and applies no relocations.
    println!("cargo:rustc-link-arg-bins=--no-pie");
}
