//! What is probably not meant, beyond what does not fit the format: warnings of `harness validate`.

mod builtins;
mod calls;
mod emits;
mod entry;
mod tokens;

use self::tokens::{Token, What, tokens};
use super::agent::Agent;
use super::diagnostic::{Diagnostic, Position};
use super::event::{Event, Shape};
use super::hook::Hook;
use super::script::Script;
use super::suggest::closest;
use super::upstream;
use harness_policy::text::quoted;

pub use builtins::{is_built_in, is_taken};
pub use calls::{Calls, Fault, calls};
pub use entry::{described, handler, tool};

/// Findings about one artifact that are reported. A script of a megabyte can hold very many, and nobody reads them all.
const MOST: usize = 50;
/// A line longer than this, in bytes, is not looked at for how it uses the payload.
const LONGEST_LINE: usize = 4096;

/// Methods of a dict, which a hook may call on a payload.
const DICT_METHODS: [&str; 9] = ["get", "items", "keys", "values", "pop", "update", "setdefault", "popitem", "clear"];

/// Keys that the event does not have, keys that are read like attributes, and keys of a `modify` that change nothing.
pub fn payload_keys(hook: &Hook) -> Vec<Diagnostic> {
    let Shape::Dict(keys) = hook.event.shape() else { return Vec::new() };
    let is_client = |key: &str| key == "client" && hook.event.has_client() || hook.event.server_keys().contains(&key);
    let mut found = Vec::new();
    for (script, in_when) in [(&hook.when, true), (&hook.script, false)] {
        let Some(script) = script else { continue };
        for (line, text) in (1_u32..).zip(script.text.lines()) {
            if found.len() >= MOST {
                break;
            }
            for (column, used) in uses(text.get(..LONGEST_LINE).map_or(text, |_| "")) {
                let length = used.name().chars().count().saturating_add("payload".len());
                let at = place(&hook.source, script, line, column, length);
                match used {
                    Used::Key(key) if !keys.contains(&key) && !is_client(key) => {
                        let warning =
                            Diagnostic::warning(format!("the payload of `{}` has no key {}", *hook.event, quoted(key)));
                        // Every payload has an `agent`, and what is only like it means something else.
                        found.push(warning.at(at).hint(
                            match closest(key, keys.iter().copied().filter(|key| *key != "agent")) {
                                _ if upstream::payload(key).is_some() => {
                                    upstream::payload(key).unwrap_or_default().to_owned()
                                }
                                Some(word) => format!("did you mean `{word}`?"),
                                None => format!("it has {}", keys.join(", ")),
                            },
                        ));
                    }
                    Used::Attribute(name) if !DICT_METHODS.contains(&name) => {
                        let what = if in_when { "the hook never matches" } else { "reading it fails" };
                        let warning =
                            Diagnostic::warning(format!("the payload is a dict: {what} with `payload.{name}`"));
                        found.push(warning.at(at).hint(format!("write `payload[\"{name}\"]`")));
                    }
                    Used::Key(_) | Used::Attribute(_) => {}
                }
            }
        }
        let (mut line, mut column, mut seen) = (1_u32, 1_u32, 0);
        for (at, key) in modified(&script.text).into_iter().take(MOST) {
            for c in script.text.get(seen..at).unwrap_or_default().chars() {
                (line, column) = if c == '\n' { (line.saturating_add(1), 1) } else { (line, column.saturating_add(1)) };
            }
            seen = at;
            let at = place(&hook.source, script, line, column, key.chars().count().saturating_add(2));
            found.extend(hook.event.not_taken(key).map(|why| Diagnostic::warning(why).at(at)));
        }
    }
    found
}

/// What to write instead of a word that scripts of other hosts use, by the error of a script that has it.
pub fn script_hint(message: &str) -> Option<&'static str> {
    super::upstream::script(message)
}

/// What a hook names that is not there or not for it: in its `when`, its event, its script.
pub fn names(hook: &Hook) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    if let Some(when) = &hook.when {
        found.extend(builtins::unknown_in_when(when, &hook.source, MOST));
    }
    if let Some(script) = &hook.script {
        found.extend(builtins::missing(script, &hook.source, true, MOST));
        found.extend(emits::refused(script, &hook.source, MOST));
        // Of a built-in they are no text.
        if matches!(&*hook.event, Event::ToolPre) || matches!(&*hook.event, Event::Meta(name) if name == "call_tool") {
            found.extend(builtins::arguments_as_dict(script, &hook.source, MOST));
        }
    }
    if !hook.event.is_fired() {
        let warning = Diagnostic::warning(format!("nothing fires `{}`: the hook is never called", *hook.event));
        found.push(
            warning.at(hook.event.position.clone()).hint(format!("what is fired: {}", Event::FIRED_META.join(", "))),
        );
    }
    found
}

/// An agent without a description: who chooses among agents has only its name.
pub fn agent(agent: &Agent) -> Option<Diagnostic> {
    let described = agent.description.as_ref().is_some_and(|text| !text.value.trim().is_empty());
    let warning = || Diagnostic::warning(format!("agent {} has no description", quoted(&agent.name)));
    (!described).then(|| {
        warning().at(agent.source.clone()).hint("describe its purpose in `description:`: models choose agents by it")
    })
}

