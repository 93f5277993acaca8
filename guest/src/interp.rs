//! Load, run, handle, when.
//!
//! What `load` leaves in memory is the start of every call, so it holds a frozen module and nothing that is bound to
//! one run. The instance is thrown away after one call; nothing here has to clean up.

use std::cell::RefCell;

use starlark::PrintHandler;
use starlark::environment::{FrozenModule, Globals, LibraryExtension, Module};
use starlark::eval::Evaluator;
use starlark::syntax::AstModule;
use starlark::values::{Heap, OwnedFrozenValue, Value};
use starlark_syntax::syntax::ast::Stmt;

use crate::bindings::exports::harness::sandbox::script::{Entry, Failure, FailureKind, Predicate, Source};
use crate::bindings::harness::sandbox::log;
use crate::diagnostic::{Place, failure, failure_at};
use crate::dialect::{self, DIALECT, MAX_CALL_DEPTH};
use crate::ending::Running;
use crate::phase::{self, Needs, Phase};
use crate::{coverage, globals, spelling, value};

/// A script that was loaded.
struct Loaded {
    place: Place,
    entry: &'static str,
    module: FrozenModule,
    when: Option<(Place, OwnedFrozenValue)>,
}

thread_local! {
    static GLOBALS: RefCell<Option<Globals>> = const { RefCell::new(None) };
    static LOADED: RefCell<Option<Loaded>> = const { RefCell::new(None) };
}

/// Builds the built-ins and runs a first script through parser, compiler and freezer, so that what these make once
/// is in the memory that every load starts from.
pub(crate) fn prepare() {
    let _ = built_ins();
    let warm_up = Source {
        file: String::new(),
        text: "def run(args):\n    return {}\n".to_owned(),
        first_line: 1,
        indent: 0,
        entry: Entry::Tool,
        predicate: None,
        coverage: false,
    };
    // In front of what is set aside: memory that loads can use, so that an image is no larger than it has to be.
    let slack = Vec::<u8>::with_capacity(SLACK);
    #[cfg(target_family = "wasm")]
    crate::allocated::set_aside();
    drop(std::hint::black_box(slack));
    let _ = load(&warm_up);
    LOADED.take();
    use_arena(false);
}

/// What a load of a script of a few hundred lines takes of the memory, in bytes.
const SLACK: usize = 512 << 10;

/// Sets whether what is allocated belongs to a call.
fn use_arena(calling: bool) {
    #[cfg(target_family = "wasm")]
    crate::allocated::use_arena(calling);
    #[cfg(not(target_family = "wasm"))]
    let _ = calling;
}

/// Parses a script, checks its dialect, runs its top level and freezes what that made.
pub(crate) fn load(source: &Source) -> Result<(), Failure> {
    phase::enter(Phase::Loading);
    use_arena(false);
    coverage::stop();
    let (place, module) = load_script(source)?;
    let when = source.predicate.as_ref().map(|predicate| load_predicate(&source.file, predicate)).transpose()?;
    let entry = match source.entry {
        Entry::Tool => "run",
        Entry::Hook => "handle",
    };
    let loaded = Loaded { place, entry, module, when };
    if source.entry == Entry::Tool {
        // A hook with another function is found out when it is first dispatched, a tool at once.
        loaded.function()?;
    }
    LOADED.set(Some(loaded));
    use_arena(true);
    Ok(())
}

/// Calls `run(args)`.
pub(crate) fn run(args: &str) -> Result<String, Failure> {
    let result = call_run(args);
    coverage::tell();
    result
}

fn call_run(args: &str) -> Result<String, Failure> {
    with_loaded(|loaded| {
        phase::enter(Phase::Tool);
        loaded.call(&[args], |result, _| returned(result))
    })
}

/// Calls `handle(event, payload)` and gives back a decision.
pub(crate) fn handle(event: &str, payload: &str) -> Result<String, Failure> {
    let result = call_handle(event, payload);
    coverage::tell();
    result
}

fn call_handle(event: &str, payload: &str) -> Result<String, Failure> {
    with_loaded(|loaded| {
        phase::enter(Phase::Hook);
        let event = serde_json::Value::from(event).to_string();
        loaded.call(&[&event, payload], |result, _| globals::decision::of_return(result))
    })
}

/// Evaluates `when`. The same instance may be asked for `handle` after it.
pub(crate) fn matches(event: &str, payload: &str) -> Result<bool, Failure> {
    with_loaded(|loaded| {
        let Some((place, when)) = &loaded.when else { return Ok(true) };
        phase::enter(Phase::Predicate);
        let event = serde_json::Value::from(event).to_string();
        call(place, when, &[&event, payload], |result, _| Ok(result.to_bool()))
    })
}

impl Loaded {
    fn function(&self) -> Result<OwnedFrozenValue, Failure> {
        let parameters = if self.entry == "run" { "args" } else { "event, payload" };
        match self.module.get_option(self.entry) {
            Ok(Some(function)) if function.value().get_type() == "function" => Ok(function),
            _ => {
                let message = format!("the script must define a function `{}({parameters})`", self.entry);
                Err(failure_at(FailureKind::EntryPoint, message, &self.place, None))
            }
        }
    }

    fn call<R>(
        &self,
        arguments: &[&str],
        finish: impl for<'v> FnOnce(Value<'v>, Heap<'v>) -> anyhow::Result<R>,
    ) -> Result<R, Failure> {
        call(&self.place, &self.function()?, arguments, finish)
    }
}

