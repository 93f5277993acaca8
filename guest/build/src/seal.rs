//! Closes the module to WASI 0.1: each of its functions that the module imports is replaced by one of the module's own.

use std::convert::Infallible;

use anyhow::{Context, Result, ensure};
use wasm_encoder::reencode::{Error as ReencodeError, Reencode, utils};
use wasm_encoder::{ExportSection, ImportSection, Module};
use wasmparser::{ExternalKind, Parser, Payload, TypeRef, Validator};

/// The module name of WASI 0.1.
const WASI: &str = "wasi_snapshot_preview1";

/// Puts what a module exports as `wasi_snapshot_preview1#NAME` in the place of its import NAME of WASI 0.1, and exports
/// it no longer.
///
/// # Errors
///
/// Where an import has no function to take its place, or one of another type.
pub fn seal(module: &[u8]) -> Result<Vec<u8>> {
    let mut sealing = Seal::plan(module)?;
    let mut sealed = Module::new();
    sealing
        .parse_core_module(&mut sealed, Parser::new(0), module)
        .map_err(|error: ReencodeError| anyhow::anyhow!("cannot rewrite the module: {error}"))?;
    let sealed = sealed.finish();
    Validator::new().validate_all(&sealed).context("a function that answers for WASI has another type than it")?;
    Ok(sealed)
}

/// Rewrites the module.
struct Seal {
    /// The new index of each function.
    functions: Vec<u32>,
}

impl Seal {
    fn plan(module: &[u8]) -> Result<Self> {
        /// A function of the module as it is: an import of WASI, or one that stays.
        enum Was<'a> {
            Wasi(&'a str),
            Kept,
        }
        let mut functions = Vec::new();
        let mut answers = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        if matches!(import.ty, TypeRef::Func(_)) {
                            let wasi = import.module == WASI;
                            functions.push(if wasi { Was::Wasi(import.name) } else { Was::Kept });
                        }
                    }
                }
                Payload::FunctionSection(section) => functions.extend((0..section.count()).map(|_| Was::Kept)),
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if let (Some(name), ExternalKind::Func) = (answered(export.name), export.kind) {
                            answers.push((name, export.index));
                        }
                    }
                }
                _ => {}
            }
        }
        let mut kept = 0..;
        let moved: Vec<Option<u32>> =
            functions.iter().map(|was| if let Was::Kept = was { kept.next() } else { None }).collect();
        let new = functions.iter().zip(&moved).map(|(was, index)| match was {
            Was::Kept => index.context("a function without an index"),
            Was::Wasi(name) => {
                let answer = answers.iter().find(|(answered, _)| answered == name).with_context(|| {
                    format!("the module imports `{WASI}.{name}`, and nothing in guest/src/system.rs answers it")
                })?;
                let index = moved.get(answer.1 as usize).copied().flatten();
                index.with_context(|| format!("the answer to `{WASI}.{name}` is itself an import"))
            }
        });
        let functions = new.collect::<Result<Vec<u32>>>()?;
        ensure!(!functions.is_empty(), "the module has no functions");
        Ok(Self { functions })
    }
}

/// The function of WASI that an export answers for.
fn answered(export: &str) -> Option<&str> {
    export.strip_prefix(WASI)?.strip_prefix('#')
}

impl Reencode for Seal {
    type Error = Infallible;

    fn function_index(&mut self, index: u32) -> Result<u32, ReencodeError<Infallible>> {
        // One that is not there is left for the validation to find.
        Ok(self.functions.get(index as usize).copied().unwrap_or(u32::MAX))
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: wasmparser::ImportSectionReader<'_>,
    ) -> Result<(), ReencodeError<Infallible>> {
        for import in section.into_imports() {
            let import = import?;
            if import.module != WASI {
                utils::parse_import(self, imports, import)?;
            }
        }
        Ok(())
    }

    fn parse_export(
        &mut self,
        exports: &mut ExportSection,
        export: wasmparser::Export<'_>,
    ) -> Result<(), ReencodeError<Infallible>> {
        match answered(export.name) {
            Some(_) => Ok(()),
            None => utils::parse_export(self, exports, export),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(text: &str) -> Result<String> {
        let module = seal(&wat::parse_str(text).unwrap())?;
        let mut imports = Vec::new();
        for payload in Parser::new(0).parse_all(&module) {
            if let Payload::ImportSection(section) = payload? {
                imports.extend(section.into_imports().map(|import| import.unwrap().name.to_owned()));
            }
        }
        Ok(imports.join(" "))
    }

    const CALLER: &str = r#"
        (import "other" "before" (func $before))
        (import "wasi_snapshot_preview1" "sched_yield" (func $wasi (result i32)))
        (import "other" "after" (func $after))
        (func (export "run") (result i32) (call $before) (call $after) (call $wasi))
        (func $answer (result i32) (i32.const 7))"#;

    #[test]
    fn an_import_of_wasi_becomes_the_module_s_own_function() {
        let text = format!(r#"(module {CALLER} (export "wasi_snapshot_preview1#sched_yield" (func $answer)))"#);
        assert_eq!(sealed(&text).unwrap(), "before after");
    }

    #[test]
    fn an_import_that_nothing_answers_ends_the_build() {
        let told = sealed(&format!("(module {CALLER})")).unwrap_err().to_string();
        assert_eq!(
            told,
            "the module imports `wasi_snapshot_preview1.sched_yield`, and nothing in guest/src/system.rs answers it"
        );
    }

    #[test]
    fn an_answer_of_another_type_ends_the_build() {
        let text = format!(
            r#"(module {CALLER} (func $other (result i64) (i64.const 7))
                (export "wasi_snapshot_preview1#sched_yield" (func $other)))"#
        );
        let told = sealed(&text).unwrap_err().to_string();
        assert_eq!(told, "a function that answers for WASI has another type than it");
    }
}
