//! The shell: a component that starts from a memory that is given to it.
//!
//! `wit-component` has to link functions that read the program's memory before there is a program, and so puts a table
//! of stand-ins between the two: three entries for each import, made anew in every instance. Here the memory is a
//! module of its own that comes first, so the imports are linked to the code directly. Only the function that
//! allocates memory for what an import gives back is the program's own; it is called through a table of one place,
//! which the code fills when it is instantiated.
//!
//! ```text
//! image: memory        shim: a table, `realloc` that calls what is in it
//!          \            /
//!      imports, linked with both
//!                 |
//! code: memory, table, imports ──► the exports
//! ```

use anyhow::{Context, Result, bail, ensure};
use wasm_encoder::reencode::{ReencodeComponent, RoundtripReencoder};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, CanonicalOption, CodeSection, Component, ComponentAliasSection,
    ComponentExportKind, ComponentExportSection, ComponentImportSection, ComponentSectionId, ComponentTypeRef,
    CoreTypeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection, InstanceSection, Module,
    ModuleArg, ModuleSection, ModuleType, RawSection, TableSection, TypeSection, ValType,
};
use wasmparser::{CanonicalFunction, ComponentAlias, ComponentExternalKind, ExternalKind, Instance, Parser, Payload};

use crate::layers::{CODE, MEMORY, Program, REALLOC, SHIM, TABLE, shared_table};

/// Core modules of the shell, in order.
const CODE_MODULE: u32 = 0;
const MEMORY_MODULE: u32 = 1;
const SHIM_MODULE: u32 = 2;
/// Its first core instances.
const MEMORY_INSTANCE: u32 = 0;
const SHIM_INSTANCE: u32 = 1;
/// Its first core function: the shim's.
const SHIM_REALLOC: u32 = 0;

/// The component of a program, with this as its code and with its memory as an import.
pub(crate) fn shell(component: &[u8], program: &Program<'_>, code: &[u8]) -> Result<Vec<u8>> {
    let mut shell = Shell::new(program, code);
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        match &payload {
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } if depth > 0 => depth += 1,
            _ if depth > 0 => {}
            // Code, stand-ins and what fills them in: all of these are made anew.
            Payload::ModuleSection { .. } => depth += 1,
            Payload::ComponentSection { .. } => {
                shell.copy(component, &payload)?;
                depth += 1;
            }
            _ => shell.rewrite(component, &payload)?,
        }
    }
    shell.finish()
}

/// What a core function of the component was.
enum Was<'a> {
    /// An export of the program.
    Program(&'a str),
    /// A stand-in, or a linked import.
    Other,
}

/// Rewrites the component at its top level. All indices but those of core modules, instances and functions stay.
struct Shell<'a> {
    program: &'a Program<'a>,
    code: &'a [u8],
    out: Component,
    /// Functions of imported instances: the index of the instance and the name of the function.
    functions: Vec<(u32, &'a str)>,
    /// Names of the imported instances.
    instances: Vec<&'a str>,
    /// The core functions, by their index in the component as it was.
    were: Vec<Was<'a>>,
    /// Core instances of the component as it was, and which of them is the program.
    core_instances: u32,
    was_program: Option<u32>,
    linked: Option<Linked>,
}

/// Name, kind and index of what a core instance exports.
type Export<'a> = (&'a str, ExportKind, u32);

/// Indices of what has been linked.
struct Linked {
    code: u32,
    realloc: u32,
    /// Core functions so far.
    functions: u32,
}

impl<'a> Shell<'a> {
    fn new(program: &'a Program<'a>, code: &'a [u8]) -> Self {
        Self {
            program,
            code,
            out: Component::new(),
            functions: Vec::new(),
            instances: Vec::new(),
            were: Vec::new(),
            core_instances: 0,
            was_program: None,
            linked: None,
        }
    }

