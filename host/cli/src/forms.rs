//! Questions of tools to the person at the terminal: forms, a line for each field.

use std::future::Future;
use std::io::IsTerminal;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use harness_artifact::escape;
use harness_capability::ask::{Asked, Question};
use harness_dispatch::ask::{Respondent, Unanswered};
use serde_json::{Map, Value as Json, json};

use super::confirm::{AtTerminal, GivenUp, Line, forget_typed, line};
use super::printer::Printer;
use super::progress;

/// Asks the person who has called a tool.
#[derive(Debug)]
pub(crate) struct Forms {
    printer: Printer,
    /// Whose turn it is to ask.
    terminal: Arc<AtTerminal>,
}

impl Forms {
    pub(crate) fn new(terminal: Arc<AtTerminal>, printer: Printer) -> Arc<Self> {
        Arc::new(Self { printer, terminal })
    }
}

fn is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

impl Respondent for Forms {
    fn can(&self) -> Vec<&'static str> {
        if is_there() { vec!["user"] } else { Vec::new() }
    }

    fn ask<'a>(
        &'a self,
        questions: &'a [Asked],
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Json>, Unanswered>> + Send + 'a>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for asked in questions {
                let Question::User { message, schema } = &asked.question else {
                    let whom = asked.question.whom();
                    let why = format!("`ask.{whom}` is for clients of `harness mcp serve`: a terminal has none");
                    return Err(Unanswered::Unavailable(why));
                };
                if !is_there() {
                    let why = "nobody can be asked here: call the tool at a terminal, or from a client that answers";
                    return Err(Unanswered::Unavailable(why.to_owned()));
                }
                let turn = self.terminal.turn().await;
                let (printer, message, schema) = (self.printer, message.clone(), schema.clone());
                let given_up = GivenUp::default();
                let seen = given_up.seen();
                let filled = tokio::task::spawn_blocking(move || {
                    let _turn = turn;
                    fill_in(printer, &message, &schema, &seen)
                });
                answers.push(filled.await.map_err(|error| Unanswered::Failed(error.to_string()))?);
            }
            Ok(answers)
        })
    }
}

/// Asks for each field, until there is an answer or nobody waits for it. On another thread: it waits for a person.
fn fill_in(printer: Printer, message: &str, schema: &Map<String, Json>, given_up: &AtomicBool) -> Json {
    let cancelled = || json!({"action": "cancel"});
    if given_up.load(Ordering::SeqCst) {
        return cancelled();
    }
    let _typing = printer.typing();
    let _quiet = progress::quiet();
    printer.ask(&format!("{}\n", escape::text(message)));
    printer.ask("(an empty line leaves a field out, the end of input cancels)\n");
    let required: Vec<&str> =
        schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    let mut content = Map::new();
    for (name, field) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
        let is_required = required.contains(&name.as_str());
        loop {
            let _shown = forget_typed();
            printer.ask(&format!("{}: ", prompt(name, field, is_required)));
            let Line::Typed(text) = line(printer, given_up) else { return cancelled() };
            match value(field, text.trim()) {
                Ok(Some(value)) => {
                    content.insert(name.clone(), value);
                    break;
                }
                Ok(None) if is_required => printer.ask("this field is required\n"),
                Ok(None) => break,
                Err(why) => printer.ask(&format!("{}\n", escape::line(&why))),
            }
        }
    }
    json!({"action": "accept", "content": content})
}

/// `color (red or green, required)`.
fn prompt(name: &str, field: &Json, is_required: bool) -> String {
    let kind = match choices(field) {
        Some(choices) => choices.join(" or "),
        None => field.get("type").and_then(Json::as_str).unwrap_or_default().to_owned(),
    };
    let many = if is_list(field) { ", separated by commas" } else { "" };
    let required = if is_required { ", required" } else { "" };
    let default = field.get("default").map(|default| format!(", default {default}")).unwrap_or_default();
    escape::line(&format!("{name} ({kind}{many}{required}{default})")).into_owned()
}

