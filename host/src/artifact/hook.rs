//! A hook: a function in Starlark that sees an event and decides on it.

use std::fmt;

use super::decode::{Decoder, Field, Unknown};
use super::diagnostic::{Diagnostic, Diagnostics, Position};
use super::policy::{layer, sources};
use super::script::Script;
use super::suggest::closest;
use super::tool::check_name;
use crate::policy::layer::{Layer, Origin, Scope};

/// A hook as its file declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The stem of its file, as it is.
    pub name: String,
    /// What it is called for.
    pub event: Event,
    /// An expression: the hook is called only where it is true.
    pub when: Option<Script>,
    /// Its implementation. Without one it does nothing.
    pub script: Option<Script>,
    /// Lower ones are called first. 0 where the file says nothing.
    pub priority: i64,
    /// The `capabilities:` it restricts itself to: one more layer of its grant.
    pub capabilities: Option<Layer>,
    /// The first line of its file.
    pub source: Position,
}

/// Something that happens and that hooks are called for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the events")]
pub enum Event {
    SessionStart,
    SessionEnd,
    TurnStart,
    TurnEnd,
    ToolPre,
    ToolPost,
    CompletionPre,
    CompletionPost,
    DelegationPre,
    DelegationPost,
    DelegationPostVerify,
    AgentStop,
    Error,
    /// `custom.NAME`, emitted by a script; holds `NAME`.
    Custom(String),
    /// `meta.NAME`, fired by what an agent adds to itself; holds `NAME`.
    Meta(String),
}

impl Event {
    /// Those with a fixed name.
    pub const FIXED: [Self; 13] = [
        Self::SessionStart,
        Self::SessionEnd,
        Self::TurnStart,
        Self::TurnEnd,
        Self::ToolPre,
        Self::ToolPost,
        Self::CompletionPre,
        Self::CompletionPost,
        Self::DelegationPre,
        Self::DelegationPost,
        Self::DelegationPostVerify,
        Self::AgentStop,
        Self::Error,
    ];

    /// The event of a name. After `custom.` and `meta.` come lower-case letters, digits and underscores, at least one.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("custom.") {
            return is_word(rest).then(|| Self::Custom(rest.to_owned()));
        }
        if let Some(rest) = name.strip_prefix("meta.") {
            return is_word(rest).then(|| Self::Meta(rest.to_owned()));
        }
        Self::FIXED.into_iter().find(|event| event.fixed_name() == name)
    }

    /// Whether a hook that fails blocks what the event announces: where something can still be stopped, a guard that
    /// does not work must not let it through.
    pub fn fails_closed(&self) -> bool {
        match self {
            Self::TurnStart
            | Self::ToolPre
            | Self::ToolPost
            | Self::CompletionPre
            | Self::DelegationPre
            | Self::DelegationPost
            | Self::DelegationPostVerify
            | Self::Meta(_) => true,
            Self::SessionStart
            | Self::SessionEnd
            | Self::TurnEnd
            | Self::CompletionPost
            | Self::AgentStop
            | Self::Error
            | Self::Custom(_) => false,
        }
    }

    /// The name, or for the open ones what comes before their own part.
    fn fixed_name(&self) -> &'static str {
        match self {
            Self::SessionStart => "session.start",
            Self::SessionEnd => "session.end",
            Self::TurnStart => "turn.start",
            Self::TurnEnd => "turn.end",
            Self::ToolPre => "tool.pre",
            Self::ToolPost => "tool.post",
            Self::CompletionPre => "completion.pre",
            Self::CompletionPost => "completion.post",
            Self::DelegationPre => "delegation.pre",
            Self::DelegationPost => "delegation.post",
            Self::DelegationPostVerify => "delegation.post_verify",
            Self::AgentStop => "agent.stop",
            Self::Error => "error",
            Self::Custom(_) => "custom.",
            Self::Meta(_) => "meta.",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fixed_name())?;
        match self {
            Self::Custom(rest) | Self::Meta(rest) => f.write_str(rest),
            _ => Ok(()),
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
}

impl Hook {
    /// The name by which a policy knows where it comes from, such as `hooks/guard`.
    pub fn source_name(&self) -> &str {
        sources::name_of(&self.source.file)
    }

