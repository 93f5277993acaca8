//! Builds the guest from source.
//!
//! ```text
//! guest-build OUT.wasm     builds the component into a file and says whether it is the prebuilt one, byte for byte,
//!                          which it can only be where the compiler is the same
//! guest-build --prebuilt   builds it and keeps it as the prebuilt one
//! guest-build --digest     prints the digest of the sources
//! guest-build --cargo …    runs cargo for this machine with the crates that the guest is built with, patches applied:
//!                          `guest-build --cargo test -p harness-guest`
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use harness_guest_build::{encode, prebuilt, sources, toolchain, workspace};

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let argument = std::env::args_os().nth(1).context("name the file to write, or --prebuilt, --digest or --cargo")?;
    if argument == "--digest" {
        println!("{}", sources::digest(&root)?);
        return Ok(());
    }
    let scratch = root.join("target/guest");
    if argument == "--cargo" {
        return cargo(&root, &scratch);
    }
    let built = toolchain::build(&root, &scratch)?;
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

/// Runs the cargo that runs this, with the arguments after `--cargo`, in the patched workspace. Its results are kept
/// where the project's own are, so nothing is compiled twice but the patched crates and what uses them.
fn cargo(root: &Path, scratch: &Path) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let start = || {
        let mut command = Command::new(&program);
        command.current_dir(root);
        command
    };
    let manifest = workspace::make(root, scratch, start)?;
    let mut arguments = std::env::args_os().skip(2);
    let subcommand = arguments.next().context("name cargo's command, such as `test`")?;
    let mut command = start();
    command.arg(subcommand).arg("--manifest-path").arg(manifest).args(arguments);
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.env("CARGO_TARGET_DIR", root.join("target"));
    }
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