/// A hook that can block, and has no case that it blocks or none that it lets pass.
pub fn untested(hook: &Hook) -> Option<Diagnostic> {
    let script = hook.script.as_ref()?;
    // One that never says it only watches or rewrites.
    let says = |token: &Token<'_>| matches!(token.what, What::Name("block") | What::Text("block"));
    if !tokens(&script.text).iter().any(says) {
        return None;
    }
    let decides = |words: &[&str]| {
        hook.cases.iter().flat_map(|case| &case.expect).any(|expect| {
            expect.aspect == super::cases::Aspect::Decision
                && expect.value.as_str().is_some_and(|word| words.contains(&word))
        })
    };
    let missing = match (decides(&["block"]), decides(&["allow", "modify"])) {
        (true, true) => return None,
        (true, false) => "no case that it allows",
        (false, true) => "no case that it blocks",
        (false, false) => "neither a case that it blocks nor one that it allows",
    };
    let warning = Diagnostic::warning(format!("hook {:?} has {missing}", hook.name)).at(hook.source.clone());
    Some(warning.hint("add one under `tests:` with `expect: { decision: block }` or `{ decision: allow }`"))
}

enum Used<'t> {
    /// `payload["KEY"]`, `payload.get("KEY"`
    Key(&'t str),
    /// `payload.NAME`
    Attribute(&'t str),
}

impl Used<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Key(name) | Self::Attribute(name) => name,
        }
    }
}

/// What a line of a script reads of `payload`, with its column from 1. Comments are not looked at.
fn uses(line: &str) -> Vec<(u32, Used<'_>)> {
    const PAYLOAD: &str = "payload";
    let code = line.split('#').next().unwrap_or_default();
    let mut found = Vec::new();
    for (at, _) in code.match_indices(PAYLOAD) {
        let before = code.get(..at).unwrap_or_default().chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '\'')) {
            continue;
        }
        let after = code.get(at.saturating_add(PAYLOAD.len())..).unwrap_or_default();
        let used = if let Some(rest) = after.strip_prefix('[').or_else(|| after.strip_prefix(".get(")) {
            // What is assigned to is the hook's own.
            let assigned = rest.split_once(']').is_some_and(|(_, rest)| {
                let rest = rest.trim_start();
                rest.starts_with('=') && !rest.starts_with("==")
            });
            if assigned { None } else { literal(rest).map(Used::Key) }
        } else {
            after.strip_prefix('.').map(|rest| {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                Used::Attribute(rest.get(..end).unwrap_or_default())
            })
        };
        let column = code.get(..at).unwrap_or_default().chars().count().saturating_add(1);
        found.extend(
            used.filter(|used| !used.name().is_empty()).map(|used| (u32::try_from(column).unwrap_or(u32::MAX), used)),
        );
    }
    found
}