fn is_list(field: &Json) -> bool {
    field.get("type").and_then(Json::as_str) == Some("array")
}

/// What a field may be, where it says that.
fn choices(field: &Json) -> Option<Vec<String>> {
    let field = if is_list(field) { field.get("items")? } else { field };
    let named = |all: &Vec<Json>| {
        all.iter().filter_map(|one| one.get("const").and_then(Json::as_str)).map(str::to_owned).collect()
    };
    let plain = |all: &Vec<Json>| all.iter().filter_map(Json::as_str).map(str::to_owned).collect();
    let listed = |key: &str| field.get(key).and_then(Json::as_array);
    listed("enum").map(plain).or_else(|| listed("oneOf").or_else(|| listed("anyOf")).map(named))
}

/// What a line says of a field; nothing where it is empty and there is no default.
fn value(field: &Json, text: &str) -> Result<Option<Json>, String> {
    if text.is_empty() {
        return Ok(field.get("default").cloned());
    }
    let choices = choices(field);
    let one = |text: &str| match &choices {
        Some(choices) if !choices.iter().any(|choice| choice == text) => {
            Err(format!("`{text}` is none of {}", choices.join(", ")))
        }
        _ => Ok(Json::from(text)),
    };
    let value = match field.get("type").and_then(Json::as_str) {
        Some("array") => Json::Array(text.split(',').map(|text| one(text.trim())).collect::<Result<_, _>>()?),
        Some("boolean") => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => json!(true),
            "n" | "no" | "false" => json!(false),
            _ => return Err(format!("`{text}` is neither yes nor no")),
        },
        Some(kind @ ("number" | "integer")) => {
            let number = serde_json::from_str(text).ok().filter(Json::is_number);
            let number = number.filter(|number: &Json| kind == "number" || number.is_i64() || number.is_u64());
            number.ok_or_else(|| format!("`{text}` is not a valid {kind}"))?
        }
        _ => one(text)?,
    };
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_its_field_is() {
        let color = json!({"type": "string", "enum": ["red", "green"]});
        let named = json!({"type": "string", "oneOf": [{"const": "a", "title": "An a"}]});
        let many = json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}});
        for (field, text, want) in [
            (json!({"type": "string"}), "a b", Ok(Some(json!("a b")))),
            (json!({"type": "string"}), "", Ok(None)),
            (json!({"type": "integer", "default": 3}), "", Ok(Some(json!(3)))),
            (json!({"type": "integer"}), "-4", Ok(Some(json!(-4)))),
            (json!({"type": "integer"}), "1.5", Err("`1.5` is not a valid integer".to_owned())),
            (json!({"type": "number"}), "1.5", Ok(Some(json!(1.5)))),
            (json!({"type": "number"}), "[1]", Err("`[1]` is not a valid number".to_owned())),
            (json!({"type": "boolean"}), "Yes", Ok(Some(json!(true)))),
            (json!({"type": "boolean"}), "n", Ok(Some(json!(false)))),
            (json!({"type": "boolean"}), "maybe", Err("`maybe` is neither yes nor no".to_owned())),
            (color.clone(), "red", Ok(Some(json!("red")))),
            (color.clone(), "blue", Err("`blue` is none of red, green".to_owned())),
            (named, "a", Ok(Some(json!("a")))),
            (many.clone(), "a, b", Ok(Some(json!(["a", "b"])))),
            (many.clone(), "a, c", Err("`c` is none of a, b".to_owned())),
        ] {
            assert_eq!(value(&field, text), want, "{field} {text}");
        }
        assert_eq!(prompt("color", &color, true), "color (red or green, required)");
        assert_eq!(prompt("all", &many, false), "all (a or b, separated by commas)");
        assert_eq!(
            prompt("n\u{1b}", &json!({"type": "integer", "default": 3}), false),
            "n\\u{1b} (integer, default 3)"
        );
    }
}
