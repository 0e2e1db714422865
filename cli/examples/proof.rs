#![allow(missing_docs)]
use dolmen_cli::{build::*, host::RealHost, toolchain::*, workspace::Workspace};
fn main() -> anyhow::Result<()> {
    let a: Vec<String> = std::env::args().collect();
    let tc = find(&RealHost, &Choice::parse(&a[1]))?;
    println!("{tc:?}");
    let b = Builder { workspace: Workspace::locate(&RealHost)?, toolchain: tc, verbose: true };
    for bin in &a[3..] {
        let p = resolve_project(&b, a[2].as_ref(), Some(bin))?;
        println!("{}", build_app(&b, &p)?.display());
    }
    Ok(())
}
