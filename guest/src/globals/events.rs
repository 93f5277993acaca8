//! `events.emit` and `emit`: an event of the script's own, for the project's hooks to decide on.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::{ImportError, import, told};
use crate::bindings::harness::sandbox::events;
use crate::phase::{self, Needs};
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("events", functions);
    globals(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// Gives back the payload as the hooks left it.
    fn emit<'v>(
        event: &str,
        #[starlark(default = NoneOr::None)] payload: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        fire("events.emit", event, payload, heap)
    }
}

#[starlark_module]
fn globals(builder: &mut GlobalsBuilder) {
    /// The same by a shorter name.
    fn emit<'v>(
        event: &str,
        #[starlark(default = NoneOr::None)] payload: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        fire("emit", event, payload, heap)
    }
}

fn fire<'v>(builtin: &str, event: &str, payload: NoneOr<Value<'v>>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    phase::check(builtin, Needs::Any)?;
    let payload = told(builtin, "payload", payload.into_option().unwrap_or_else(Value::new_none))?;
    let answer = import(builtin, events::emit(event, &payload.to_string()))?;
    value::from_json(&serde_json::from_str(&answer)?, heap)
}

impl ImportError for events::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::Invalid(why) => (why, false),
            Self::TooDeep(levels) => {
                let text = format!(
                    "events within events, deeper than {levels} levels: does a hook of this event emit it again?"
                );
                (text, false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::phase::{self, Phase};
    use crate::testing::fail_all;

    #[test]
    fn not_while_a_script_is_loaded() {
        fail_all([
            (
                "events.emit('saved')",
                "`events.emit` cannot be called while the script is loaded: call it in `run` or `handle`",
            ),
            ("emit('saved')", "`emit` cannot be called while the script is loaded: call it in `run` or `handle`"),
        ]);
    }

    #[test]
    fn a_payload_is_json() {
        phase::enter(Phase::Hook);
        fail_all([
            ("events.emit('saved', len)", "events.emit: payload: a value of type `function` cannot be told as JSON"),
            (
                "emit('saved', payload = {1: 2})",
                "emit: payload: a dict key must be a string to be told as JSON, got int",
            ),
        ]);
    }
}
