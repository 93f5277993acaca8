//! Pure built-ins that hooks hear: `builtin.pre` before a call, `builtin.post` after it.
//!
//! A built-in that reaches the host is heard there. A pure one computes in here, so the interpreter reports the call, and
//! only where the host said that a hook listens ([`listen`]): else a call costs one test of a flag more.

use std::cell::Cell;
use std::fmt;

use allocative::Allocative;
use serde_json::{Map, Value as Json, json};
use starlark::docs::{DocItem, DocMember, DocParam};
use starlark::environment::{Globals, GlobalsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::starlark_simple_value;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::{
    FrozenValue, Heap, NoSerialize, ProvidesStaticType, StarlarkPagable, StarlarkValue, Value, starlark_value,
};

use crate::bindings::harness::sandbox::observe;
use crate::globals::{ImportError, import};
use crate::value;

/// Bytes of JSON that a call may have for its hooks; the host takes no more.
const MAX_BYTES: usize = 12 << 20;

/// Lists and dicts within each other in an argument or a result: fewer than a payload may have, which holds them.
const MAX_DEPTH: usize = 100;

/// Which events have hooks.
#[derive(Debug, Clone, Copy, Default)]
struct Listening {
    before: bool,
    after: bool,
}

thread_local! {
    static LISTENING: Cell<Listening> = const { Cell::new(Listening { before: false, after: false }) };
}

/// Reports pure built-ins from now on: before each call, after it, or both.
pub(crate) fn listen(before: bool, after: bool) {
    LISTENING.set(Listening { before, after });
}

/// Adds pure functions to a namespace, or to the globals where its name is empty.
pub(crate) fn pure(builder: &mut GlobalsBuilder, namespace: &str, functions: fn(&mut GlobalsBuilder)) {
    let globals = GlobalsBuilder::new().with(functions).build();
    let mut all: Vec<(&str, FrozenValue)> = globals.iter().collect();
    all.sort_by_key(|(function, _)| *function);
    for (function, value) in all {
        let name = if namespace.is_empty() { function.to_owned() } else { format!("{namespace}.{function}") };
        let signature = Signature::of(value.to_value());
        builder.set(function, Pure { name, function: value, signature, globals: globals.clone() });
    }
}

/// A pure function.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagable)]
struct Pure {
    /// Such as `json.encode`.
    name: String,
    function: FrozenValue,
    #[allocative(skip)]
    #[starlark_pagable(skip)]
    signature: Signature,
    /// Where the function is.
    #[allocative(skip)]
    globals: Globals,
}
starlark_simple_value!(Pure);

impl fmt::Display for Pure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.function, f)
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for Pure {
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        match LISTENING.get() {
            Listening { before: false, after: false } => self.function.to_value().invoke_within(args, eval),
            listening => self.observed(listening, args, eval),
        }
    }
}

impl Pure {
    fn observed<'v>(
        &self,
        listening: Listening,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let Some(given) = self.signature.bind(args, heap) else {
            // The function itself says what is wrong with its arguments.
            return self.function.to_value().invoke_within(args, eval);
        };
        let mut arguments: Map<String, Json> =
            given.iter().map(|(name, it)| ((*name).to_owned(), shown(*it))).collect();
        let mut call = None;
        if listening.before
            && let Some(changed) = self.before(&arguments).map_err(starlark::Error::new_native)?
        {
            let others = Changed { given: &given, before: &arguments, after: &changed };
            call = Some(self.signature.call(&others, heap).ok_or_else(|| self.others())?);
            arguments = changed;
        }
        let result = match call {
            None => self.function.to_value().invoke_within(args, eval),
            Some(Call { by_place, by_name }) => eval.eval_function(self.function.to_value(), &by_place, &by_name),
        };
        if listening.after { self.after(arguments, result, heap) } else { result }
    }

    /// Asks the hooks on `builtin.pre`. Gives back the arguments where one changed them.
    fn before(&self, arguments: &Map<String, Json>) -> anyhow::Result<Option<Map<String, Json>>> {
        let text = self.within(serde_json::to_string(arguments)?)?;
        match import(&self.name, observe::before(&self.name, &text))? {
            None => Ok(None),
            Some(changed) => Ok(Some(serde_json::from_str(&changed).map_err(|_| self.not_its_arguments())?)),
        }
    }

    /// Asks the hooks on `builtin.post`. Gives back the result as they let the script have it.
    fn after<'v>(
        &self,
        arguments: Map<String, Json>,
        result: starlark::Result<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let (shown, error) = match &result {
            Ok(value) => (shown(*value), Json::Null),
            Err(error) => (Json::Null, Json::from(error.without_diagnostic().to_string())),
        };
        let ended = json!({ "arguments": arguments, "result": shown, "error": error }).to_string();
        let asked = self.within(ended).and_then(|ended| import(&self.name, observe::after(&self.name, &ended)));
        match (asked.map_err(starlark::Error::new_native)?, result) {
            (Some(changed), Ok(_)) => {
                let changed = serde_json::from_str(&changed).map_err(anyhow::Error::from);
                changed.and_then(|changed| value::from_json(&changed, heap)).map_err(starlark::Error::new_native)
            }
            // What failed has no result that could be another.
            (_, result) => result,
        }
    }

    fn within(&self, text: String) -> anyhow::Result<String> {
        let (name, bytes) = (&self.name, text.len());
        anyhow::ensure!(bytes <= MAX_BYTES, "{name}: hooks listen, and the call has {bytes} bytes, over {MAX_BYTES}");
        Ok(text)
    }

    fn not_its_arguments(&self) -> anyhow::Error {
        let name = &self.name;
        anyhow::anyhow!("{name}: the arguments that a hook on `builtin.pre` gave are not those of `{name}`")
    }

    fn others(&self) -> starlark::Error {
        starlark::Error::new_native(self.not_its_arguments())
    }
}

