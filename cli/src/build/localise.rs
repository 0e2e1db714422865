//! Makes a relocatable object keep its symbols to itself.
//!
//! The runtime and the application each bring `core`, `alloc` and `compiler_builtins`, compiled for
//! targets that pass floating-point values differently. A call that bound to the other copy would
//! compute nonsense, so every symbol that is not part of the interface becomes local.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use object::LittleEndian;
use object::build::elf::Builder;
use object::elf::{self, FileHeader64, SectionHeader64};
use object::pod::slice_from_bytes_mut;
use object::read::elf::FileHeader;

/// The byte that marks Hermit's objects and images (`ELFOSABI_STANDALONE`).
const OS_ABI: u8 = 0xff;

/// A section that names symbols by number (`SHT_LLVM_ADDRSIG`).
const ADDRESS_SIGNIFICANCE: u32 = 0x6fff_4c03;

/// The name of sections that group others.
const GROUP: &[u8] = b".group";

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
    let object = without_groups(object).context("the linker's output is not an ELF object")?;
    let mut builder = Builder::read(object.as_slice())
        .context("the linker's output is not an ELF object that can be rewritten")?;
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
        section.sh_flags &= !u64::from(elf::SHF_GROUP);
        // The first name symbols by their old numbers and only serve identical-code folding; the
        // second are what is left of the groups.
        if section.sh_type == ADDRESS_SIGNIFICANCE || section.name.as_slice() == GROUP {
            section.delete = true;
        }
    }
    let mut out = Vec::new();
    builder
        .write(&mut out)
        .context("the localised object cannot be written")?;
    Ok((out, interface))
}

/// Dissolves the object's section groups: they serve to keep one of several equal copies, and after a
/// link there is only one.
fn without_groups(object: &[u8]) -> object::Result<Vec<u8>> {
    let mut object = object.to_vec();
    let header = FileHeader64::<LittleEndian>::parse(object.as_slice())?;
    let count = header
        .section_headers(LittleEndian, object.as_slice())?
        .len();
    let at = usize::try_from(header.e_shoff(LittleEndian)).unwrap_or(usize::MAX);
    let table = object.get_mut(at..).unwrap_or_default();
    if let Ok((sections, _)) = slice_from_bytes_mut::<SectionHeader64<LittleEndian>>(table, count) {
        for section in sections {
            if section.sh_type.get(LittleEndian) == elf::SHT_GROUP {
                // Plain bytes: the builder cannot read groups.
                section.sh_type.set(LittleEndian, elf::SHT_PROGBITS);
            }
        }
    }
    Ok(object)
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
