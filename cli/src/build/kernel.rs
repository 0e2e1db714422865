//! From the runtime's crates to `libhermit.a`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};

use super::Builder;
use super::archive::{pack, write_whole};
use super::cargo::CargoRun;
use super::localise::{check_imports, localise};

/// Builds the runtime and the C library's share, and gives the path of `libhermit.a`.
///
/// The path contains a digest of the contents: cargo does not look into a library that is named on
/// the linker's command line, so a changed runtime must have a changed name to be linked again.
pub fn build_kernel(builder: &Builder) -> Result<PathBuf> {
    for (folder, name) in [
        ("runtime", "dolmen-runtime"),
        ("runtime/builtins", "dolmen-builtins"),
    ] {
        if !builder.workspace.has_crate(folder) {
            bail!("this checkout has no {name} ({folder}/): images cannot be built from it");
        }
    }
    let runtime = build_static(
        builder,
        "dolmen-runtime",
        "x86_64-unknown-none",
        "-Zbuild-std=core,alloc",
        "building the runtime",
    )?;
    let builtins = build_static(
        builder,
        "dolmen-builtins",
        "x86_64-unknown-hermit",
        "-Zbuild-std=core",
        "building the C library's part",
    )?;
    let (runtime, runtime_interface) = localise(
        &link_relocatable(builder, &runtime, is_kernel_export)?,
        is_kernel_export,
    )?;
    if !runtime_interface.exports.contains("_start") {
        bail!("the runtime has no `_start`");
    }
    check_imports("the runtime", &runtime_interface, &["runtime_entry"])?;
    let (builtins, builtins_interface) =
        localise(&link_relocatable(builder, &builtins, is_c_name)?, is_c_name)?;
    let offered: Vec<&str> = runtime_interface
        .exports
        .iter()
        .map(String::as_str)
        .collect();
    check_imports("the C library's part", &builtins_interface, &offered)?;
    if let Some(name) = runtime_interface
        .exports
        .intersection(&builtins_interface.exports)
        .next()
    {
        bail!("both the runtime and the C library's part define `{name}`");
    }

    let archive = pack(&[
        ("dolmen-runtime.o", &runtime),
        ("dolmen-builtins.o", &builtins),
    ])?;
    let base = builder.target_dir().join("libhermit");
    let path = base.join(digest(&archive)).join("libhermit.a");
    if !path.is_file() {
        discard_others(&base);
        write_whole(&path, &archive)?;
    }
    Ok(path)
}

/// What the runtime offers: the entry point and the system calls.
fn is_kernel_export(name: &str) -> bool {
    name == "_start" || name.starts_with("sys_")
}

/// What the C library's part offers: names C code would use, no mangled and no compiler-internal
/// ones.
fn is_c_name(name: &str) -> bool {
    !name.starts_with('_') && !name.starts_with("rust_") && !name.contains('.')
}

fn build_static(
    builder: &Builder,
    package: &str,
    target: &str,
    build_std: &str,
    title: &str,
) -> Result<PathBuf> {
    CargoRun::for_image(builder, "rustc", title)
        .directory(builder.workspace.root())
        .args(["-p", package, "--lib", "--crate-type", "staticlib"])
        .args(["--target", target, build_std])
        .arg("-Zbuild-std-features=compiler-builtins-mem")
        .run(package)
}

/// Links all of a static library into one object and drops what nothing exported needs.
fn link_relocatable(
    builder: &Builder,
    library: &Path,
    is_export: fn(&str) -> bool,
) -> Result<Vec<u8>> {
    let output = library.with_extension("linked.o");
    let mut command: Command = builder.toolchain.linker.command();
    command
        .args(["-m", "elf_x86_64", "-r", "--gc-sections"])
        .args(["--whole-archive".as_ref(), library.as_os_str()])
        .args(["-o".as_ref(), output.as_os_str()]);
    for name in defined(library, is_export)? {
        command.args(["-u", &name]);
    }
    let result = command.output().with_context(|| {
        format!(
            "cannot start {}",
            builder.toolchain.linker.program.display()
        )
    })?;
    if !result.status.success() {
        bail!(
            "linking {} failed: {}",
            library.display(),
            String::from_utf8_lossy(&result.stderr).trim()
        );
    }
    std::fs::read(&output).with_context(|| format!("cannot read {}", output.display()))
}

/// The global symbols of a static library that `accept` takes: the roots of its link.
fn defined(library: &Path, accept: fn(&str) -> bool) -> Result<Vec<String>> {
    let unreadable = || format!("cannot read {}", library.display());
    let data = std::fs::read(library).with_context(unreadable)?;
    let archive = ArchiveFile::parse(&*data).with_context(unreadable)?;
    let mut names = Vec::new();
    for member in archive.members() {
        let contents = member
            .and_then(|m| m.data(&*data))
            .with_context(unreadable)?;
        // A member without code, such as rustc's metadata, is no ELF object and has no roots.
        let Ok(file) = object::File::parse(contents) else {
            continue;
        };
        names.extend(
            file.symbols()
                .filter(|s| s.is_definition() && s.is_global())
                .filter_map(|s| s.name().ok().map(str::to_owned))
                .filter(|name| accept(name)),
        );
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn digest(data: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Forgets libraries of earlier builds.
fn discard_others(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        // A leftover costs some disk space and nothing else.
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_told_from_internals() {
        assert!(is_kernel_export("_start"));
        assert!(is_kernel_export("sys_futex_wait"));
        assert!(!is_kernel_export("memcpy"));
        assert!(!is_kernel_export("_RNvNtCs1_3foo3sys_bar"));
        assert!(is_c_name("memcpy"));
        assert!(is_c_name("tgammaf"));
        assert!(!is_c_name("__udivti3"));
        assert!(!is_c_name("_ZN4core9panicking5panic17h0E"));
        assert!(!is_c_name("rust_eh_personality"));
        assert!(!is_c_name("anon.0123.4"));
    }

    #[test]
    fn digests_follow_contents() {
        assert_eq!(digest(b"a"), digest(b"a"));
        assert_ne!(digest(b"a"), digest(b"b"));
    }
}
