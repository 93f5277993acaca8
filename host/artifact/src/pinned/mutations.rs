//! Random mutations of what is locked: none is missed, and the order of keys is none.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value as Json, json};

use super::{Pinned, PinnedEndpoint};
use crate::definition::Definition;

/// Mutations in the suite, and in the long run.
const CASES: u32 = 1_000;
const ALL: u32 = 10_000;

/// Any value of a definition.
fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        "[1-9][0-9]{0,30}(\\.[0-9]{1,9})?".prop_map(|text| serde_json::from_str(&text).unwrap()),
        "[ -~äé\n]{0,12}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec(("[a-zA-Z$_/~ ]{0,6}", inner), 0..4)
                .prop_map(|pairs| Json::Object(pairs.into_iter().collect())),
        ]
    })
}

fn definition(name: String) -> impl Strategy<Value = Json> {
    (value(), value(), "[ -~]{0,20}").prop_map(move |(properties, meta, description)| {
        let mut definition = json!({
            "name": name, "description": description,
            "inputSchema": {"type": "object", "properties": properties},
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "title": description},
            "_meta": {"com.example/a": meta},
        });
        definition["outputSchema"] = json!({"type": "object", "maxProperties": 3});
        definition
    })
}

/// A server with two tools, as JSON of each.
fn server() -> impl Strategy<Value = (Vec<Json>, Vec<String>, Option<String>)> {
    let tools = (definition("one".to_owned()), definition("two".to_owned())).prop_map(|(one, two)| vec![one, two]);
    (tools, prop::collection::vec("[ -~]{1,12}", 1..4), prop::option::of("[ -~\n]{1,40}"))
}

fn pinned(tools: &[Json], (command, program): (&[String], &str), instructions: Option<&str>) -> Result<Pinned, String> {
    Ok(Pinned {
        server: "s".to_owned(),
        endpoint: PinnedEndpoint::Command { command: command.to_vec(), program: program.to_owned(), packages: None },
        version: "2026-07-28".to_owned(),
        instructions: instructions.map(str::to_owned),
        tools: tools.iter().map(|tool| Definition::read(tool.clone())).collect::<Result<_, _>>()?,
    })
}

/// How many values and keys there are.
fn places(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(places).sum::<usize>(),
        Json::Object(object) => 1 + object.values().map(|value| 1 + places(value)).sum::<usize>(),
        _ => 1,
    }
}

/// One byte of a text is another one.
fn another_byte(text: &str, index: Index, byte: u8) -> String {
    let bytes = text.as_bytes();
    if bytes.is_empty() {
        return char::from(byte).to_string();
    }
    let at = text.floor_char_boundary(index.index(bytes.len()));
    let mut changed: Vec<char> = text.chars().collect();
    let place = text.get(..at).unwrap().chars().count();
    changed[place] = if changed[place] == char::from(byte) { '~' } else { char::from(byte) };
    let changed: String = changed.into_iter().collect();
    if changed == text { format!("{text}x") } else { changed }
}

/// A value with one value or key of it changed, that of this number.
fn mutated(value: &Json, at: &mut usize, index: Index, byte: u8) -> Json {
    let is_here = *at == 0;
    *at = at.wrapping_sub(1);
    match value {
        Json::Null if is_here => json!(false),
        Json::Bool(is) if is_here => json!(!is),
        // Another number, or the same as a text.
        Json::Number(number) if is_here => match byte % 2 {
            0 => json!(number.to_string()),
            _ => serde_json::from_str(&format!("{number}1")).unwrap(),
        },
        Json::String(text) if is_here => json!(another_byte(text, index, byte)),
        Json::Array(items) if is_here => {
            let mut items = items.clone();
            match (items.pop(), byte % 2) {
                (Some(last), 0) => items.extend([last, Json::Null]),
                (Some(_), _) => {}
                (None, _) => items.push(Json::Null),
            }
            Json::Array(items)
        }
        Json::Object(object) if is_here => {
            let mut object = object.clone();
            match (object.keys().next_back().cloned(), byte % 2) {
                (Some(last), 1) => drop(object.shift_remove(&last)),
                _ => drop(object.insert("a new key".to_owned(), Json::Null)),
            }
            Json::Object(object)
        }
        Json::Array(items) => items.iter().map(|item| mutated(item, at, index, byte)).collect(),
        Json::Object(object) => {
            let mut changed = Map::new();
            for (key, value) in object {
                let is_key = *at == 0;
                *at = at.wrapping_sub(1);
                let mut key = key.clone();
                if is_key {
                    key = another_byte(&key, index, byte);
                    while object.contains_key(&key) {
                        key.push('x');
                    }
                }
                changed.insert(key, mutated(value, at, index, byte));
            }
            Json::Object(changed)
        }
        other => other.clone(),
    }
}

/// The same value with the keys of each object in another order.
fn reordered(value: &Json, by: usize) -> Json {
    match value {
        Json::Array(items) => items.iter().map(|item| reordered(item, by)).collect(),
        Json::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            let count = keys.len().max(1);
            keys.rotate_left(by % count);
            if by % 2 == 1 {
                keys.reverse();
            }
            Json::Object(keys.into_iter().map(|key| (key.clone(), reordered(&object[key], by))).collect())
        }
        other => other.clone(),
    }
}

/// Makes so many mutations, and asks after each whether it is seen; and changes the order of keys, which is to be none.
fn no_mutation_is_missed(cases: u32) {
    let config = ProptestConfig { cases, max_global_rejects: cases * 4, ..ProptestConfig::default() };
    let given = (server(), 0_u8..6, any::<Index>(), any::<Index>(), 32_u8..127);
    let tested = proptest::test_runner::TestRunner::new(config).run(&given, |(server, which, place, index, byte)| {
        let (tools, command, instructions) = server;
        let mut program = format!("sha256:{}", "0".repeat(64));
        let locked = match pinned(&tools, (&command, &program), instructions.as_deref()) {
            Ok(locked) => locked,
            // What may not be locked cannot change.
            Err(_) => return Err(TestCaseError::reject("not a definition")),
        };
        let by = usize::from(byte);
        let mut other: Vec<Json> = tools.iter().map(|tool| reordered(tool, by)).collect();
        other.rotate_left(by % 2);
        let same = pinned(&other, (&command, &program), instructions.as_deref()).map_err(TestCaseError::fail)?;
        prop_assert_eq!(locked.changes(&same), vec![]);

        let (mut tools, mut command, mut instructions) = (tools, command, instructions);
        match which {
            0 => {
                let word = place.index(command.len());
                command[word] = another_byte(&command[word], index, byte);
            }
            1 => instructions = Some(another_byte(instructions.as_deref().unwrap_or_default(), index, byte)),
            2 => program = another_byte(&program, index, byte),
            _ => {
                let tool = usize::from(which) % 2;
                let mut at = place.index(places(&tools[tool]));
                tools[tool] = mutated(&tools[tool], &mut at, index, byte);
            }
        }
        // One that is refused as a whole is seen too.
        if let Ok(now) = pinned(&tools, (&command, &program), instructions.as_deref()) {
            prop_assert!(!locked.changes(&now).is_empty());
        }
        Ok(())
    });
    if let Err(missed) = tested {
        panic!("{missed}");
    }
}

#[test]
fn no_mutation_of_a_thousand_is_missed() {
    no_mutation_is_missed(CASES);
}

#[test]
#[ignore = "ten times as many: cargo test --release --lib ten_thousand -- --ignored"]
fn no_mutation_of_ten_thousand_is_missed() {
    no_mutation_is_missed(ALL);
}
