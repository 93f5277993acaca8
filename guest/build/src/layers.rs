//! Splits a component into layers, so that its code is compiled once and each script has a memory of its own.
//!
//! - **code**: the interpreter, a core module that imports its memory.
//! - **memory**: a core module with a memory and its data, and no functions. What is here is the memory as the linker
//!   laid it out; the host makes another for each script, of what loading the script left.
//! - **shell**: the component, which imports the other two and is otherwise what it was.
//!
//! A component may import core modules, and wasmtime's linker supplies them without copying; the memory is mapped
//! copy-on-write. So starting from another script's memory costs no compilation.

use anyhow::{Context, Result, bail, ensure};
use wasm_encoder::reencode::{Error as ReencodeError, Reencode, ReencodeComponent, utils};
use wasm_encoder::{
    CodeSection, Component, ComponentImportSection, ComponentTypeRef, CoreTypeSection, DataSection, EntityType,
    ExportKind, ExportSection, Function, FunctionSection, ImportSection, InstanceSection, MemorySection, MemoryType,
    Module, ModuleArg, ModuleType, TypeSection,
};
use wasmparser::{DataKind, ExternalKind, Parser, Payload, TypeRef, Validator};

/// Name under which code and shell import the memory's module.
pub const MEMORY: &str = "image";
/// Name under which the shell imports the code's module.
pub const CODE: &str = "code";
/// Name under which the code exports what the linker made to run once, before anything else.
pub const INITIALIZE: &str = "harness:initialize";
/// The code exports its n-th mutable global under this name and n, for the host to see that a script left none of
/// them changed.
pub const GLOBAL: &str = "harness:global:";

/// The name by which reactors export their initialization, and by which a component's adapter calls it.
const REACTOR_INITIALIZE: &str = "_initialize";

