//! Compiles the program that stands between the host and a command, for the machine that the host is for: without a
//! library, so that nothing but the compiler and its linker is needed.

#![expect(clippy::disallowed_methods, reason = "a build script reads the tree and writes to its output")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let out = PathBuf::from(variable("OUT_DIR")?).join("keeper");
    // Where the tree is now: it may have been moved since this was compiled.
    let source = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("keeper");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", source.display());
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc.args(["--edition=2024", "--crate-name=keeper", "--crate-type=bin", "--target", &variable("TARGET")?]);
    for codegen in ["opt-level=s", "panic=abort", "relocation-model=static", "strip=symbols"] {
        rustc.args(["-C", codegen]);
    }
    if let Ok(linker) = variable("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    for argument in ["-nostartfiles", "-nostdlib", "-static", "-Wl,--build-id=none", "-Wl,-z,noexecstack"] {
        rustc.arg("-C").arg(format!("link-arg={argument}"));
    }
    let status = rustc.arg("-o").arg(out).arg(source.join("main.rs")).status()?;
    if status.success() { Ok(()) } else { Err("the keeper of commands does not compile".into()) }
}
