//! For the tests: a Starlark program, and what it gives or how it fails.

use std::sync::LazyLock;

use serde_json::Value as Json;
use starlark::environment::{Globals, Module};
use starlark::eval::Evaluator;
use starlark::syntax::AstModule;

use crate::{dialect, globals, value};

static GLOBALS: LazyLock<Globals> = LazyLock::new(globals::build);

/// Runs a program whose last statement is an expression: its value, or the error's text.
pub(crate) fn evaluate(program: &str) -> Result<Json, String> {
    let ast = AstModule::parse("test", program.to_owned(), &dialect::DIALECT).map_err(|error| error.to_string())?;
    Module::with_temp_heap(|module| {
        let mut evaluator = Evaluator::new(&module);
        let result = evaluator.eval_module(ast, &GLOBALS).map_err(|error| error.without_diagnostic().to_string())?;
        value::to_json(result).map_err(|error| error.to_string())
    })
}

/// The program's value must be this.
#[track_caller]
pub(crate) fn check(program: &str, expected: Json) {
    assert_eq!(evaluate(program), Ok(expected), "{program}");
}

/// Each program's value must be the one beside it.
#[track_caller]
pub(crate) fn check_all<const N: usize>(cases: [(&str, Json); N]) {
    for (program, expected) in cases {
        check(program, expected);
    }
}

/// The program must fail with exactly this text.
#[track_caller]
pub(crate) fn fails(program: &str, expected: &str) {
    assert_eq!(evaluate(program), Err(expected.to_owned()), "{program}");
}

/// Each program must fail with the text beside it.
#[track_caller]
pub(crate) fn fail_all<const N: usize>(cases: [(&str, &str); N]) {
    for (program, expected) in cases {
        fails(program, expected);
    }
}
