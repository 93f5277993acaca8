//! `meta.call`, `try_call`, `parallel` and `function`: calls of tools that give their values.

use std::fmt;

use allocative::Allocative;
use serde_json::{Map, Value as Json, json};
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::list::ListRef;
use starlark::values::none::NoneOr;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, NoSerialize, ProvidesStaticType, StarlarkPagable, StarlarkValue, Value, starlark_value};
use starlark::{starlark_module, starlark_simple_value};

use super::super::{argument, import, told};
use crate::bindings::harness::sandbox::meta;
use crate::phase::{self, Needs};
use crate::record::Record;
use crate::value;

/// Calls that run at one time where the script does not say.
const LIMIT: i32 = 8;

/// What the host says of one call.
#[derive(Debug)]
enum Ended {
    Value(Json),
    Error(String),
}

#[starlark_module]
pub(super) fn functions(builder: &mut GlobalsBuilder) {
    /// The value that a tool returned. Where the call failed, this fails with what it said.
    fn call<'v>(
        name: &str,
        #[starlark(default = NoneOr::None)] arguments: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let arguments = given("meta.call", arguments)?;
        value_of("meta.call", name, arguments, heap)
    }

    /// A record with `ok`, `value` and `error`.
    fn try_call<'v>(
        name: &str,
        #[starlark(default = NoneOr::None)] arguments: NoneOr<Value<'v>>,
    ) -> anyhow::Result<Record> {
        let arguments = given("meta.try_call", arguments)?;
        one("meta.try_call", name, arguments).map(Ended::record)
    }

    /// One such record for each call, in their order.
    fn parallel<'v>(
        calls: Value<'v>,
        #[starlark(default = LIMIT)] limit: i32,
        heap: Heap<'v>,
    ) -> anyhow::Result<Vec<Value<'v>>> {
        let calls = pairs(calls)?;
        let ended = all("meta.parallel", calls, limit)?;
        Ok(ended.into_iter().map(|ended| heap.alloc(ended.record())).collect())
    }

    /// A function that calls a tool with arguments by name.
    fn function(name: &str) -> anyhow::Result<Function> {
        Ok(Function(name.to_owned()))
    }
}

/// A tool as a function.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagable)]
struct Function(String);
starlark_simple_value!(Function);

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<tool {}>", self.0)
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for Function {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let call = || {
            let by_place = args.positions(heap).map_err(starlark::Error::into_anyhow)?.count();
            anyhow::ensure!(by_place == 0, "{}: arguments are given by name, such as `{0}(name=value)`", self.0);
            let mut arguments = Map::new();
            for (name, value) in args.names_map().map_err(starlark::Error::into_anyhow)? {
                arguments.insert(name.as_str().to_owned(), told(&self.0, name.as_str(), value)?);
            }
            value_of(&self.0, &self.0, Json::Object(arguments), heap)
        };
        call().map_err(starlark::Error::new_native)
    }
}

impl Ended {
    fn read(mut answer: Json) -> Option<Self> {
        let mut field = |name| answer.get_mut(name).map(Json::take);
        match field("error") {
            Some(Json::String(error)) => Some(Self::Error(error)),
            Some(_) => None,
            None => field("value").map(Self::Value),
        }
    }

    fn record(self) -> Record {
        let (ok, value, error) = match self {
            Self::Value(value) => (true, value, Json::Null),
            Self::Error(error) => (false, Json::Null, error.into()),
        };
        let fields = [("ok", ok.into()), ("value", value), ("error", error)];
        Record(fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect())
    }
}

fn value_of<'v>(builtin: &str, name: &str, arguments: Json, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    match one(builtin, name, arguments)? {
        Ended::Value(value) => value::from_json(&value, heap),
        // It says which tool this was.
        Ended::Error(error) => anyhow::bail!("{name}: {error}"),
    }
}

