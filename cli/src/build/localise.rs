//! Makes a relocatable object keep its symbols to itself.
//!
//! The runtime and the application each bring `core`, `alloc` and `compiler_builtins`, compiled for
//! targets that pass floating-point values differently. A call that bound to the other copy would
//! compute nonsense, so every symbol that is not part of the interface becomes local.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use object::build::elf::Builder;
use object::elf;

/// The byte that marks Hermit's objects and images (`ELFOSABI_STANDALONE`).
const OS_ABI: u8 = 0xff;

/// A section that names symbols by number (`SHT_LLVM_ADDRSIG`).
const ADDRESS_SIGNIFICANCE: u32 = 0x6fff_4c03;

/// Symbols that the linker defines when something refers to them.
const LINKER_DEFINED: &[&str] = &[
    "__bss_start",
    "__ehdr_start",
    "__executable_start",
    "_DYNAMIC",
    "_GLOBAL_OFFSET_TABLE_",
    "_edata",
    "_end",
    "_etext",
];

/// What an object offers and asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    /// Global symbols that are left.
    pub(super) exports: BTreeSet<String>,
    /// Symbols it expects from elsewhere, weak ones and the linker's own left out.
    pub(super) imports: BTreeSet<String>,
}

/// Rewrites `object` so that only the symbols `keep` accepts stay global, and tells what is left.
pub(super) fn localise(object: &[u8], keep: impl Fn(&str) -> bool) -> Result<(Vec<u8>, Interface)> {
    let mut builder = Builder::read(object).context("the linker's output is not an ELF object")?;
    builder.header.os_abi = OS_ABI;
    let mut interface = Interface::default();
    for symbol in &mut builder.symbols {
        if symbol.st_bind() == elf::STB_LOCAL {
            continue;
        }
        let name = std::str::from_utf8(&symbol.name)
            .context("a symbol's name is not text")?
            .to_owned();
        if symbol.section.is_none() && symbol.st_shndx == elf::SHN_UNDEF {
            if symbol.st_bind() != elf::STB_WEAK && !LINKER_DEFINED.contains(&name.as_str()) {
                interface.imports.insert(name);
            }
        } else if keep(&name) {
            // Whatever the compiler thought of a symbol in its own library, the application
            // may refer to it.
            symbol.st_other = elf::STV_DEFAULT;
            interface.exports.insert(name);
        } else {
            symbol.set_st_info(elf::STB_LOCAL, symbol.st_type());
        }
    }
    for section in &mut builder.sections {
        // These name symbols by their old numbers; they only serve identical-code folding.
        if section.sh_type == ADDRESS_SIGNIFICANCE {
            section.delete = true;
        }
    }
    let mut out = Vec::new();
    builder
        .write(&mut out)
        .context("the localised object cannot be written")?;
    Ok((out, interface))
}

/// Fails unless `interface` asks for nothing but `allowed`.
pub(super) fn check_imports(what: &str, interface: &Interface, allowed: &[&str]) -> Result<()> {
    let missing: Vec<&str> = interface
        .imports
        .iter()
        .map(String::as_str)
        .filter(|name| !allowed.contains(name))
        .collect();
    if !missing.is_empty() {
        bail!(
            "{what} uses symbols that nothing defines: {}",
            missing.join(", ")
        );
    }
    Ok(())
}
