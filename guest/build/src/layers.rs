//! Splits a component into layers, so that its code is compiled once and each script has a memory of its own.
//!
//! - **code**: the interpreter, a core module that imports its memory.
//! - **memory**: a core module with a memory and its data, and no functions. What is here is the memory as the linker
//!   laid it out; the host makes another for each script, of what loading the script left.
//! - **shell**: the component, which holds the code and imports the memory.
//!
//! A component may import core modules, and wasmtime's linker supplies them without copying; the memory is mapped
//! copy-on-write. So starting from another script's memory costs no compilation.

use anyhow::{Context, Result, bail, ensure};
use wasm_encoder::reencode::{Error as ReencodeError, Reencode, utils};
use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ElementSection, Elements, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, ImportSection, MemorySection, MemoryType, Module, RefType, TableType, TypeSection,
};
use wasmparser::{DataKind, ExternalKind, Parser, Payload, TypeRef, Validator};

use crate::shell;

/// Name under which code and shell import the memory's module.
pub const MEMORY: &str = "image";
/// Name under which the shell exports the code's module.
pub const CODE: &str = "code";
/// Name under which the code exports what the linker made to run once, before anything else.
pub const INITIALIZE: &str = "harness:initialize";
/// The code exports its n-th mutable global under this name and n, for the host to see that a script left none of
/// them changed.
pub const GLOBAL: &str = "harness:global:";

/// Module name under which the code imports [`TABLE`] from the shell.
pub const SHIM: &str = "shim";
/// A table of one place, where the code puts the function that the shell allocates memory with.
pub const TABLE: &str = "table";

/// The function that allocates memory for what comes into the program.
pub(crate) const REALLOC: &str = "cabi_realloc";
/// The name by which reactors export their initialization, for whoever instantiates them to call.
const REACTOR_INITIALIZE: &str = "_initialize";

/// The layers of a component.
#[derive(Debug)]
pub struct Layers {
    /// The component, with the code and importing the memory.
    pub shell: Vec<u8>,
    /// The interpreter's core module.
    pub code: Vec<u8>,
    /// The memory before anything ran.
    pub memory: Vec<u8>,
}

/// Splits a component that `wit-component` made.
///
/// # Errors
///
/// Where the component is not of the expected shape: its first core module is the program, with one memory of its
/// own, active data only and no start function.
pub fn split(component: &[u8]) -> Result<Layers> {
    let program = first_module(component)?;
    let program = Program::parse(program)?;
    let code = code(&program)?;
    let layers = Layers { shell: shell::shell(component, &program, &code)?, code, memory: memory(&program) };
    Validator::new().validate_all(&layers.code).context("the code layer is not valid")?;
    Validator::new().validate_all(&layers.memory).context("the memory layer is not valid")?;
    Validator::new().validate_all(&layers.shell).context("the shell is not valid")?;
    Ok(layers)
}

/// The core module that stands first in a component.
fn first_module(component: &[u8]) -> Result<&[u8]> {
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::ModuleSection { unchecked_range, .. } = payload? {
            let range = usize::try_from(unchecked_range.start)?..usize::try_from(unchecked_range.end)?;
            return component.get(range).context("the component is cut short");
        }
    }
    bail!("the component holds no core module")
}

/// What is needed to know of the program's core module.
pub(crate) struct Program<'a> {
    bytes: &'a [u8],
    pub(crate) memory: MemoryType,
    data: Vec<(i32, &'a [u8])>,
    /// Module, name and type of each import.
    pub(crate) imports: Vec<(&'a str, &'a str, EntityType)>,
    /// Name, kind, index and type of each export.
    pub(crate) exports: Vec<(&'a str, ExternalKind, u32, EntityType)>,
    /// Index of the function that runs once before all others, where the linker made one.
    initialize: Option<u32>,
    /// Indices of the globals that can change.
    mutable_globals: Vec<u32>,
    /// Function types, for the module type that the shell declares.
    pub(crate) types: Vec<wasmparser::FuncType>,
    functions: u32,
    realloc: u32,
}

/// The table that code and shell share.
pub(crate) fn shared_table() -> TableType {
    TableType { element_type: RefType::FUNCREF, table64: false, minimum: 1, maximum: Some(1), shared: false }
}

impl<'a> Program<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut memories = Vec::new();
        let mut data = Vec::new();
        let mut imports = Vec::new();
        let mut raw_exports = Vec::new();
        let mut types = Vec::new();
        let mut function_types: Vec<u32> = Vec::new();
        let mut globals = Vec::new();
        let mut stack = None;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::TypeSection(section) => {
                    for ty in section.into_iter_err_on_gc_types() {
                        types.push(ty?);
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        let TypeRef::Func(ty) = import.ty else {
                            bail!("the program imports {}/{}, which is not a function", import.module, import.name)
                        };
                        function_types.push(ty);
                        imports.push((import.module, import.name, EntityType::Function(ty)));
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section {
                        function_types.push(ty?);
                    }
                }
                Payload::MemorySection(section) => {
                    for memory in section {
                        memories.push(memory?);
                    }
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        let global = global?;
                        if globals.is_empty() {
                            // The linker puts the stack pointer first.
                            if let wasmparser::Operator::I32Const { value } =
                                global.init_expr.get_operators_reader().read()?
                            {
                                stack = Some(value);
                            }
                        }
                        globals.push(global.ty);
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        raw_exports.push(export?);
                    }
                }
                Payload::StartSection { .. } => bail!("the program has a start function"),
                Payload::DataSection(section) => {
                    for segment in section {
                        let segment = segment?;
                        let DataKind::Active { memory_index: 0, offset_expr } = segment.kind else {
                            bail!("the program has data that is copied on demand")
                        };
                        let mut offset = offset_expr.get_operators_reader();
                        let wasmparser::Operator::I32Const { value } = offset.read()? else {
                            bail!("the place of a data segment is not a constant")
                        };
                        data.push((value, segment.data));
                    }
                }
                _ => {}
            }
        }
        let [memory] = memories.as_slice() else { bail!("the program has {} memories, not one", memories.len()) };
        let memory = memory_type(*memory);
        // What is below the stack pointer at the start is left out of images.
        let lowest = data.iter().map(|(offset, _)| *offset).min();
        ensure!(stack.is_some() && lowest >= stack, "the program's stack does not come first in its memory");
        let mut exports = Vec::new();
        let mut initialize = None;
        for export in raw_exports {
            let get = |list: &[u32]| list.get(export.index as usize).copied();
            let ty = match export.kind {
                ExternalKind::Func => EntityType::Function(get(&function_types).context("an export has no type")?),
                ExternalKind::Memory => EntityType::Memory(memory),
                ExternalKind::Table | ExternalKind::Global => continue, // nobody links to these
                _ => bail!("the program exports `{}`, of a kind that is not expected", export.name),
            };
            if export.name == REACTOR_INITIALIZE {
                initialize = Some(export.index);
            }
            exports.push((export.name, export.kind, export.index, ty));
        }
        let mutable_globals = globals.iter().zip(0..).filter(|(ty, _)| ty.mutable).map(|(_, index)| index).collect();
        let functions = u32::try_from(function_types.len())?;
        let realloc = exports.iter().find(|(name, ..)| *name == REALLOC).map(|(_, _, index, _)| *index);
        let realloc = realloc.with_context(|| format!("the program exports no `{REALLOC}`"))?;
        Ok(Self { bytes, memory, data, imports, exports, initialize, mutable_globals, types, functions, realloc })
    }
}

