//! The commands that bring gdb to the application's `main`.

use std::path::Path;

use super::Whereabouts;
use super::symbols::Symbols;

/// An emulated machine on a loaded host may answer late. Seconds.
const PATIENCE: u32 = 600;

/// What gdb is to do first. `target` is what it connects to, `elf` the application. Unless it runs in
/// `batch` mode, gdb asks again afterwards.
pub(super) fn commands(
    whereabouts: &Whereabouts,
    target: &str,
    elf: &Path,
    symbols: &Symbols,
    batch: bool,
) -> String {
    let elf = quoted(elf);
    let place = match whereabouts {
        Whereabouts::Loader(loader) => format!(
            "file {}\n\
             target remote {target}\n\
             thbreak *dolmen_loader_enter\n\
             continue\n\
             symbol-file -o $rdi-{:#x} {elf}\n",
            quoted(loader),
            symbols.entry
        ),
        Whereabouts::Halted => format!(
            "file {elf}\n\
             target remote {target}\n\
             symbol-file -o $pc-{:#x} {elf}\n",
            symbols.entry
        ),
    };
    // gdb wants an executable file in order to connect. It would read from it what is not mapped in
    // the machine, at addresses that mean nothing there: so it is forgotten again. What calls a
    // `main` belongs to the picture. A machine that gdb does not take for one that was there before
    // is ended, not let go, when gdb quits. Scripts that an image names run only if the user wants it.
    let restore = if batch {
        ""
    } else {
        "set confirm on\nset pagination on\n"
    };
    format!(
        "set confirm off\n\
         set pagination off\n\
         set auto-load python-scripts off\n\
         set remotetimeout {PATIENCE}\n\
         set backtrace past-main on\n\
         set remote query-attached-packet off\n\
         {place}\
         exec-file\n\
         tbreak {}\n\
         continue\n\
         {restore}",
        symbols.main
    )
}

/// A file's name as gdb's commands read it.
fn quoted(path: &Path) -> String {
    let mut text = String::from('"');
    for c in path.display().to_string().chars() {
        if c == '"' || c == '\\' {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: Symbols = Symbols {
        entry: 0x2bf98,
        main: String::new(),
    };

    #[test]
    fn the_loader_or_the_first_instruction_says_where_the_image_is() {
        let elf = Path::new("/a b/\"c\"");
        let loader = Whereabouts::Loader("/loader".into());
        let text = commands(&loader, "/run/gdb", elf, &SYMBOLS, false);
        assert!(text.contains("file \"/loader\"\ntarget remote /run/gdb\n"));
        assert!(
            text.contains("symbol-file -o $rdi-0x2bf98 \"/a b/\\\"c\\\"\"\nexec-file\ntbreak ")
        );
        let text = commands(&Whereabouts::Halted, "127.0.0.1:1", elf, &SYMBOLS, true);
        assert!(text.contains("target remote 127.0.0.1:1\nsymbol-file -o $pc-0x2bf98 \"/a b"));
        assert!(!text.contains("dolmen_loader_enter") && !text.contains("confirm on"));
    }
}