fn with_loaded<R>(call: impl FnOnce(&Loaded) -> Result<R, Failure>) -> Result<R, Failure> {
    LOADED.with_borrow(|loaded| match loaded {
        Some(loaded) => call(loaded),
        None => {
            let place = Place::nowhere();
            Err(failure_at(FailureKind::EntryPoint, "no script is loaded".to_owned(), &place, None))
        }
    })
}

/// Calls a function with JSON arguments.
fn call<R>(
    place: &Place,
    function: &OwnedFrozenValue,
    arguments: &[&str],
    finish: impl for<'v> FnOnce(Value<'v>, Heap<'v>) -> anyhow::Result<R>,
) -> Result<R, Failure> {
    Module::with_temp_heap(|module| {
        let heap = module.heap();
        let arguments = arguments
            .iter()
            .map(|text| value::from_json(&serde_json::from_str(text)?, heap))
            .collect::<anyhow::Result<Vec<Value>>>()
            .map_err(|e| failure_at(FailureKind::Value, format!("the arguments are not valid: {e:#}"), place, None))?;
        let mut evaluator = Evaluator::new(&module);
        configure(&mut evaluator);
        let function = heap.access_owned_frozen_value(function);
        let _running = Running::begin(place);
        let result = evaluator.eval_function(function, &arguments, &[]).map_err(|e| failure(&e, place))?;
        finish(result, heap).map_err(|e| failure_at(FailureKind::Value, format!("{e:#}"), place, None))
    })
}

/// The script's module, and the place that the module's spans are to be told with.
fn load_script(source: &Source) -> Result<(Place, FrozenModule), Failure> {
    let place = Place::of_script(source);
    let ast = parse(&place, &source.text)?;
    let measured = if source.coverage { coverage::start(&ast, &place) } else { None };
    let (place, ast, globals) = match measured {
        Some((marked, marks)) => (place.with_marks(marks), marked, globals::build_for_coverage()),
        None => (place, ast, built_ins()),
    };
    let module = evaluate(&place, ast, &globals)?;
    Ok((place, module))
}

fn parse(place: &Place, text: &str) -> Result<AstModule, Failure> {
    let ast =
        AstModule::parse(&place.file, spelling::readable(text, &DIALECT), &DIALECT).map_err(|e| failure(&e, place))?;
    dialect::check(&ast).map_err(|rejected| {
        failure_at(FailureKind::Syntax, rejected.message, place, Some(&ast.file_span(rejected.span)))
    })?;
    Ok(ast)
}

/// Runs a top level and freezes what that made.
fn evaluate(place: &Place, ast: AstModule, globals: &Globals) -> Result<FrozenModule, Failure> {
    Module::with_temp_heap(|module| {
        // Freezing copies all that the top level left: there may be no memory for it.
        let _running = Running::begin(place);
        {
            let mut evaluator = Evaluator::new(&module);
            configure(&mut evaluator);
            evaluator.eval_module(ast, globals).map_err(|e| failure(&e, place))?;
        }
        module.freeze().map_err(|e| failure(&e.into(), place))
    })
}

/// Lines that stand before the expression in [`load_predicate`]'s function.
const LINES_BEFORE_EXPRESSION: u32 = 2;

/// A `when` becomes a function of the event and the payload, with the language's own built-ins and no others.
fn load_predicate(file: &str, predicate: &Predicate) -> Result<(Place, OwnedFrozenValue), Failure> {
    let alone = Place::of_expression(file, predicate, 0);
    let expression = AstModule::parse(file, predicate.text.clone(), &DIALECT).map_err(|e| failure(&e, &alone))?;
    // Parsed by itself first, so that no text can close the parenthesis below and go on with something else.
    if !is_expression(expression.statement()) {
        let message = "`when` must be one expression, such as `payload[\"name\"] == \"run_command\"`".to_owned();
        return Err(failure_at(FailureKind::Syntax, message, &alone, None));
    }
    let place = Place::of_expression(file, predicate, LINES_BEFORE_EXPRESSION);
    let text = format!("def when(event, payload):\n return (\n{}\n )\n", predicate.text);
    let module = evaluate(&place, parse(&place, &text)?, &Globals::extended_by(&[LibraryExtension::SetType]))?;
    let when = module.get("when").map_err(|e| failure_at(FailureKind::Syntax, e.to_string(), &place, None))?;
    Ok((place, when))
}

fn is_expression(statement: &starlark_syntax::syntax::ast::AstStmt) -> bool {
    match &statement.node {
        Stmt::Expression(_) => true,
        Stmt::Statements(statements) => matches!(statements.as_slice(), [one] if is_expression(one)),
        _ => false,
    }
}

fn configure(evaluator: &mut Evaluator<'_, '_, '_>) {
    // One more for the function that notes a line, so that a script gets as deep as it does without. Fails only when it
    // was set before.
    let _ = evaluator.set_max_callstack_size(MAX_CALL_DEPTH + usize::from(coverage::is_on()));
    evaluator.set_print_handler(&Printed);
}

/// `print` goes to the log.
struct Printed;

impl PrintHandler for Printed {
    fn println(&self, text: &str) -> starlark::Result<()> {
        phase::check("print", Needs::Any).map_err(starlark::Error::new_native)?;
        log::write(log::Level::Info, text);
        Ok(())
    }
}

fn built_ins() -> Globals {
    GLOBALS.with_borrow_mut(|cached| cached.get_or_insert_with(globals::build).clone())
}

fn returned(result: Value<'_>) -> anyhow::Result<String> {
    match globals::content::of_return(result)? {
        Some(content) => Ok(format!("content {content}")),
        None => Ok(value::to_json(result)?.to_string()),
    }
}

#[cfg(test)]
mod tests;
