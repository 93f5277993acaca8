//! A hook: a function in Starlark that sees an event and decides on it.

use serde_json::{Value as Json, json};

use super::cases::{self, Case, HookCases, Subject};
use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostic, Diagnostics, Position};
use super::event::Event;
use super::keys::{self, Unknown, keys};
use super::located::Located;
use super::policy::{layer, sources};
use super::script::Script;
use super::shape::{self, Read, Schema, Shape, Shown};
use super::suggest::closest;
use super::tool::check_name;
use super::upstream;
use super::when::Filter;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::text::quoted;

/// A hook as its file declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hook {
    /// The stem of its file, as it is; of one in a list, its `handler`.
    pub name: String,
    /// What it is called for.
    pub event: Located<Event>,
    /// An expression: the hook is called only where it is true.
    pub when: Option<Script>,
    /// The same, where it can be decided without running it.
    pub filter: Option<Filter>,
    /// Its implementation. Without one it does nothing.
    pub script: Option<Script>,
    /// Lower ones are called first. 0 where the file says nothing.
    pub priority: Located<i64>,
    /// The `capabilities:` it restricts itself to: one more layer of its grant.
    pub capabilities: Option<Layer>,
    /// Its `tests:`, in the order of the file.
    pub cases: Vec<Case>,
    /// Its `tags:`, for the hooks on `artifact.load`.
    pub tags: Vec<String>,
    /// The prose of its file, for reviewers: no model sees it.
    pub prose: String,
    /// The first line of its file; of one in a list, its entry.
    pub source: Position,
    /// The name by which a policy knows where it comes from, such as `hooks/guard` or `plugins/acme/hooks/x`.
    pub source_name: String,
}

keys! {
    /// What a hook has wherever it is written.
    pub(super) HookKeys: Unknown::Warn;
    /// The event of the hook.
    required event: Event;
    /// An expression over `payload` and `event`. The hook runs if it is true.
    optional when: Script;
    /// Hooks with a lower priority run first.
    optional priority: Priority = Priority(0);
    /// Starlark that defines `handle(event, payload)`.
    optional script: Script;
    /// Rules that narrow the grant of the hook: one more layer.
    given capabilities: Layer;
    /// Cases that `harness test` runs.
    optional tests: HookCases;
    /// Tags for hooks on `artifact.load`, which may reject an artifact by them.
    optional tags: Vec<String>;
}

keys! {
    /// What a hook in a list has instead of a file's name.
    EntryKeys: Unknown::Warn;
    /// The name of the hook. Default: its position.
    optional handler: String;
    /// An alias of `handler`.
    optional name: String;
}

/// One of a list of hooks.
impl Shape for Hook {
    fn schema() -> Schema {
        keys::schema::<(EntryKeys<'_>, HookKeys<'_>)>()
    }
}

impl Shape for Event {
    fn schema() -> Schema {
        let open = json!({"type": "string", "pattern": "^(custom|meta)\\.[a-z0-9_]+$"});
        shape::schema(json!({"anyOf": [shape::words(Self::FIXED.iter().map(ToString::to_string)), open]}))
    }
}

impl Read for Event {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |name| {
            Self::parse(name).ok_or_else(|| match closest(name, Self::FIXED.iter().map(Self::fixed_name)) {
                Some(word) => format!("{} is not an event, did you mean `{word}`?", quoted(name)),
                None => format!("{} is not an event", quoted(name)),
            })
        })
    }
}

/// Where a hook stands among others.
struct Priority(i64);

impl Shape for Priority {
    fn schema() -> Schema {
        shape::schema(json!({"type": "integer"}))
    }
}

impl Read for Priority {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let priority = i64::try_from(decoder.integer(field)?).ok();
        if priority.is_none() {
            decoder.error(field, "`priority` is too far from 0".to_owned());
        }
        priority.map(Self)
    }
}

impl Shown for Priority {
    fn shown(&self) -> Json {
        json!(self.0)
    }
}

/// What a hook is called, and where that was said.
struct Site<'a> {
    name: &'a str,
    index: usize,
    source: Position,
    source_name: String,
}

impl Hook {
    /// Reads a hook. `file` is for messages, such as `.harness/hooks/guard.md`; `stem` becomes its name; `index` is its
    /// place among the project's hooks, from 0. The hook is there only if nothing is wrong with it; the diagnostics
    /// hold everything that is, and warnings.
    pub fn parse(file: &str, stem: &str, index: usize, text: &str) -> (Option<Self>, Diagnostics) {
        Self::parse_at(file, &sources::name_of(None, &format!("hooks/{stem}")), stem, index, text)
    }

