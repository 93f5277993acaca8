//! A bundle: tools, hooks and agents in one file, each an entry of a list.

use super::agent::Agent;
use super::decode::{Decoder, Field};
use super::diagnostic::Diagnostics;
use super::hook::Hook;
use super::keys::{self, Slot, Unknown, keys};
use super::shape::{Anything, Schema, Shape};
use super::tool::Tool;
use super::yaml::Value;
use harness_policy::text::quoted;

/// What lists hold: those of a bundle, and those of `harness.md`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lists {
    /// `tools:`, in the order of the file.
    pub tools: Vec<Tool>,
    /// `hooks:`, in the order of the file.
    pub hooks: Vec<Hook>,
    /// `agents:`, in the order of the file.
    pub agents: Vec<Agent>,
}

/// A bundle's file.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    /// What it defines.
    pub lists: Lists,
    /// Its prose.
    pub prose: String,
    /// Its `tags:`, for the hooks on `artifact.load`.
    pub tags: Vec<String>,
}

keys! {
    /// The lists of a bundle, and of `harness.md`.
    pub(super) ListKeys: Unknown::Warn;
    /// Tools, each as in a file of its own, with its name.
    optional tools: Vec<Tool>;
    /// Hooks, each as in a file of its own, with its name.
    optional hooks: Vec<Hook>;
    /// Agents, each as in a file of its own, with its name.
    optional agents: Vec<Agent>;
}

keys! {
    /// What is said of a bundle to people, and nothing to the host.
    #[expect(dead_code, reason = "known, and not looked into")]
    LabelKeys: Unknown::Warn;
    /// The name of the bundle, for people: the host uses the name of the file.
    given name: Anything;
    /// The kind of bundle, for people: the host uses the folder.
    given kind("type"): Anything;
    /// Its version.
    given version: Anything;
    /// Its purpose.
    given description: Anything;
    /// Its author.
    given author: Anything;
    /// Its license.
    given license: Anything;
    /// Where to read more.
    given homepage: Anything;
    /// Tags for people, and for hooks on `artifact.load`.
    optional tags: Vec<String>;
}

impl Shape for Bundle {
    fn schema() -> Schema {
        keys::schema::<(ListKeys<'_>, LabelKeys<'_>)>()
    }
}

