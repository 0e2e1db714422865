//! What has to be known of an image before gdb sees it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSymbol};

/// An image's first instruction and its `main`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Symbols {
    /// Where the image is entered, as its file counts addresses.
    pub(super) entry: u64,
    /// The symbol of the application's `main`, as the linker knows it.
    pub(super) main: String,
}

impl Symbols {
    /// Reads them from the image `elf` of the application `app`.
    pub(super) fn read(elf: &Path, app: &str) -> Result<Self> {
        let name = elf.display();
        let data = std::fs::read(elf).with_context(|| format!("cannot read {name}"))?;
        let file = object::File::parse(&*data).with_context(|| format!("{name} is damaged"))?;
        let symbols = file.symbols().filter_map(|symbol| symbol.name().ok());
        let Some(main) = choose(symbols, app) else {
            bail!("{app} has no symbols, and so no `main` that a debugger could find");
        };
        Ok(Self {
            entry: file.entry(),
            main: main.to_owned(),
        })
    }
}

/// The `main` of the crate `app`, else of some crate, else C's.
fn choose<'a>(symbols: impl Iterator<Item = &'a str>, app: &str) -> Option<&'a str> {
    let own = app.replace('-', "_");
    let rank = |symbol: &str| {
        let name = format!("{:#}", rustc_demangle::demangle(symbol));
        match name.strip_suffix("::main") {
            Some(krate) if krate == own => Some(3),
            Some(krate) if !krate.contains("::") => Some(2),
            None if name == "main" => Some(1),
            _ => None,
        }
    };
    symbols
        .filter_map(|symbol| Some((rank(symbol)?, symbol)))
        .max_by_key(|&(rank, _)| rank)
        .map(|(_, symbol)| symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "_RNvCschLQ09U9A8k_5hello4main";
    const OTHER: &str = "_ZN5other4main17h05af221e174051e9E";
    const INNER: &str = "_ZN5hello5inner4main17h05af221e174051e9E";

    #[test]
    fn the_applications_main_is_told_from_others() {
        let main = |symbols: &[&'static str], app| choose(symbols.iter().copied(), app);
        assert_eq!(main(&["main", OTHER, OWN, INNER], "hello"), Some(OWN));
        assert_eq!(main(&["main", OTHER, INNER], "image.tar.gz"), Some(OTHER));
        assert_eq!(main(&[INNER, "main", "_start"], "c"), Some("main"));
        assert_eq!(main(&[INNER, "_start"], "x"), None);
    }

    #[test]
    fn this_program_has_a_main() {
        let symbols = Symbols::read(Path::new("/proc/self/exe"), "dolmen-cli").unwrap();
        assert_ne!(symbols.entry, 0);
        assert!(symbols.main.contains("main"));
    }
}
