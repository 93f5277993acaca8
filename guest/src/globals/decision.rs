//! `allow()`, `block(reason)`, `modify(payload)`: what a hook returns. Plain dicts, which it may write out as well.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::DictRef;
use starlark::values::{Heap, Value};

use crate::observe::pure;
use crate::record::dict;
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    pure(builder, "", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn allow<'v>(heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(dict(heap, [("action", heap.alloc("allow"))]))
    }

    /// A reason that is not a string is told as its text: an error here could let through what was to be blocked.
    fn block<'v>(reason: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let reason = if reason.unpack_str().is_some() { reason } else { heap.alloc(reason.to_str()) };
        Ok(dict(heap, [("action", heap.alloc("block")), ("reason", reason)]))
    }

    fn modify<'v>(payload: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(dict(heap, [("action", heap.alloc("modify")), ("payload", payload)]))
    }
}

/// What `handle` returned, as the decision that the host reads. Anything that is not a decision lets pass, with a
/// warning: the host's strict setting may turn that into a block.
pub(crate) fn of_return(result: Value<'_>) -> anyhow::Result<String> {
    let action = DictRef::from_value(result).and_then(|dict| dict.get_str("action")).and_then(Value::unpack_str);
    let decision = match action {
        Some("allow" | "block" | "modify") => value::to_json(result)?,
        _ => {
            let found = result.get_type();
            let warning = format!("`handle` returned a value of type `{found}` that is not a decision: taken as allow");
            serde_json::json!({"action": "allow", "warning": warning})
        }
    };
    Ok(decision.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check, check_all};

    #[test]
    fn decisions() {
        check_all([
            ("allow()", json!({"action": "allow"})),
            ("block('no')", json!({"action": "block", "reason": "no"})),
            ("block(reason = '')", json!({"action": "block", "reason": ""})),
            ("block(None)", json!({"action": "block", "reason": "None"})),
            ("block(['a', 1])", json!({"action": "block", "reason": "[\"a\", 1]"})),
            ("modify({'a': [1]})", json!({"action": "modify", "payload": {"a": [1]}})),
            ("modify(payload = 'text')", json!({"action": "modify", "payload": "text"})),
            ("modify(None)", json!({"action": "modify", "payload": null})),
            ("block('no') == {'action': 'block', 'reason': 'no'}", json!(true)),
        ]);
        // The caller's own dict, not a copy.
        check("def f():\n  d = {}\n  m = modify(d)\n  d['late'] = 1\n  return m['payload']\nf()", json!({"late": 1}));
    }
}