    /// With the code as an export of its own, because scripts are loaded by it outside of the component.
    fn finish(mut self) -> Result<Vec<u8>> {
        ensure!(self.linked.is_some(), "the component exports no function of its program");
        let mut exports = ComponentExportSection::new();
        exports.export(CODE, ComponentExportKind::Module, CODE_MODULE, None);
        self.out.section(&exports);
        Ok(self.out.finish())
    }

    /// A section as it is.
    fn copy(&mut self, component: &[u8], payload: &Payload<'_>) -> Result<()> {
        let (id, range) = payload.as_section().context("a part of the component that is not a section")?;
        let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
        let data = component.get(range).context("the component is cut short")?;
        self.out.section(&RawSection { id, data });
        Ok(())
    }

    fn rewrite(&mut self, component: &'a [u8], payload: &Payload<'a>) -> Result<()> {
        match payload {
            Payload::Version { .. } | Payload::CustomSection(_) => {}
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    let import = import?;
                    if matches!(import.ty, wasmparser::ComponentTypeRef::Instance(_)) {
                        self.instances.push(import.name.name);
                    }
                }
                self.copy(component, payload)?;
            }
            Payload::ComponentAliasSection(section) => {
                let mut aliases = ComponentAliasSection::new();
                for alias in section.clone() {
                    let alias = alias?;
                    match &alias {
                        ComponentAlias::CoreInstanceExport { kind, instance_index, name } => {
                            if *kind == ExternalKind::Func {
                                let of_program = self.was_program == Some(*instance_index);
                                self.were.push(if of_program { Was::Program(name) } else { Was::Other });
                            }
                            continue;
                        }
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Func, instance_index, name } => {
                            self.functions.push((*instance_index, name));
                        }
                        _ => {}
                    }
                    let alias = RoundtripReencoder.component_alias(alias);
                    aliases.alias(alias.map_err(|error| anyhow::anyhow!("cannot rewrite an alias: {error}"))?);
                }
                self.out.section(&aliases);
            }
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    if matches!(instance?, Instance::Instantiate { module_index: CODE_MODULE, .. }) {
                        self.was_program = Some(self.core_instances);
                    }
                    self.core_instances += 1;
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section.clone() {
                    match function? {
                        CanonicalFunction::Lift { core_func_index, type_index, options } => {
                            self.lift(core_func_index, type_index, &options)?;
                        }
                        _ => self.were.push(Was::Other),
                    }
                }
            }
            _ => self.copy(component, payload)?,
        }
        Ok(())
    }

    /// Exports a function of the program.
    fn lift(&mut self, function: u32, ty: u32, options: &[wasmparser::CanonicalOption]) -> Result<()> {
        let mut linked = match self.linked.take() {
            Some(linked) => linked,
            // What is imported is known by now.
            None => self.link()?,
        };
        let function = self.of_program(&mut linked, function)?;
        let mut lifted = Vec::new();
        for option in options {
            lifted.push(match option {
                wasmparser::CanonicalOption::Memory(_) => CanonicalOption::Memory(0),
                wasmparser::CanonicalOption::Realloc(_) => CanonicalOption::Realloc(linked.realloc),
                wasmparser::CanonicalOption::PostReturn(after) => {
                    CanonicalOption::PostReturn(self.of_program(&mut linked, *after)?)
                }
                wasmparser::CanonicalOption::UTF8 => CanonicalOption::UTF8,
                other => bail!("an export with an option that is not expected: {other:?}"),
            });
        }
        let mut canonical = CanonicalFunctionSection::new();
        canonical.lift(function, ty, lifted);
        self.out.section(&canonical);
        self.linked = Some(linked);
        Ok(())
    }

    /// The core function that was the program's export.
    fn of_program(&mut self, linked: &mut Linked, was: u32) -> Result<u32> {
        let Some(Was::Program(name)) = self.were.get(was as usize) else {
            bail!("the component exports a function that is not the program's")
        };
        Ok(alias(&mut self.out, &mut linked.functions, linked.code, name))
    }

    /// Memory and shim, the imports linked with them, and the code with all of these.
    fn link(&mut self) -> Result<Linked> {
        let program = self.program;
        // A module of the component's own: what it is linked with is known when it is compiled, where an imported one
        // is linked by name in every instance.
        self.out.section(&RawSection { id: ComponentSectionId::CoreModule.into(), data: self.code });
        self.out.section(&self.memory_type());
        let mut imports = ComponentImportSection::new();
        imports.import(MEMORY, ComponentTypeRef::Module(0));
        self.out.section(&imports);
        self.out.section(&ModuleSection(&shim()));
        let mut instances = InstanceSection::new();
        instances.instantiate::<_, &str>(MEMORY_MODULE, []);
        instances.instantiate::<_, &str>(SHIM_MODULE, []);
        self.out.section(&instances);
        let mut functions = 0;
        let mut aliases = ComponentAliasSection::new();
        let memory = Alias::CoreInstanceExport { instance: MEMORY_INSTANCE, kind: ExportKind::Memory, name: "memory" };
        aliases.alias(memory);
        self.out.section(&aliases);
        alias(&mut self.out, &mut functions, SHIM_INSTANCE, REALLOC);

        // Each import, linked, and an instance for each module that the code knows them by.
        let mut canonical = CanonicalFunctionSection::new();
        let mut modules: Vec<(&str, Vec<Export<'_>>)> = Vec::new();
        for (module, name, _) in &program.imports {
            let instance = self.instances.iter().position(|imported| imported == module);
            let function = self
                .functions
                .iter()
                .position(|(of, function)| function == name && usize::try_from(*of).ok() == instance);
            let function = function.with_context(|| format!("the component does not import `{module}` `{name}`"))?;
            let options = [CanonicalOption::Memory(0), CanonicalOption::Realloc(SHIM_REALLOC), CanonicalOption::UTF8];
            canonical.lower(u32::try_from(function)?, options);
            let export = (*name, ExportKind::Func, functions);
            functions += 1;
            match modules.iter_mut().find(|(known, _)| known == module) {
                Some((_, exports)) => exports.push(export),
                None => modules.push((module, vec![export])),
            }
        }
        self.out.section(&canonical);
        let mut instances = InstanceSection::new();
        let mut arguments =
            vec![(MEMORY, ModuleArg::Instance(MEMORY_INSTANCE)), (SHIM, ModuleArg::Instance(SHIM_INSTANCE))];
        let mut next = SHIM_INSTANCE + 1;
        for (module, exports) in modules {
            instances.export_items(exports);
            arguments.push((module, ModuleArg::Instance(next)));
            next += 1;
        }
        instances.instantiate(CODE_MODULE, arguments);
        self.out.section(&instances);
        let realloc = alias(&mut self.out, &mut functions, next, REALLOC);
        Ok(Linked { code: next, realloc, functions })
    }

    /// What the memory's module must be.
    fn memory_type(&self) -> CoreTypeSection {
        let mut memory = ModuleType::new();
        memory.export("memory", EntityType::Memory(self.program.memory));
        let mut types = CoreTypeSection::new();
        types.ty().module(&memory);
        types
    }
}

/// A core function of a core instance: its index.
fn alias(out: &mut Component, functions: &mut u32, instance: u32, name: &str) -> u32 {
    let mut aliases = ComponentAliasSection::new();
    aliases.alias(Alias::CoreInstanceExport { instance, kind: ExportKind::Func, name });
    out.section(&aliases);
    let index = *functions;
    *functions += 1;
    index
}

/// A table, and a function that calls what is in its only place.
fn shim() -> Module {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut tables = TableSection::new();
    tables.table(shared_table());
    let mut exports = ExportSection::new();
    exports.export(REALLOC, ExportKind::Func, 0).export(TABLE, ExportKind::Table, 0);
    let mut realloc = Function::new([]);
    let mut body = realloc.instructions();
    for parameter in 0..4 {
        body.local_get(parameter);
    }
    body.i32_const(0).call_indirect(0, 0).end();
    let mut code = CodeSection::new();
    code.function(&realloc);
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&tables).section(&exports).section(&code);
    module
}
