//! Compiles the interpreter to machine code, which becomes part of the binary.
//!
//! The guest component comes from `harness-guest-build`: the prebuilt one, or one built from source where the sources
//! have changed. It is split into layers here, its code compiled, and its memory made ready by running the guest's
//! own preparation once.

#![expect(clippy::disallowed_methods, reason = "a build script reads the tree and writes to its output")]

#[path = "src/compile.rs"]
mod compile;
#[path = "src/loader.rs"]
#[expect(dead_code, unreachable_pub, reason = "loading a script is for the host itself")]
mod loader;

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use harness_guest_build::{COMPONENT_VARIABLE, Provenance, component, layers, packaged, prebuilt, sources};
use wasmtime::{Engine, Module, TypedFunc};

fn main() -> Result<(), Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let (out, target) = (PathBuf::from(variable("OUT_DIR")?), variable("TARGET")?);
    // Where the tree is now: it may have been moved since this was compiled.
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = package.join("../..");
    println!("cargo::rerun-if-env-changed={COMPONENT_VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    let (component, provenance) = if is_repository(&root, &package) {
        for path in sources::files(&root)? {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
        for path in ["Cargo.lock", "guest/prebuilt/record.toml"] {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
        component(&root, &out.join("guest"))?
    } else {
        println!("cargo::rerun-if-changed=prebuilt");
        packaged(&package.join("prebuilt"))?
    };
    if let Provenance::Named(path) = &provenance {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=HARNESS_GUEST_DIGEST={}", prebuilt::hex(&component));
    println!("cargo::rustc-env=HARNESS_TARGET={target}");

    let layers = layers::split(&component)?;
    let engine = Engine::new(&compile::config(&target)?)?;
    let code = Module::from_binary(&engine, &layers.code)?;
    let laid_out = Module::from_binary(&engine, &layers.memory)?;
    let mut prepared = prepared(&engine, &code, &laid_out)?;
    let kept = prepared.kept()?;
    std::fs::write(out.join("shell.cwasm"), engine.precompile_component(&layers.shell)?)?;
    std::fs::write(out.join("memory.bin"), kept.bytes)?;
    let mut templates = String::new();
    for pages in 0..=GROWTH {
        let length = kept.bytes.len() + pages * PAGE;
        let (head, tail) = template(&engine, kept.start, length)?;
        std::fs::write(out.join(format!("head.{pages}")), head)?;
        std::fs::write(out.join(format!("tail.{pages}")), tail)?;
        let embedded = |name| format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.{pages}\"))");
        let (head, tail, start) = (embedded("head"), embedded("tail"), kept.start);
        writeln!(templates, "    Template {{ head: {head}, tail: {tail}, start: {start}, length: {length} }},")?;
    }
    std::fs::write(out.join("templates.rs"), format!("&[\n{templates}]\n"))?;
    Ok(())
}

/// Whether this package is the folder `host/sandbox` of the repository at `root`, and not a package from a registry.
fn is_repository(root: &Path, package: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let here = real(&root.join("host/sandbox"));
    here.is_some() && here == real(package) && root.join("guest/src").is_dir()
}

/// WebAssembly's page, in bytes.
const PAGE: usize = 64 << 10;
/// Pages that loading a script may add to the memory for its image to be made from a template. 2 MiB: a script of some
/// thousand lines.
const GROWTH: usize = 32;

/// What a compiled module that holds a memory of this size is before the memory's bytes, and after them. It is found by
/// compiling one whose memory is full of a byte.
fn template(engine: &Engine, start: u32, length: usize) -> Result<(Vec<u8>, Vec<u8>), Box<dyn Error>> {
    const FULL: u8 = 0xa5;
    let full = vec![FULL; length];
    let artifact = engine.precompile_module(&loader::Kept { start, bytes: &full }.module())?;
    let is_data =
        |at: &usize| artifact.get(*at..*at + length).is_some_and(|bytes| bytes.iter().all(|byte| *byte == FULL));
    // The engine maps the data from the file, so it lies at a page's start.
    let at = (0..artifact.len()).step_by(loader::CHUNK).find(is_data);
    let at = at.ok_or("the data of a compiled module is not where the engine could map it")?;
    let (head, rest) = artifact.split_at(at);
    let (_, tail) = rest.split_at(length);
    Ok((head.to_vec(), tail.to_vec()))
}

/// A fresh interpreter: its memory laid out, initialized, built-ins made.
fn prepared(engine: &Engine, code: &Module, memory: &Module) -> wasmtime::Result<loader::Loader> {
    let mut loader = loader::Loader::new(engine, code, memory, loader::Budget::default(), || ())?;
    if loader.instance.get_func(&mut loader.store, layers::INITIALIZE).is_some() {
        let initialize: TypedFunc<(), ()> = loader.instance.get_typed_func(&mut loader.store, layers::INITIALIZE)?;
        initialize.call(&mut loader.store, ())?;
    }
    let prepare: TypedFunc<(), ()> = loader.export("prepare")?;
    prepare.call(&mut loader.store, ())?;
    Ok(loader)
}
