//! Components out of a few lines of WebAssembly text, under the contract in `wit/`.

use std::path::Path;
use std::sync::OnceLock;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Resolve, WorldId, WorldItem};

/// The contract.
pub(crate) fn contract() -> &'static (Resolve, WorldId) {
    static CONTRACT: OnceLock<(Resolve, WorldId)> = OnceLock::new();
    CONTRACT.get_or_init(|| {
        let mut resolve = Resolve::default();
        // Tests of several packages include this file.
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("wit"));
        let (package, _) = resolve.push_dir(folders.find(|wit| wit.is_dir()).unwrap()).unwrap();
        let world = resolve.packages[package].worlds["interpreter"];
        (resolve, world)
    })
}

/// Functions for guests. A result of a `result<string, error>` lies at 512: which case at 0, its string at 8 and 12, or
/// the case of its error at 8. What `run` gives lies at 64.
const PRELUDE: &str = r#"
    (func $give (param $at i32) (param $length i32) (result i32)
        (i32.store8 (i32.const 64) (i32.const 0))
        (i32.store (i32.const 68) (local.get $at))
        (i32.store (i32.const 72) (local.get $length))
        (i32.const 64))
    (func $say (param $what i32) (result i32)
        ;; 0: denied, 1: another error, 2: fine
        (call $give (i32.add (i32.const 96) (i32.mul (local.get $what) (i32.const 8))) (i32.const 6)))
    (data (i32.const 96) "denied  errors  passed  ")
    (func $say_json (param $what i32) (result i32)
        (call $give (i32.add (i32.const 128) (i32.mul (local.get $what) (i32.const 8))) (i32.const 8)))
    (data (i32.const 128) "\"denied\"\"errors\"\"passed\"")
    ;; The same of a result whose error holds no `u64`, such as those of `meta`: which case of the error at 516, the string
    ;; at 516 and 520.
    (func $judged (result i32)
        (if (result i32) (i32.load8_u (i32.const 512))
            (then (call $say_json (i32.ne (i32.load8_u (i32.const 516)) (i32.const 0))))
            (else (call $say_json (i32.const 2)))))
    (func $quoted (result i32)
        (if (i32.load8_u (i32.const 512)) (then (return (call $judged))))
        (i32.store8 (i32.sub (i32.load (i32.const 516)) (i32.const 1)) (i32.const 34))
        (i32.store8 (i32.add (i32.load (i32.const 516)) (i32.load (i32.const 520))) (i32.const 34))
        (call $give (i32.sub (i32.load (i32.const 516)) (i32.const 1)) (i32.add (i32.load (i32.const 520)) (i32.const 2))))
    (func $told (result i32)
        (if (result i32) (i32.load8_u (i32.const 512))
            (then (call $say (i32.ne (i32.load8_u (i32.const 520)) (i32.const 0))))
            (else (call $give (i32.load (i32.const 520)) (i32.load (i32.const 524))))))
"#;

const REALLOC: &str = r#"
    (global $free (mut i32) (i32.const 32768))
    (func (export "cabi_realloc") (param $old i32) (param $was i32) (param $align i32) (param $size i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and
            (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
            (i32.sub (i32.const 0) (local.get $align))))
        (global.set $free (i32.add (local.get $at) (local.get $size)))
        (local.get $at))
"#;

/// A component from the inside of a core module.
pub(crate) fn component(imports: &[String], inside: &str) -> Vec<u8> {
    let (resolve, world) = contract();
    let world = *world;
    let exports = ["prepare", "load", "report-place", "listen", "run", "handle", "matches"];
    let mut text = "(module\n".to_owned();
    for import in imports {
        text.push_str(&import_of(import));
    }
    let mut inside = inside.to_owned();
    for (name, empty) in exports.into_iter().zip([
        "(func (export \"prepare\"))",
        "(func (export \"load\") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)",
        "(func (export \"report-place\"))",
        "(func (export \"listen\") (param i32 i32))",
        "(func (export \"run\") (param i32 i32) (result i32) (call $say (i32.const 2)))",
        "(func (export \"handle\") (param i32 i32 i32 i32) (result i32) (call $say (i32.const 2)))",
        "(func (export \"matches\") (param i32 i32 i32 i32) (result i32) (i32.store8 (i32.const 64) (i32.const 0)) \
         (i32.store8 (i32.const 68) (i32.const 1)) (i32.const 64))",
    ]) {
        if !inside.contains(&format!("(export \"{name}\")")) {
            inside.push_str(empty);
            inside.push('\n');
        }
        inside = inside
            .replace(&format!("(export \"{name}\")"), &format!("(export \"harness:sandbox/script@0.1.0#{name}\")"));
    }
    if !inside.contains("(export \"memory\")") {
        text.push_str("(memory (export \"memory\") 2)\n");
    }
    text.push_str(PRELUDE);
    if !inside.contains("(export \"cabi_realloc\")") {
        text.push_str(REALLOC);
    }
    text.push_str(&inside);
    text.push(')');
    let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"));
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .unwrap()
        .encode()
        .unwrap_or_else(|error| panic!("{error:?}"))
}

/// A function of the contract, such as `fs.read`, and the interface that it is of as a module names it.
pub(crate) fn function(name: &str) -> (String, &'static Function) {
    let (resolve, world) = contract();
    let (wanted, function) = name.split_once('.').unwrap();
    let found = resolve.worlds[*world].imports.values().find_map(|item| {
        let WorldItem::Interface { id, .. } = item else { return None };
        let interface = &resolve.interfaces[*id];
        let function = interface.functions.get(function).filter(|_| interface.name.as_deref() == Some(wanted))?;
        Some((resolve.id_of(*id).unwrap(), function))
    });
    found.unwrap_or_else(|| panic!("the contract has no `{name}`"))
}

/// A function of the contract as a core module imports it.
fn import_of(name: &str) -> String {
    let (module, function) = function(name);
    let signature = contract().0.wasm_signature(AbiVariant::GuestImport, function);
    let types = |types: &[WasmType]| {
        let words = types.iter().map(|one| match one {
            WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
            WasmType::I64 | WasmType::PointerOrI64 => "i64",
            WasmType::F32 => "f32",
            WasmType::F64 => "f64",
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let (params, results, function) = (types(&signature.params), types(&signature.results), &function.name);
    format!("(import \"{module}\" \"{function}\" (func ${name} (param {params}) (result {results})))\n")
}