    /// Reads a hook. `file` is for messages, such as `.harness/hooks/guard.md`; `stem` becomes its name; `index` is its
    /// place among the project's hooks, from 0. The hook is there only if nothing is wrong with it; the diagnostics
    /// hold everything that is, and warnings.
    pub fn parse(file: &str, stem: &str, index: usize, text: &str) -> (Option<Self>, Diagnostics) {
        let mut decoder = Decoder::new(file, format!("parse hook {stem}.md"));
        let hook = Self::decode(&mut decoder, file, stem, index, text);
        let diagnostics = decoder.into_diagnostics();
        (hook.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, file: &str, stem: &str, index: usize, text: &str) -> Option<Self> {
        check_name(decoder, "hook", stem);
        let document = decoder.document(text)?;
        let mut fields = decoder.root(&document.root)?;
        let event = match fields.optional("event") {
            Some(field) => event(decoder, stem, index, &field),
            None => {
                let missing = Diagnostic::error(required(stem)).at(decoder.top());
                decoder.diagnostics.push(missing.hint("add a line such as `event: tool.pre`"));
                None
            }
        };
        let when = fields.optional("when").and_then(|f| decoder.script(&f));
        let priority = fields.optional("priority").and_then(|f| priority(decoder, &f)).unwrap_or(0);
        let script = fields.optional("script").and_then(|f| decoder.script(&f));
        let origin = Origin { file: file.to_owned(), scope: Scope::Artifact };
        let capabilities = fields.take("capabilities").and_then(|f| layer::decode(decoder, &f, origin));
        decoder.finish(fields, Unknown::Warn);
        Some(Self { name: stem.to_owned(), event: event?, when, script, priority, capabilities, source: decoder.top() })
    }
}

fn required(hook: &str) -> String {
    format!("hook {hook:?}: event field is required in frontmatter")
}

fn event(decoder: &mut Decoder, hook: &str, index: usize, field: &Field<'_>) -> Option<Event> {
    let name = decoder.string(field)?;
    if name.is_empty() {
        decoder.error_with(field, required(hook), Some("write a name such as `tool.pre`".to_owned()));
        return None;
    }
    let event = Event::parse(name);
    if event.is_none() {
        let hint = if name.starts_with("custom.") || name.starts_with("meta.") {
            "after the dot come lower-case letters, digits and underscores".to_owned()
        } else if let Some(word) = closest(name, Event::FIXED.iter().map(Event::fixed_name)) {
            format!("did you mean `{word}`?")
        } else {
            let names: Vec<&str> = Event::FIXED.iter().map(Event::fixed_name).collect();
            format!("events are {}, `custom.NAME` and `meta.NAME`", names.join(", "))
        };
        decoder.error_with(field, format!("hooks[{index}].event {name:?} is invalid"), Some(hint));
    }
    event
}

fn priority(decoder: &mut Decoder, field: &Field<'_>) -> Option<i64> {
    let value = decoder.integer(field)?;
    let priority = i64::try_from(value).ok();
    if priority.is_none() {
        decoder.error(field, "`priority` is too far from 0".to_owned());
    }
    priority
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
            event: Event::ToolPre,
            when: Some(Script {
                text: "payload[\"name\"] == \"x\"".to_owned(),
                first_line: 4,
                indent: 6,
                last_line: 4,
            }),
            script: Some(Script {
                text: "def handle(event, payload):\n  return allow()\n".to_owned(),
                first_line: 6,
                indent: 2,
                last_line: 7,
            }),
            priority: -10,
            capabilities: None,
            source: Position { file: FILE.into(), line: 1, column: 1, length: 3 },
        };
        assert_eq!(hook, Some(expect));
    }

    #[test]
    fn the_least_hook() {
        let (hook, _) = Hook::parse(FILE, "guard", 0, "---\nevent: error\n---\n");
        let hook = hook.unwrap();
        assert_eq!((hook.event, hook.priority, hook.script, hook.when), (Event::Error, 0, None, None));
    }

    #[test]
    fn events() {
        for event in Event::FIXED {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
        for name in ["custom.my_event2", "meta.tool_register"] {
            assert_eq!(Event::parse(name).unwrap().to_string(), name);
        }
        for name in [
            "",
            "tool",
            "tool.pre ",
            "Tool.pre",
            "custom.",
            "custom.A",
            "custom.a.b",
            "custom.a\n",
            "meta.",
            "tool.mid",
        ] {
            assert_eq!(Event::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn gates_fail_closed() {
        let closed: Vec<String> = Event::FIXED.iter().filter(|e| e.fails_closed()).map(ToString::to_string).collect();
        assert_eq!(
            closed,
            [
                "turn.start",
                "tool.pre",
                "tool.post",
                "completion.pre",
                "delegation.pre",
                "delegation.post",
                "delegation.post_verify"
            ]
        );
        assert!(Event::Meta("x".to_owned()).fails_closed());
        assert!(!Event::Custom("x".to_owned()).fails_closed());
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
        warning: unknown key `prioritty`, it has no effect
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
