//! Go to definition: tools, hooks, agents and skills where others name them.

use harness_artifact::diagnostic::Position;
use harness_registry::Registry;

use crate::complete::{Asked, calls_tool};
use crate::cursor::{Step, What};
use crate::script;

/// A name at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its bytes in the text.
    pub(crate) range: std::ops::Range<usize>,
    /// The artifacts of that name, at least one.
    pub(crate) found: Vec<Artifact>,
}

/// An artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Artifact {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) at: Position,
}

/// The kinds that a name may be of, the likeliest first.
const ANY: [&str; 4] = ["tool", "hook", "agent", "skill"];

/// What is named at a position.
pub(crate) fn at(asked: &Asked<'_>) -> Option<Named> {
    let registry = asked.registry?;
    let cursor = asked.cursor()?;
    let (start, line) = asked.line();
    let at = asked.offset.saturating_sub(start);
    let here = |range: std::ops::Range<usize>| range.start.saturating_add(start)..range.end.saturating_add(start);
    if cursor.is_in_script() {
        let quoted = script::quoted_at(line, at)?;
        let kinds: &[&str] = match quoted.callee {
            "delegate" | "delegate_async" => &["agent"],
            callee if calls_tool(callee) => &["tool"],
            _ => &ANY,
        };
        return named(registry, kinds, quoted.text, here(quoted.range));
    }
    if cursor.what == What::Text {
        return None;
    }
    let (word, range) = scalar(line, at)?;
    let is_key =
        cursor.what == What::KeyOrValue && line.get(range.end..)?.trim_start_matches(['"', '\'']).starts_with(':');
    let keys: Vec<&str> = cursor
        .path
        .iter()
        .filter_map(|step| if let Step::Key(key) = step { Some(key.as_str()) } else { None })
        .collect();
    let kinds: &[&str] = match keys.as_slice() {
        [.., "sandbox", "sources"] if is_key => return of_source(registry, word, here(range)),
        [.., "hooks", "named"] if is_key => &["hook"],
        _ if is_key => return None,
        [.., "tools_policy", "allow" | "deny" | "confirm"] | [.., "tools" | "tool"] => &["tool"],
        [.., "hooks" | "handler"] => &["hook"],
        [.., "agents" | "agent"] => &["agent"],
        [.., "skills"] => &["skill"],
        _ => return None,
    };
    named(registry, kinds, word, here(range))
}

fn named(registry: &Registry, kinds: &[&str], name: &str, range: std::ops::Range<usize>) -> Option<Named> {
    let found: Vec<Artifact> =
        kinds.iter().flat_map(|kind| artifacts(registry, kind)).filter(|one| one.name == name).collect();
    (!found.is_empty()).then_some(Named { range, found })
}

/// What a key of `sandbox.sources` is about.
fn of_source(registry: &Registry, source: &str, range: std::ops::Range<usize>) -> Option<Named> {
    let tools = registry.tools().iter().filter(|tool| tool.source_name == source).map(|tool| ("tool", &tool.name));
    let hooks = registry.hooks().iter().filter(|hook| hook.source_name == source).map(|hook| ("hook", &hook.name));
    let (kind, name) = tools.chain(hooks).next()?;
    named(registry, &[kind], name, range)
}

/// All artifacts of a kind.
fn artifacts<'r>(registry: &'r Registry, kind: &str) -> Box<dyn Iterator<Item = Artifact> + 'r> {
    let of = |kind, name: &str, description: &str, at: &Position| Artifact {
        kind,
        name: name.to_owned(),
        description: description.to_owned(),
        at: at.clone(),
    };
    match kind {
        "tool" => {
            Box::new(registry.tools().iter().map(move |one| of("tool", &one.name, &one.description, &one.source)))
        }
        "hook" => Box::new(registry.hooks().iter().map(move |one| {
            let about = format!("Hears `{}`, priority {}.", *one.event, one.priority.value);
            of("hook", &one.name, &about, &one.source)
        })),
        "agent" => Box::new(registry.agents().iter().map(move |one| {
            of("agent", &one.name, one.description.as_ref().map_or("", |about| about.value.as_str()), &one.source)
        })),
        _ => Box::new(
            registry.skills().iter().map(move |one| of("skill", &one.name, &one.description.value, &one.source)),
        ),
    }
}

/// The plain or quoted word that a byte of a line is in.
fn scalar(line: &str, at: usize) -> Option<(&str, std::ops::Range<usize>)> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '[' | ']' | '{' | '}' | ',' | '#');
    let (head, rest) = line.split_at_checked(at)?;
    let start = head.rfind(ends).map_or(0, |end| {
        end.saturating_add(head.get(end..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8))
    });
    let end = at.saturating_add(rest.find(ends).unwrap_or(rest.len()));
    let word = line.get(start..end)?;
    let word = word.strip_suffix(':').unwrap_or(word);
    (!word.is_empty()).then(|| (word, start..start.saturating_add(word.len())))
}