impl ImportError for observe::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
        }
    }
}

/// A value for a hook. What JSON has no place for, or too deep for a payload, is there as its type.
fn shown(value: Value<'_>) -> Json {
    let json = value::to_json(value).ok().filter(|json| !is_deeper(json, MAX_DEPTH));
    json.unwrap_or_else(|| Json::from(format!("<{}>", value.get_type())))
}

fn is_deeper(json: &Json, most: usize) -> bool {
    let Some(left) = most.checked_sub(1) else { return true };
    match json {
        Json::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Json::Object(fields) => fields.values().any(|field| is_deeper(field, left)),
        _ => false,
    }
}

/// The parameters of a function.
#[derive(Debug, Clone, Default)]
struct Signature {
    parameters: Vec<Parameter>,
    /// The one that takes all further arguments.
    rest: Option<String>,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: String,
    by_place: bool,
    by_name: bool,
    required: bool,
}

/// Arguments as they were, as a hook saw them, and as it changed them.
struct Changed<'a, 'v> {
    given: &'a [(&'a str, Value<'v>)],
    before: &'a Map<String, Json>,
    after: &'a Map<String, Json>,
}

/// What to call a function with.
#[derive(Debug, Default)]
struct Call<'a, 'v> {
    by_place: Vec<Value<'v>>,
    by_name: Vec<(&'a str, Value<'v>)>,
}

impl Signature {
    fn of(function: Value<'_>) -> Self {
        let DocItem::Member(DocMember::Function(docs)) = function.documentation() else { return Self::default() };
        let all = |parameters: Vec<DocParam>, by_place, by_name| {
            parameters.into_iter().map(move |DocParam { name, default_value, .. }| {
                let required = default_value.is_none();
                Parameter { name, by_place, by_name, required }
            })
        };
        let params = docs.params;
        let parameters = all(params.pos_only, true, false).chain(all(params.pos_or_named, true, true)).chain(all(
            params.named_only,
            false,
            true,
        ));
        Self { parameters: parameters.collect(), rest: params.args.map(|rest| rest.name) }
    }

    /// The arguments of a call by the names of the parameters, in their order. None where they are not this function's.
    fn bind<'s, 'v>(&'s self, args: &Arguments<'v, '_>, heap: Heap<'v>) -> Option<Vec<(&'s str, Value<'v>)>> {
        let (mut placed, named) = (args.positions(heap).ok()?, args.names_map().ok()?);
        let mut used = 0_usize;
        let mut bound = Vec::new();
        for parameter in &self.parameters {
            let by_place = if parameter.by_place { placed.next() } else { None };
            let by_name = named.iter().find(|(name, _)| parameter.by_name && name.as_str() == parameter.name);
            used += usize::from(by_name.is_some());
            match (by_place, by_name.map(|(_, value)| *value)) {
                (Some(_), Some(_)) => return None,
                (Some(value), None) | (None, Some(value)) => bound.push((parameter.name.as_str(), value)),
                (None, None) if parameter.required => return None,
                (None, None) => {}
            }
        }
        let further: Vec<Value<'v>> = placed.collect();
        match &self.rest {
            Some(name) => bound.push((name, heap.alloc(AllocList(further)))),
            None if !further.is_empty() => return None,
            None => {}
        }
        (used == named.len()).then_some(bound)
    }

    /// The call with changed arguments. None where they are not this function's. What a hook left as it was is the value
    /// that the script gave, also where JSON has no place for it.
    fn call<'s, 'v>(&'s self, changed: &Changed<'_, 'v>, heap: Heap<'v>) -> Option<Call<'s, 'v>> {
        let mut call = Call::default();
        let (mut used, mut has_gap) = (0_usize, false);
        for parameter in &self.parameters {
            match changed.value(&parameter.name, heap)? {
                Some(value) if parameter.by_place && !has_gap => call.by_place.push(value),
                Some(value) if parameter.by_name => call.by_name.push((&parameter.name, value)),
                None if !parameter.required => has_gap |= parameter.by_place,
                Some(_) | None => return None,
            }
            used += usize::from(changed.after.contains_key(&parameter.name));
        }
        if let Some(rest) = &self.rest
            && let Some(further) = changed.value(rest, heap)?
        {
            let further = ListRef::from_value(further)?;
            if has_gap && !further.is_empty() {
                return None;
            }
            call.by_place.extend(further.content());
            used += 1;
        }
        (used == changed.after.len()).then_some(call)
    }
}

impl<'v> Changed<'_, 'v> {
    /// The argument of a name, where there is one. None where what a hook gave is no value.
    fn value(&self, name: &str, heap: Heap<'v>) -> Option<Option<Value<'v>>> {
        let Some(after) = self.after.get(name) else { return Some(None) };
        let given = self.given.iter().find(|(given, _)| *given == name);
        match given.filter(|_| self.before.get(name) == Some(after)) {
            Some((_, value)) => Some(Some(*value)),
            None => Some(Some(value::from_json(after, heap).ok()?)),
        }
    }
}

#[cfg(test)]
mod tests;
