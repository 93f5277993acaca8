//! Compiles the interpreter to machine code, which becomes part of the binary.
//!
//! The guest component comes from `harness-guest-build`: the prebuilt one, or one built from source where the sources
//! have changed. It is split into layers here, its code compiled, and its memory made ready by running the guest's
//! own preparation once.

#![expect(clippy::disallowed_methods, reason = "a build script reads the tree and writes to its output")]

#[path = "src/sandbox/compile.rs"]
mod compile;
#[path = "src/sandbox/loader.rs"]
#[expect(dead_code, reason = "loading a script is for the host itself")]
mod loader;

use std::error::Error;
use std::path::{Path, PathBuf};

use harness_guest_build::{COMPONENT_VARIABLE, Provenance, component, layers, prebuilt, sources};
use wasmtime::{Engine, Module, TypedFunc};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rerun-if-env-changed={COMPONENT_VARIABLE}");
    for path in sources::files(&root)? {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    for path in ["Cargo.lock", "guest/prebuilt/record.toml", "host/build.rs"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }

    let (component, provenance) = component(&root, &out.join("guest"))?;
    if let Provenance::Named(path) = &provenance {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=HARNESS_GUEST_DIGEST={}", prebuilt::hex(&component));

    let layers = layers::split(&component)?;
    let engine = Engine::new(&compile::config())?;
    let code = Module::from_binary(&engine, &layers.code)?;
    let laid_out = Module::from_binary(&engine, &layers.memory)?;
    let prepared = prepared(&engine, &code, &laid_out)?;
    std::fs::write(out.join("shell.cwasm"), engine.precompile_component(&layers.shell)?)?;
    std::fs::write(out.join("code.cwasm"), code.serialize()?)?;
    std::fs::write(out.join("memory.cwasm"), engine.precompile_module(&prepared)?)?;
    Ok(())
}

/// The memory of a fresh interpreter: laid out, initialized, built-ins made. Returns the module that holds it.
fn prepared(engine: &Engine, code: &Module, memory: &Module) -> wasmtime::Result<Vec<u8>> {
    let mut loader = loader::Loader::new(engine, code, memory)?;
    if loader.instance.get_func(&mut loader.store, layers::INITIALIZE).is_some() {
        let initialize: TypedFunc<(), ()> = loader.instance.get_typed_func(&mut loader.store, layers::INITIALIZE)?;
        initialize.call(&mut loader.store, ())?;
    }
    let prepare: TypedFunc<(), ()> = loader.export("prepare")?;
    prepare.call(&mut loader.store, ())?;
    loader.keep()
}
