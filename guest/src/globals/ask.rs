//! `ask.user`, `ask.model`, `ask.roots`, and `ask.all` for several of them at once: questions to the client of a call.

use serde_json::{Value as Json, json};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::{ImportError, argument, import, told};
use crate::bindings::harness::sandbox::ask;
use crate::phase::{self, Needs};
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("ask", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A dict with `action`, and with `content` where that is `accept`.
    fn user<'v>(
        message: Value<'v>,
        schema: Value<'v>,
        #[starlark(default = NoneOr::None)] key: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let builtin = "ask.user";
        phase::check(builtin, Needs::Tool)?;
        let message = argument::text(builtin, "message", message)?;
        one(builtin, json!({ "user": message, "schema": told(builtin, "schema", schema)? }), key, heap)
    }

    /// A dict with `text`, `model` and `stop_reason`.
    fn model<'v>(
        prompt: Value<'v>,
        #[starlark(default = NoneOr::None)] system: NoneOr<Value<'v>>,
        #[starlark(default = 1000)] max_tokens: u32,
        #[starlark(default = NoneOr::None)] key: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let builtin = "ask.model";
        phase::check(builtin, Needs::Tool)?;
        let mut question = json!({ "model": told(builtin, "prompt", prompt)?, "max_tokens": max_tokens });
        insert(&mut question, builtin, "system", system)?;
        one(builtin, question, key, heap)
    }

    /// A list of dicts with `uri` and `name`.
    fn roots<'v>(
        #[starlark(default = NoneOr::None)] key: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        phase::check("ask.roots", Needs::Tool)?;
        one("ask.roots", json!({ "roots": true }), key, heap)
    }

    /// Some of `user`, `model` and `roots`.
    fn can() -> anyhow::Result<Vec<String>> {
        phase::check("ask.can", Needs::Tool)?;
        import("ask.can", ask::can())
    }

    /// The answers, in the order of the questions: dicts with what the other functions take.
    fn all<'v>(questions: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("ask.all", Needs::Tool)?;
        let questions = told("ask.all", "questions", questions)?;
        anyhow::ensure!(questions.is_array(), "ask.all: questions must be a list");
        let answers: Json = serde_json::from_str(&import("ask.all", ask::ask(&questions.to_string()))?)?;
        value::from_json(&answers, heap)
    }
}

fn insert(question: &mut Json, builtin: &str, name: &str, given: NoneOr<Value<'_>>) -> anyhow::Result<()> {
    if let (NoneOr::Other(given), Json::Object(question)) = (given, question) {
        question.insert(name.to_owned(), argument::text(builtin, name, given)?.into());
    }
    Ok(())
}

fn one<'v>(builtin: &str, mut question: Json, key: NoneOr<Value<'v>>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    insert(&mut question, builtin, "key", key)?;
    let answers: Vec<Json> =
        serde_json::from_str(&import(builtin, ask::ask(&Json::Array(vec![question]).to_string()))?)?;
    value::from_json(answers.first().unwrap_or(&Json::Null), heap)
}

impl ImportError for ask::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::Invalid(why) | Self::Unavailable(why) | Self::Failed(why) => (why, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::phase::{self, Phase};
    use crate::testing::fail_all;

    #[test]
    fn not_in_a_hook() {
        phase::enter(Phase::Hook);
        let why = "is not there in a hook: hooks inspect and decide, they run and change nothing";
        fail_all([
            ("ask.user('a', {})", &*format!("`ask.user` {why}")),
            ("ask.model('a')", &*format!("`ask.model` {why}")),
            ("ask.roots()", &*format!("`ask.roots` {why}")),
            ("ask.all([])", &*format!("`ask.all` {why}")),
            ("ask.can()", &*format!("`ask.can` {why}")),
        ]);
    }

    #[test]
    fn arguments() {
        phase::enter(Phase::Tool);
        fail_all([
            ("ask.user(1, {})", "ask.user: message must be a string, got int"),
            ("ask.user('a', len)", "ask.user: schema: a value of type `function` cannot be told as JSON"),
            ("ask.model('a', system = 1)", "ask.model: system must be a string, got int"),
            ("ask.roots(key = 1)", "ask.roots: key must be a string, got int"),
            ("ask.all({})", "ask.all: questions must be a list"),
        ]);
    }
}