impl Bundle {
    /// Reads a bundle. `file` is for messages, such as `.harness/plugins/acme.md`; `place` is what the names of its
    /// sources begin with, such as `plugins/acme`. It is there only if nothing is wrong with it; the diagnostics hold
    /// everything that is, and warnings.
    pub fn parse(file: &str, place: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let name = file.rsplit('/').next().unwrap_or(file);
        let mut decoder = Decoder::new(file, format!("parse bundle {name}"));
        let bundle = Self::decode(&mut decoder, place, text);
        let diagnostics = decoder.into_diagnostics();
        (bundle.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, place: &str, text: &str) -> Option<Self> {
        let document = decoder.document(text)?;
        let (lists, labels): (ListKeys<'_>, LabelKeys<'_>) = decoder.root(&document.root)?;
        let tags = labels.tags.read(decoder).unwrap_or_default();
        let lists = Lists::decode(decoder, &lists, &format!("{place}/"));
        Some(Self { lists, prose: document.body.to_owned(), tags })
    }
}

impl Lists {
    /// The three lists. `place` is what the names of their sources begin with.
    pub(super) fn decode(decoder: &mut Decoder, keys: &ListKeys<'_>, place: &str) -> Self {
        let settings = keys.tools.field().filter(|field| place.is_empty() && matches!(field.node.value, Value::Map(_)));
        let tools = match settings {
            Some(field) => {
                tool_settings(decoder, field);
                Vec::new()
            }
            None => entries(decoder, &keys.tools, |d, index, item| Tool::entry(d, index, item, place)),
        };
        Self {
            tools,
            hooks: entries(decoder, &keys.hooks, |d, index, item| {
                Hook::entry(d, index, item, place, place.strip_suffix('/'))
            }),
            agents: entries(decoder, &keys.agents, |d, index, item| Agent::entry(d, index, item, place)),
        }
    }
}

/// Settings of the loop that other hosts have under `tools`, where this one has the project's tools: says for each which key
/// does it here.
fn tool_settings(decoder: &mut Decoder, field: &Field<'_>) {
    const HERE: [(&str, &str); 5] = [
        ("enabled", "write `model: { tools: none }` where a model is to have none; they are on without it"),
        ("max_tool_calls_per_turn", "write `exit_policy: { max_iterations: 10 }` with this number"),
        ("max_output_bytes", "write `sandbox: { limits: { output_bytes: 65536 } }` with this number"),
        ("fallback_to_natural_language", "write `exit_policy: { fallback_to_natural_language: true }` with this value"),
        ("allowed_tools", "write `tools_policy: { allow: [...] }` with these names"),
    ];
    let entries = decoder.entries(field).unwrap_or_default();
    if entries.is_empty() {
        // No setting is meant, and it is no list either: says so.
        decoder.list(field);
    }
    for (key, entry) in entries {
        let hint = HERE.iter().find(|(name, _)| *name == key.text).map(|(_, hint)| (*hint).to_owned());
        let hint = hint.unwrap_or_else(|| "`tools` is the list of the tools that are written in this file".to_owned());
        decoder.error_with(&entry, format!("{} is not set under `tools` here", quoted(&key.text)), Some(hint));
    }
}

fn entries<T>(
    decoder: &mut Decoder,
    slot: &Slot<'_, Vec<T>>,
    entry: impl Fn(&mut Decoder, usize, &Field<'_>) -> Option<T>,
) -> Vec<T> {
    let items = slot.field().and_then(|field| decoder.list(field)).unwrap_or_default();
    items.iter().enumerate().filter_map(|(index, item)| entry(decoder, index, item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_bundle() {
        let text = "---\nname: acme\nversion: 1.0.0\ntools:\n  - name: greet\n    description: Says hello.\n    script: |\n      def run(args):\n          return 1\nhooks:\n  - handler: guard\n    event: tool.pre\n  - event: error\nagents:\n  - name: helper\n    system_prompt: You help.\n---\nprose\n";
        let (bundle, diagnostics) = Bundle::parse(".harness/plugins/acme.md", "plugins/acme", text);
        assert_eq!(diagnostics, Diagnostics::new());
        let Bundle { lists, prose, tags: _ } = bundle.unwrap();
        let tools: Vec<_> =
            lists.tools.iter().map(|t| (t.name.as_str(), t.description.as_str(), t.source_name.as_str())).collect();
        assert_eq!(tools, [("greet", "Says hello.", "plugins/acme/tools/greet")]);
        let script = lists.tools[0].script.as_ref().unwrap();
        assert_eq!((script.first_line, script.indent, script.text.as_str()), (8, 6, "def run(args):\n    return 1\n"));
        let hooks: Vec<_> =
            lists.hooks.iter().map(|h| (h.name.as_str(), h.source_name.as_str(), h.source.line)).collect();
        assert_eq!(
            hooks,
            [("guard", "plugins/acme/hooks/guard", 11), ("plugins/acme.hooks[1]", "plugins/acme/hooks/hooks[1]", 13)]
        );
        assert_eq!((lists.agents[0].name.as_str(), lists.agents[0].system_prompt.as_str()), ("helper", "You help."));
        assert_eq!(prose, "prose");
    }

    #[test]
    fn everything_that_is_wrong() {
        let text = "---\ntools:\n  - description: x\n  - name: ''\n  - name: a/b\n  - 5\nhooks:\n  - handler: h\nagents: {}\ntols: []\n---\n";
        let (bundle, diagnostics) = Bundle::parse(".harness/plugins/acme.md", "plugins/acme", text);
        assert_eq!(bundle, None);
        let shown: Vec<String> = diagnostics
            .iter()
            .map(|d| format!("{} {}", d.position.as_ref().map_or(0, |p| p.line), d.message))
            .collect();
        assert_eq!(
            shown,
            [
                "3 tools[0].name cannot be empty",
                "4 tools[1].name cannot be empty",
                "5 the name of a tool must not contain `/`, found `a/b`",
                "6 parse bundle acme.md: yaml: line 6: `tools[3]` must be a mapping, found an integer",
                "8 hook \"h\": event field is required in frontmatter",
                "9 parse bundle acme.md: yaml: line 9: `agents` must be a list, found a mapping",
                "10 unknown key `tols`, it is ignored",
            ]
        );
    }
}
