//! Host calls that hooks listen to: `builtin.pre` before each, `builtin.post` after it.
//!
//! The host fires them itself, at the function that is called, with the parameters that it takes and the answer that it
//! gives: what a guest says of itself has no part in it. They are fired only for tools, and only where a hook listens.

use serde_json::{Map, Value as Json};
use wasmtime::{Result, StoreContextMut};

use super::State;
use crate::measure::{Answer, Measure, Subject};
use crate::meter::{Meter, pay};
use crate::occupant::{Occupant, Occupied};
use crate::price::{Import, Seen};
use harness_capability::denial::Denial;
use harness_capability::reentry::Ended;
use harness_policy::refusal::Refusal;

/// What hooks were told of a call that is to be made.
pub(super) struct Heard {
    function: &'static str,
    arguments: Json,
}

/// Asks the hooks on `builtin.pre`. Gives back what is called, or the answer where they are against it, and what they were
/// told.
pub(super) async fn before<P: Measure + Subject, A: Answer>(
    store: &mut StoreContextMut<'_, Occupant>,
    meter: &mut Meter,
    import: Import,
    params: P,
) -> Result<(P, Option<A>, Option<Heard>)> {
    let (Seen::As(function, names), Some(reentry)) = (import.facts().seen, store.state()?.context.reentry.clone())
    else {
        return Ok((params, None, None));
    };
    let wire = serde_json::to_value(&params).unwrap_or_default();
    let arguments = named(&wire, names);
    let left = store.state()?.allowance(store.get_fuel()?);
    let (decided, used) = reentry.before(function, arguments.clone(), left).await;
    pay(store, used)?;
    match decided {
        Ok(None) => Ok((params, None, Some(Heard { function, arguments }))),
        Ok(Some(changed)) => {
            let given = wired(&wire, names, &changed).and_then(|wire| serde_json::from_value::<P>(wire).ok());
            let Some(given) = given else {
                let why = format!("the arguments that a hook on `builtin.pre` gave are not those of `{function}`");
                return Ok((params, refused(Refusal::always(why).into()), None));
            };
            meter.change(store, &given)?;
            Ok((given, None, Some(Heard { function, arguments: changed })))
        }
        Err(denial) => Ok((params, refused(denial), None)),
    }
}

/// Asks the hooks on `builtin.post`. Gives back the answer as they let the script have it.
pub(super) async fn after<A: Answer>(
    store: &mut StoreContextMut<'_, Occupant>,
    import: Import,
    heard: Option<Heard>,
    answer: A,
) -> Result<A> {
    let (Some(Heard { function, arguments }), Some(reentry)) = (heard, store.state()?.context.reentry.clone()) else {
        return Ok(answer);
    };
    let wire = serde_json::to_value(&answer).unwrap_or_default();
    let result = match &wire {
        Json::Object(parts) if parts.len() == 1 && parts.contains_key("Err") => {
            let denied = answer.denial().map(|denial| denial.reason.clone());
            Err(denied.unwrap_or_else(|| parts.get("Err").map(Json::to_string).unwrap_or_default()))
        }
        Json::Object(parts) if parts.len() == 1 => Ok(parts.get("Ok").cloned().unwrap_or_default()),
        _ => Ok(Json::Null),
    };
    let failed = result.is_err();
    let left = store.state()?.allowance(store.get_fuel()?);
    let (decided, used) = reentry.after(Ended { function, arguments, result }, left).await;
    pay(store, used)?;
    let denial = match decided {
        Ok(None) => return Ok(answer),
        Ok(Some(result)) if !failed => {
            let changed = serde_json::from_value::<A>(serde_json::json!({ "Ok": result })).ok();
            let state = store.state()?;
            match changed.filter(|answer| fits(import, answer, state)) {
                Some(changed) => return Ok(changed),
                None => {
                    let why = format!("the result that a hook on `builtin.post` gave is not one of `{function}`");
                    Refusal::always(why).into()
                }
            }
        }
        // What failed has no result that could be another.
        Ok(Some(_)) => return Ok(answer),
        Err(denial) => denial,
    };
    store.state_mut()?.refusal = Some(Refusal { reason: denial.reason.clone(), hint: denial.hint.clone() });
    Ok(refused(denial).unwrap_or(answer))
}

/// What a call answers that a hook is against.
fn refused<A: Answer>(denial: Denial) -> Option<A> {
    A::refused(denial).or_else(A::nothing)
}

fn fits(import: Import, answer: &impl Answer, state: &State) -> bool {
    answer.bytes() <= import.price().max_out.bytes(state.limits.file_bytes)
}

/// Parameters under the names that authors give them.
fn named(wire: &Json, names: &[&str]) -> Json {
    let named = |values: &mut dyn Iterator<Item = &Json>| {
        names.iter().map(|name| (*name).to_owned()).zip(values.cloned()).collect::<Map<_, _>>()
    };
    Json::Object(match wire {
        Json::Array(all) => match all.as_slice() {
            [Json::Object(record)] => named(&mut record.values()),
            values => named(&mut values.iter()),
        },
        _ => Map::new(),
    })
}

/// The same back, where all of them are there and nothing else is.
fn wired(wire: &Json, names: &[&str], arguments: &Json) -> Option<Json> {
    let arguments = arguments.as_object().filter(|arguments| arguments.len() == names.len())?;
    let values = names.iter().map(|name| arguments.get(*name).cloned()).collect::<Option<Vec<Json>>>()?;
    Some(match wire {
        Json::Array(all) => match all.as_slice() {
            [Json::Object(record)] => {
                let record: Map<_, _> = record.keys().cloned().zip(values).collect();
                Json::Array(vec![Json::Object(record)])
            }
            _ => Json::Array(values),
        },
        _ => Json::Null,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_have_the_names_of_their_authors_and_come_back() {
        for (wire, names, arguments) in [
            (json!(null), &[][..], json!({})),
            (json!(["a", "b"]), &["path", "content"][..], json!({"path": "a", "content": "b"})),
            (json!([{"program": "ls", "args": []}]), &["cmd", "args"], json!({"cmd": "ls", "args": []})),
            (json!([null]), &["name"], json!({"name": null})),
        ] {
            assert_eq!(named(&wire, names), arguments);
            assert_eq!(wired(&wire, names, &arguments), Some(wire));
        }
        assert_eq!(wired(&json!(["a"]), &["path"], &json!({"other": 1})), None);
        assert_eq!(wired(&json!(["a"]), &["path"], &json!({"path": 1, "other": 1})), None);
        assert_eq!(wired(&json!(["a"]), &["path"], &json!("a")), None);
    }
}