/// The keys of the dicts that a script gives to `modify`, where they are written out there, with the bytes they begin at.
fn modified(text: &str) -> Vec<(usize, &str)> {
    const MODIFY: &str = "modify(";
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(before) = text.get(at..).and_then(|rest| rest.get(..rest.find(MODIFY)?)) {
        let begin = at.saturating_add(before.len());
        if before.rsplit('\n').next().is_some_and(|line| line.contains('#')) {
            let rest = text.get(begin..).unwrap_or_default();
            at = begin.saturating_add(rest.find('\n').unwrap_or(rest.len()));
            continue;
        }
        at = begin.saturating_add(MODIFY.len());
        let (mut depth, mut begins) = (0_u32, false);
        while let Some(rest) = text.get(at..)
            && let Some(next) = rest.chars().next()
        {
            let (quoted, is_comment) = (literal(rest), next == '#');
            let is_skipped = next.is_whitespace() || is_comment;
            // Only a dict that is the argument itself; it ends there, too.
            if depth == 0 && !is_skipped && next != '{' {
                break;
            }
            if let Some(key) = quoted.filter(|_| begins && depth == 1) {
                found.push((at, key));
            }
            match next {
                '{' | '[' | '(' => depth = depth.saturating_add(1),
                '}' | ']' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            begins = matches!(next, '{' | ',') || begins && is_skipped;
            at = at.saturating_add(match quoted {
                Some(quoted) => quoted.len().saturating_add(2),
                None if is_comment => rest.find('\n').unwrap_or(rest.len()),
                None => next.len_utf8(),
            });
        }
    }
    found
}

/// The text in quotes that something begins with.
fn literal(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = text.get(1..)?;
    inner.get(..inner.find(quote)?)
}

fn place(source: &Position, script: &Script, line: u32, column: u32, length: usize) -> Position {
    let (line, column) = script.locate(line, column);
    Position { file: source.file.clone(), line, column, length: u32::try_from(length).unwrap_or(u32::MAX) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(super) fn hook(text: &str) -> Hook {
        Hook::parse(".harness/hooks/h.md", "h", 0, text).0.unwrap()
    }

    pub(super) fn shown(found: &[Diagnostic]) -> Vec<String> {
        found
            .iter()
            .map(|d| {
                let place = d.position.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{place} {} ({})", d.message, d.hint.clone().unwrap_or_default())
            })
            .collect()
    }

    #[test]
    fn keys_that_an_event_does_not_have() {
        let hook = hook(
            "---\nevent: tool.post\nwhen: payload[\"is_eror\"] == True and payload.name == 'x'\nscript: |\n  def handle(event, payload):\n    a = payload.get('content')\n    b = payload[\"arguments\"]  # payload[\"nothing\"]\n    payload[\"mine\"] = payload[a] or my_payload[\"x\"]\n    return allow()\n---\n",
        );
        assert_eq!(
            shown(&payload_keys(&hook)),
            [
                ".harness/hooks/h.md:3:7 the payload of `tool.post` has no key `is_eror` (did you mean `is_error`?)",
                ".harness/hooks/h.md:3:38 the payload is a dict: the hook never matches with `payload.name` (write `payload[\"name\"]`)",
                ".harness/hooks/h.md:7:9 the payload of `tool.post` has no key `arguments` (it has call_id, name, content, blocks, is_error, result, agent)",
            ]
        );
    }

    #[test]
    fn keys_of_a_modify_that_change_nothing() {
        let of = |event: &str, body: &str| {
            let text =
                format!("---\nevent: {event}\nscript: |\n  def handle(event, payload):\n    return {body}\n---\n");
            shown(&payload_keys(&hook(&text)))
        };
        assert_eq!(
            of("turn.end", "modify({'text': f({'usage': 1}, 'log'), \"usage\": 'a, b', 'é': {}, 'txt': 1})"),
            [
                ".harness/hooks/h.md:5:52 `usage` of `turn.end` is changed for later hooks only: a hook can change `text` ()",
                ".harness/hooks/h.md:5:69 `é` of `turn.end` is changed for later hooks only: a hook can change `text` ()",
                ".harness/hooks/h.md:5:78 `txt` of `turn.end` is changed for later hooks only: a hook can change `text` ()",
            ]
        );
        assert_eq!(
            of("tool.pre", "modify({ 'name': 'x' })  # modify({'id': 1})"),
            [".harness/hooks/h.md:5:21 `name` of `tool.pre` cannot be changed: the change is ignored ()"]
        );
        assert_eq!(
            of(
                "tool.pre",
                "modify(\n        {  # {'x'\n          'args': [{'id': 1}],\n          'id': 1,\n        },\n    )"
            ),
            [".harness/hooks/h.md:8:11 `id` of `tool.pre` cannot be changed: the change is ignored ()"]
        );
        for (event, body) in [
            ("tool.pre", "modify({'arguments': {'path': 'x'}})"),
            ("tool.pre", "modify({'args': {}}) if payload['name'] == 'x' else modify(payload)"),
            ("custom.x", "modify({'any': 1})"),
            ("tool.pre", "modify(f({'id': 1}))"),
            ("tool.pre", "modify(['a', 'id'])"),
            ("tool.pre", "allow()  # return modify({'id': 1})"),
            ("turn.end", "modify({"),
            ("turn.end", "modify({'usage"),
        ] {
            assert_eq!(of(event, body), [""; 0], "{body}");
        }
    }

    #[test]
    fn events_of_any_shape_have_any_key() {
        assert_eq!(payload_keys(&hook("---\nevent: custom.x\nwhen: payload[\"anything\"] == 1\n---\n")), []);
    }

    #[test]
    fn a_guard_wants_a_case_for_both_sides() {
        let base = "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n    return block('no')\n";
        let case = |decision: &str| format!("  - name: {decision}\n    expect: {{ decision: {decision} }}\n");
        let of = |tests: &str| shown(&untested(&hook(&format!("{base}{tests}---\n"))).into_iter().collect::<Vec<_>>());
        let hint = "(add one under `tests:` with `expect: { decision: block }` or `{ decision: allow }`)";
        let at = ".harness/hooks/h.md:1:1 hook \"h\" has";
        assert_eq!(of(""), [format!("{at} neither a case that it blocks nor one that it allows {hint}")]);
        assert_eq!(of(&format!("tests:\n{}", case("block"))), [format!("{at} no case that it allows {hint}")]);
        assert_eq!(of(&format!("tests:\n{}", case("allow"))), [format!("{at} no case that it blocks {hint}")]);
        assert_eq!(of(&format!("tests:\n{}{}", case("allow"), case("block"))), [""; 0]);
        let watcher = hook("---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n    return allow()\n---\n");
        assert_eq!(untested(&watcher), None);
        // Another word that begins so says nothing of it, nor does a comment; a dict does.
        let of = |line: &str| {
            let script = format!("script: |\n  def handle(event, payload):\n    {line}\n");
            untested(&hook(&format!("---\nevent: tool.post\n{script}---\n"))).is_some()
        };
        assert!(!of("return modify({'blocks': payload['blocks']})") && !of("return allow()  # no block"));
        assert!(of("return {'action': 'block', 'reason': 'x'}") && of("deny = block; return deny('x')"));
    }
}