fn one(builtin: &str, name: &str, arguments: Json) -> anyhow::Result<Ended> {
    let call = json!({ "name": name, "arguments": arguments });
    let ended = all(builtin, vec![call], 1)?.pop();
    ended.ok_or_else(|| anyhow::anyhow!("{builtin}: the host answered nothing"))
}

fn all(builtin: &str, calls: Vec<Json>, limit: i32) -> anyhow::Result<Vec<Ended>> {
    phase::check(builtin, Needs::Any)?;
    let asked = json!({ "calls": calls, "limit": limit });
    let answer = import(builtin, meta::call_all(&asked.to_string()))?;
    let answers = serde_json::from_str::<Vec<Json>>(&answer)?;
    let read = answers.into_iter().map(Ended::read).collect::<Option<Vec<_>>>();
    read.ok_or_else(|| anyhow::anyhow!("{builtin}: the host answered something else"))
}

/// The arguments of a call: a dict, or nothing.
fn given(builtin: &str, arguments: NoneOr<Value<'_>>) -> anyhow::Result<Json> {
    let NoneOr::Other(arguments) = arguments else { return Ok(json!({})) };
    let told = told(builtin, "arguments", arguments)?;
    anyhow::ensure!(told.is_object(), "{builtin}: arguments must be a dict, got {}", arguments.get_type());
    Ok(told)
}

/// A list of `(name, arguments)`.
fn pairs(calls: Value<'_>) -> anyhow::Result<Vec<Json>> {
    const BUILTIN: &str = "meta.parallel";
    let Some(list) = ListRef::from_value(calls) else {
        anyhow::bail!("{BUILTIN}: calls must be a list, got {}", calls.get_type());
    };
    let pair = |item: &Value<'_>| {
        let parts = TupleRef::from_value(*item)
            .map(|tuple| tuple.content().to_vec())
            .or_else(|| ListRef::from_value(*item).map(|list| list.content().to_vec()));
        let Some([name, rest @ ..]) = parts.as_deref().filter(|parts| matches!(parts.len(), 1 | 2)) else {
            anyhow::bail!("{BUILTIN}: each call must be `(name, arguments)`, got {item}");
        };
        let name = argument::text(BUILTIN, "name", *name)?;
        let arguments = rest.first().map_or(NoneOr::None, |arguments| NoneOr::Other(*arguments));
        Ok(json!({ "name": name, "arguments": given(BUILTIN, arguments)? }))
    };
    list.content().iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use crate::phase::{self, Phase};
    use crate::testing::fail_all;

    #[test]
    fn nothing_of_it_while_a_script_is_loaded() {
        let refused =
            |builtin| format!("`{builtin}` cannot be called while the script is loaded: call it in `run` or `handle`");
        fail_all([
            ("meta.call('t')", &refused("meta.call")),
            ("meta.try_call('t')", &refused("meta.try_call")),
            ("meta.parallel([])", &refused("meta.parallel")),
            ("meta.function('t')()", &refused("t")),
        ]);
    }

    #[test]
    fn arguments() {
        phase::enter(Phase::Tool);
        fail_all([
            ("meta.call('t', 'a')", "meta.call: arguments must be a dict, got string"),
            (
                "meta.try_call('t', {1: 2})",
                "meta.try_call: arguments: a dict key must be a string to be told as JSON, got int",
            ),
            ("meta.parallel('t')", "meta.parallel: calls must be a list, got string"),
            ("meta.parallel(['t'])", "meta.parallel: each call must be `(name, arguments)`, got \"t\""),
            (
                "meta.parallel([('t', {}, 1)])",
                "meta.parallel: each call must be `(name, arguments)`, got (\"t\", {}, 1)",
            ),
            ("meta.parallel([(1, {})])", "meta.parallel: name must be a string, got int"),
            ("meta.parallel([('t', [])])", "meta.parallel: arguments must be a dict, got list"),
            ("meta.function('t')(1)", "t: arguments are given by name, such as `t(name=value)`"),
            ("meta.function('t')(a = len)", "t: a: a value of type `function` cannot be told as JSON"),
        ]);
    }
}