fn memory_type(ty: wasmparser::MemoryType) -> MemoryType {
    MemoryType {
        minimum: ty.initial,
        maximum: ty.maximum,
        memory64: ty.memory64,
        shared: ty.shared,
        page_size_log2: ty.page_size_log2,
    }
}

/// The memory and its data, and nothing else.
fn memory(program: &Program<'_>) -> Vec<u8> {
    let mut memories = MemorySection::new();
    memories.memory(program.memory);
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    let mut data = DataSection::new();
    for (offset, bytes) in &program.data {
        data.active(0, &wasm_encoder::ConstExpr::i32_const(*offset), bytes.iter().copied());
    }
    let mut module = Module::new();
    module.section(&memories).section(&exports).section(&data);
    module.finish()
}

/// The program, with its memory imported and its data left out. Its function that allocates memory goes into the shared
/// table.
fn code(program: &Program<'_>) -> Result<Vec<u8>> {
    let mut module = Module::new();
    let mut rewriting = Code { program, imported: false, shared: false };
    rewriting.parse_core_module(&mut module, Parser::new(0), program.bytes).map_err(told)?;
    ensure!(rewriting.imported && rewriting.shared, "the program has no imports, or no table");
    Ok(module.finish())
}

fn told(error: ReencodeError<std::convert::Infallible>) -> anyhow::Error {
    anyhow::anyhow!("cannot rewrite the component: {error}")
}

/// Rewrites the program's module section by section.
struct Code<'a> {
    program: &'a Program<'a>,
    imported: bool,
    shared: bool,
}

impl Reencode for Code<'_> {
    type Error = std::convert::Infallible;

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        utils::parse_type_section(self, types, section)?;
        // The type of the function that stands in for the initialization.
        types.ty().function([], []);
        Ok(())
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: wasmparser::ImportSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        utils::parse_import_section(self, imports, section)?;
        imports.import(MEMORY, "memory", self.program.memory);
        imports.import(SHIM, TABLE, shared_table());
        self.imported = true;
        Ok(())
    }

    /// The shared table is imported, and so comes before the program's own.
    fn table_index(&mut self, table: u32) -> Result<u32, ReencodeError<Self::Error>> {
        Ok(table.saturating_add(1))
    }

    fn parse_element_section(
        &mut self,
        elements: &mut ElementSection,
        section: wasmparser::ElementSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        utils::parse_element_section(self, elements, section)?;
        // Last, so that what fills the program's own table is still known when the code is compiled.
        elements.active(Some(0), &ConstExpr::i32_const(0), Elements::Functions((&[self.program.realloc][..]).into()));
        self.shared = true;
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        utils::parse_function_section(self, functions, section)?;
        functions.function(u32::try_from(self.program.types.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    fn parse_memory_section(
        &mut self,
        _memories: &mut MemorySection,
        _section: wasmparser::MemorySectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        _section: wasmparser::ExportSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        for (name, kind, index, _) in &self.program.exports {
            // The memory of a script was initialized before it was kept; doing it again would undo what was loaded.
            let index = if *name == REACTOR_INITIALIZE { self.program.functions } else { *index };
            let kind = if *kind == ExternalKind::Memory { ExportKind::Memory } else { ExportKind::Func };
            exports.export(name, kind, index);
        }
        if let Some(initialize) = self.program.initialize {
            exports.export(INITIALIZE, ExportKind::Func, initialize);
        }
        for (n, global) in self.program.mutable_globals.iter().enumerate() {
            exports.export(&format!("{GLOBAL}{n}"), ExportKind::Global, *global);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        utils::parse_code_section(self, code, section)?;
        let mut nothing = Function::new([]);
        nothing.instructions().end();
        code.function(&nothing);
        Ok(())
    }

    fn parse_data_section(
        &mut self,
        _data: &mut DataSection,
        _section: wasmparser::DataSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        Ok(())
    }

    fn data_count(&mut self, _count: u32) -> Result<u32, ReencodeError<Self::Error>> {
        Ok(0)
    }
}