    /// Like [`parse`](Self::parse), for a file whose name as a source does not follow from its path.
    pub fn parse_at(
        file: &str,
        source_name: &str,
        stem: &str,
        index: usize,
        text: &str,
    ) -> (Option<Self>, Diagnostics) {
        let mut decoder = Decoder::new(file, format!("parse hook {stem}.md"));
        let hook = Self::decode(&mut decoder, source_name, stem, index, text);
        let diagnostics = decoder.into_diagnostics();
        (hook.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, source_name: &str, stem: &str, index: usize, text: &str) -> Option<Self> {
        check_name(decoder, "hook", stem, &decoder.top());
        let document = decoder.document(text)?;
        let keys = decoder.root(&document.root)?;
        let source_name = source_name.to_owned();
        let hook = Self::of(decoder, keys, Site { name: stem, index, source: decoder.top(), source_name });
        Some(Self { prose: document.body.to_owned(), ..hook? })
    }

    /// Reads one of a list of hooks: the same keys, and a `handler`, which is its name (`name` is taken as well). One
    /// without a name is called by its place: `hooks[0]`, after `owner` and a dot where the list has an owner.
    pub fn entry(
        decoder: &mut Decoder,
        index: usize,
        field: &Field<'_>,
        place: &str,
        owner: Option<&str>,
    ) -> Option<Self> {
        let (entry, keys): (EntryKeys<'_>, HookKeys<'_>) = decoder.keys(field)?;
        let given = if entry.handler.field().is_some() { entry.handler } else { entry.name };
        let (name, own, source) = match given.located(decoder) {
            Some(Located { value: name, position: at }) if !name.is_empty() => {
                check_name(decoder, "hook", &name, &at);
                (name.clone(), name, at)
            }
            _ => {
                // With its whole place, so that no other one is called the same by chance.
                let by_place = format!("hooks[{index}]");
                let name = owner.map_or(by_place.clone(), |owner| format!("{owner}.{by_place}"));
                (name, by_place, decoder.position(field.span()))
            }
        };
        let source_name = format!("{place}hooks/{own}");
        Self::of(decoder, keys, Site { name: &name, index, source, source_name })
    }

    /// A hook of the keys that it has wherever it is written.
    fn of(decoder: &mut Decoder, keys: HookKeys<'_>, site: Site<'_>) -> Option<Self> {
        let event = match keys.event.field() {
            Some(field) => event(decoder, site.name, site.index, field),
            None => {
                let missing = Diagnostic::error(required(site.name)).at(site.source.clone());
                decoder.diagnostics.push(missing.hint("add a line such as `event: tool.pre`"));
                None
            }
        };
        let when = keys.when.read(decoder);
        let priority = keys.priority.located(decoder, &site.source);
        let script = keys.script.read(decoder);
        let origin = Origin::new(&*site.source.file, Scope::Artifact);
        let capabilities = keys.capabilities.field().and_then(|f| layer::decode(decoder, f, origin));
        let tags = keys.tags.read(decoder).unwrap_or_default();
        let cases = keys.tests.field().map(|f| cases::decode(decoder, f, Subject::Hook)).unwrap_or_default();
        Some(Self {
            name: site.name.to_owned(),
            event: event?,
            filter: when.as_ref().and_then(|when| Filter::parse(&when.text)),
            when,
            script,
            priority: Located::new(priority.value.0, priority.position),
            capabilities,
            cases,
            tags,
            prose: String::new(),
            source: site.source,
            source_name: site.source_name,
        })
    }
}

fn required(hook: &str) -> String {
    format!("hook {hook:?}: event field is required in frontmatter")
}

fn event(decoder: &mut Decoder, hook: &str, index: usize, field: &Field<'_>) -> Option<Located<Event>> {
    let name = decoder.string(field)?;
    if name.is_empty() {
        decoder.error_with(field, required(hook), Some("write a name such as `tool.pre`".to_owned()));
        return None;
    }
    let event = Event::parse(name);
    if event.is_none() {
        let hint = if name.starts_with("custom.") || name.starts_with("meta.") {
            "after the dot come lower-case letters, digits and underscores".to_owned()
        } else if let Some(word) = upstream::event(name) {
            format!("here it is `{word}`")
        } else if let Some(word) = closest(name, Event::FIXED.iter().map(Event::fixed_name)) {
            format!("did you mean `{word}`?")
        } else {
            let names: Vec<&str> = Event::FIXED.iter().map(Event::fixed_name).collect();
            format!("events are {}, `custom.NAME` and `meta.NAME`", names.join(", "))
        };
        decoder.error_with(field, format!("hooks[{index}].event {name:?} is invalid"), Some(hint));
    }
    event.map(|event| Located::new(event, decoder.position(field.span())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = ".harness/hooks/guard.md";

    fn shown(text: &str) -> String {
        let (hook, diagnostics) = Hook::parse(FILE, "guard", 3, text);
        assert_eq!(hook.is_none(), diagnostics.has_errors());
        diagnostics.iter().map(|d| d.render(Some(text), false)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_whole_hook() {
        let text = "---\nevent: tool.pre\npriority: -10\nwhen: payload[\"name\"] == \"x\"\nscript: |\n  def handle(event, payload):\n    return allow()\n---\n# guard\n";
        let (hook, diagnostics) = Hook::parse(FILE, "guard", 0, text);
        assert_eq!(diagnostics, Diagnostics::new());
        let expect = Hook {
            name: "guard".to_owned(),
            event: Located::new(Event::ToolPre, Position { file: FILE.into(), line: 2, column: 8, length: 8 }),
            when: Some(Script {
                text: "payload[\"name\"] == \"x\"".to_owned(),
                first_line: 4,
                indent: 6,
                last_line: 4,
            }),
            filter: Filter::parse("payload[\"name\"] == \"x\""),
            script: Some(Script {
                text: "def handle(event, payload):\n  return allow()\n".to_owned(),
                first_line: 6,
                indent: 2,
                last_line: 7,
            }),
            priority: Located::new(-10, Position { file: FILE.into(), line: 3, column: 11, length: 3 }),
            capabilities: None,
            cases: Vec::new(),
            tags: Vec::new(),
            prose: "# guard".to_owned(),
            source: Position { file: FILE.into(), line: 1, column: 1, length: 3 },
            source_name: "hooks/guard".to_owned(),
        };
        assert_eq!(hook, Some(expect));
    }

    #[test]
    fn the_least_hook() {
        let (hook, _) = Hook::parse(FILE, "guard", 0, "---\nevent: error\n---\n");
        let hook = hook.unwrap();
        assert_eq!((hook.event.value, hook.priority.value, hook.script, hook.when), (Event::Error, 0, None, None));
    }

    #[test]
    fn no_event() {
        insta::assert_snapshot!(shown("---\npriority: 1\n---\n"), @r#"
        error: hook "guard": event field is required in frontmatter
         --> .harness/hooks/guard.md:1:1
          |
        1 | ---
          | ^^^
          |
          = hint: add a line such as `event: tool.pre`
        "#);
        insta::assert_snapshot!(shown("---\nevent: ''\n---\n"), @r#"
        error: hook "guard": event field is required in frontmatter
         --> .harness/hooks/guard.md:2:8
          |
        2 | event: ''
          |        ^^
          |
          = hint: write a name such as `tool.pre`
        "#);
    }

    #[test]
    fn all_errors_at_once() {
        insta::assert_snapshot!(shown(
            "---\nevent: tool.per\nwhen: [x]\npriority: high\nscript: true\nprioritty: 1\n---\n"
        ), @r#"
        error: hooks[3].event "tool.per" is invalid
         --> .harness/hooks/guard.md:2:8
          |
        2 | event: tool.per
          |        ^^^^^^^^
          |
          = hint: did you mean `tool.pre`?
        error: parse hook guard.md: yaml: line 3: `when` must be a string, found a list
         --> .harness/hooks/guard.md:3:7
          |
        3 | when: [x]
          |       ^^^
        error: parse hook guard.md: yaml: line 4: `priority` must be an integer, found a string
         --> .harness/hooks/guard.md:4:11
          |
        4 | priority: high
          |           ^^^^
        error: parse hook guard.md: yaml: line 5: `script` must be a string, found a boolean
         --> .harness/hooks/guard.md:5:9
          |
        5 | script: true
          |         ^^^^
          |
          = hint: put it in quotes
        warning: unknown key `prioritty`, it is ignored
         --> .harness/hooks/guard.md:6:1
          |
        6 | prioritty: 1
          | ^^^^^^^^^
          |
          = hint: did you mean `priority`?
        "#);
        insta::assert_snapshot!(shown("---\nevent: custom.Bad\npriority: 99999999999999999999\n---\n"), @r#"
        error: hooks[3].event "custom.Bad" is invalid
         --> .harness/hooks/guard.md:2:8
          |
        2 | event: custom.Bad
          |        ^^^^^^^^^^
          |
          = hint: after the dot come lower-case letters, digits and underscores
        error: `priority` is too far from 0
         --> .harness/hooks/guard.md:3:11
          |
        3 | priority: 99999999999999999999
          |           ^^^^^^^^^^^^^^^^^^^^
        "#);
    }
}