/// The layers of a component.
#[derive(Debug)]
pub struct Layers {
    /// The component, importing code and memory.
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
    let layers = Layers { shell: shell(component, &program)?, code: code(&program)?, memory: memory(&program) };
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
struct Program<'a> {
    bytes: &'a [u8],
    memory: wasmparser::MemoryType,
    data: Vec<(i32, &'a [u8])>,
    /// Module, name and type of each import.
    imports: Vec<(&'a str, &'a str, EntityType)>,
    /// Name, kind, index and type of each export.
    exports: Vec<(&'a str, ExternalKind, u32, EntityType)>,
    /// Index of the function that runs once before all others, where the linker made one.
    initialize: Option<u32>,
    /// Indices of the globals that can change.
    mutable_globals: Vec<u32>,
    /// Function types, for the module type that the shell declares.
    types: Vec<wasmparser::FuncType>,
    functions: u32,
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
        let mut tables = Vec::new();
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
                Payload::TableSection(section) => {
                    for table in section {
                        tables.push(table?.ty);
                    }
                }
                Payload::MemorySection(section) => {
                    for memory in section {
                        memories.push(memory?);
                    }
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        globals.push(global?.ty);
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
        let mut exports = Vec::new();
        let mut initialize = None;
        for export in raw_exports {
            let get = |list: &[u32]| list.get(export.index as usize).copied();
            let ty = match export.kind {
                ExternalKind::Func => EntityType::Function(get(&function_types).context("an export has no type")?),
                ExternalKind::Memory => EntityType::Memory(memory_type(*memory)),
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
        Ok(Self { bytes, memory: *memory, data, imports, exports, initialize, mutable_globals, types, functions })
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
    memories.memory(memory_type(program.memory));
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

/// The program, with its memory imported and its data left out.
fn code(program: &Program<'_>) -> Result<Vec<u8>> {
    let mut module = Module::new();
    let mut rewriting = Code { program, imported: false };
    rewriting.parse_core_module(&mut module, Parser::new(0), program.bytes).map_err(told)?;
    Ok(module.finish())
}

fn told(error: ReencodeError<std::convert::Infallible>) -> anyhow::Error {
    anyhow::anyhow!("cannot rewrite the component: {error}")
}

/// Rewrites the program's module section by section.
struct Code<'a> {
    program: &'a Program<'a>,
    imported: bool,
}

impl Code<'_> {
    fn import_memory(&self, imports: &mut ImportSection) {
        imports.import(MEMORY, "memory", memory_type(self.program.memory));
    }
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
        self.import_memory(imports);
        self.imported = true;
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

/// The component, with its program replaced by imports.
fn shell(component: &[u8], program: &Program<'_>) -> Result<Vec<u8>> {
    let mut out = Component::new();
    let mut rewriting = Shell { program, depth: 0, replaced: false, instantiated: false };
    rewriting.parse_component(&mut out, Parser::new(0), component).map_err(told)?;
    ensure!(rewriting.replaced && rewriting.instantiated, "the component does not instantiate its program");
    Ok(out.finish())
}

/// Rewrites the component. Core modules: the program, 0, becomes the import of the code; the memory is imported next,
/// so that all others move up by one. Core instances: the memory's comes first, so that all others move up by one.
struct Shell<'a> {
    program: &'a Program<'a>,
    /// Components within the component; they hold no core modules or instances of their own.
    depth: u32,
    replaced: bool,
    instantiated: bool,
}

const CODE_MODULE: u32 = 0;
const MEMORY_MODULE: u32 = 1;
const MEMORY_INSTANCE: u32 = 0;

impl Shell<'_> {
    fn module_types(&self) -> CoreTypeSection {
        let program = self.program;
        let mut code = ModuleType::new();
        for ty in &program.types {
            let value =
                |ty: &wasmparser::ValType| wasm_encoder::ValType::try_from(*ty).unwrap_or(wasm_encoder::ValType::I32);
            code.ty().function(ty.params().iter().map(value), ty.results().iter().map(value));
        }
        for (module, name, ty) in &program.imports {
            code.import(module, name, *ty);
        }
        code.import(MEMORY, "memory", EntityType::Memory(memory_type(program.memory)));
        for (name, _, _, ty) in &program.exports {
            code.export(name, *ty);
        }
        let mut memory = ModuleType::new();
        memory.export("memory", EntityType::Memory(memory_type(program.memory)));
        let mut types = CoreTypeSection::new();
        types.ty().module(&code);
        types.ty().module(&memory);
        types
    }
}

impl Reencode for Shell<'_> {
    type Error = std::convert::Infallible;
}

impl ReencodeComponent for Shell<'_> {
    fn push_depth(&mut self) {
        self.depth += 1;
    }

    fn pop_depth(&mut self) {
        self.depth -= 1;
    }

    fn module_index(&mut self, index: u32) -> u32 {
        if index == CODE_MODULE { index } else { index + 1 }
    }

    fn instance_index(&mut self, index: u32) -> u32 {
        index + 1
    }

    fn parse_component_submodule(
        &mut self,
        component: &mut Component,
        parser: Parser,
        module: &[u8],
    ) -> Result<(), ReencodeError<Self::Error>> {
        if self.depth > 0 || self.replaced {
            // The adapter and the shims stay as they are, byte for byte.
            let _ = parser;
            component.section(&wasm_encoder::RawSection {
                id: wasm_encoder::ComponentSectionId::CoreModule.into(),
                data: module,
            });
            return Ok(());
        }
        self.replaced = true;
        component.section(&self.module_types());
        let mut imports = ComponentImportSection::new();
        imports.import(CODE, ComponentTypeRef::Module(0));
        imports.import(MEMORY, ComponentTypeRef::Module(1));
        component.section(&imports);
        let mut instances = InstanceSection::new();
        instances.instantiate::<_, &str>(MEMORY_MODULE, []);
        component.section(&instances);
        Ok(())
    }

    fn parse_instance(
        &mut self,
        instances: &mut InstanceSection,
        instance: wasmparser::Instance<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        match instance {
            wasmparser::Instance::Instantiate { module_index: CODE_MODULE, args } => {
                self.instantiated = true;
                let mut named: Vec<(&str, ModuleArg)> =
                    args.iter().map(|arg| (arg.name, ModuleArg::Instance(self.instance_index(arg.index)))).collect();
                named.push((MEMORY, ModuleArg::Instance(MEMORY_INSTANCE)));
                instances.instantiate(CODE_MODULE, named);
                Ok(())
            }
            other => wasm_encoder::reencode::component_utils::parse_instance(self, instances, other),
        }
    }
}
