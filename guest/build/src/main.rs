//! Builds the guest from source.
//!
//! ```text
//! guest-build OUT.wasm     builds the component into a file and says whether it is the prebuilt one, byte for byte,
//!                          which it can only be where the compiler is the same
//! guest-build --prebuilt   builds it and keeps it as the prebuilt one
//! guest-build --digest     prints the digest of the sources
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use harness_guest_build::{encode, prebuilt, sources, toolchain};

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let argument = std::env::args_os().nth(1).context("name the file to write, or --prebuilt or --digest")?;
    if argument == "--digest" {
        println!("{}", sources::digest(&root)?);
        return Ok(());
    }
    let built = toolchain::build(&root, &root.join("target/guest"))?;
    let component = encode::component(&built.module)?;
    println!("built by {}: {} bytes", built.compiler, component.len());
    if argument == "--prebuilt" {
        let record = prebuilt::store(&root, &component, &built.compiler)?;
        println!("kept as {}", record.component);
        return Ok(());
    }
    if argument.to_string_lossy().starts_with('-') {
        bail!("unknown option {}", argument.display());
    }
    std::fs::write(PathBuf::from(&argument), &component).with_context(|| argument.display().to_string())?;
    match prebuilt::record(&root)? {
        Some(record) if record.compiler == built.compiler && record.sources == sources::digest(&root)? => {
            let same = record.component == prebuilt::hex(&component);
            println!("the prebuilt component is {}", if same { "byte for byte the same" } else { "another" });
        }
        _ => println!("the prebuilt component is of another compiler or of other sources: not compared"),
    }
    Ok(())
}
