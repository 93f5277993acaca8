//! `mcp`: what clients of the Model Context Protocol are offered beside the project's tools, how they get these, and the
//! servers whose tools the project has.

mod address;
mod choices;
mod oauth;
mod runner;
mod servers;
mod template;

use std::collections::HashSet;

use serde_json::json;

pub use self::address::ServerUrl;
pub use self::choices::{AgentsAs, Expose, Schemas, ToolExpose};
pub use self::oauth::{OAuth, Registered, is_scope};
pub use self::runner::{Installer, PackageProgram, Packages};
use self::servers::Servers;
pub use self::servers::{Endpoint, Keep, McpServer, ServerCommand, is_name as is_server_name};
pub use self::template::{Piece, VariableText};
use super::tools::{NamePattern, ToolsPolicy};
use crate::decode::{Decoder, Field};
use crate::diagnostic::Diagnostic;
use crate::keys::{self, Slot, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Between, Name, Named, Read, Schema, Shape};
use crate::tool::Tool;
use crate::yaml::Value;
use harness_policy::path::protected::rule_against;
use harness_policy::path::{Access, PathPattern, WorkspacePath};
use harness_policy::resource::{self, Label, Resource, Template};
use harness_policy::text::quoted;

/// Entries of `resources`, and of `templates`.
const MAX_ENTRIES: usize = 1000;
/// Values that a template has for one variable.
const MAX_VALUES: usize = 1000;

/// Tools that are listed where the policy does not say.
const LISTED: u64 = 40;

/// The number of tools above which clients search. None: all are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchAbove(pub Option<u64>);

impl Default for SearchAbove {
    fn default() -> Self {
        Self(Some(LISTED))
    }
}

impl Shape for SearchAbove {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [Between::<1, 1000>::schema(), {"const": "off"}], "default": LISTED}))
    }
}

impl Read for SearchAbove {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        match &field.node.value {
            Value::Str(text) if text == "off" => Some(Self(None)),
            _ => Between::<1, 1000>::read(decoder, field).map(|most| Self(Some(most.0))),
        }
    }
}

/// What clients of the Model Context Protocol may read, which agents they may set tasks, and how they get tools. By default
/// no file and no agent: an agent uses the operator's models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpPolicy {
    /// Files, in the order of the file.
    pub resources: Vec<Located<Resource>>,
    /// Templates of URIs, in the order of the file.
    pub templates: Vec<Located<Template>>,
    /// How many tools are listed.
    pub search_above: SearchAbove,
    /// Agents that clients may set tasks.
    pub agents: Vec<Located<NamePattern>>,
    /// How they are offered.
    pub agents_as: AgentsAs,
    /// How clients get the schemas of parameters.
    pub schemas: Schemas,
    /// What clients and agents get to call.
    pub expose: Expose,
    /// Tools that clients call as tasks, or not at all.
    pub only_as_tasks: Vec<Located<NamePattern>>,
    /// Tools that scripts call, and no model or client.
    pub only_in_scripts: Vec<Located<NamePattern>>,
    /// Servers of other programs whose tools are tools of the project, in the order of the file.
    pub servers: Vec<McpServer>,
    /// Where `resources` is, or would be, for hints: `.harness/harness.md:5:3`. Empty where there is no `mcp`.
    pub place: String,
}

keys! {
    /// The keys of `mcp`.
    McpKeys: Unknown::Refuse;
    /// Files that clients may read as resources, if `sandbox.fs.read` grants them too: patterns of paths, such as
    /// `docs/**`, and files with a URI of their own. Default: none.
    given resources: Vec<Located<Resource>>;
    /// Templates of URIs that lead to files, such as `docs/{name}.md`. Default: none.
    given templates: Vec<Located<Template>>;
    /// The number of tools above which only so many are listed, and `search_tools` finds the others; `off` lists all.
    given search_above: SearchAbove;
    /// Agents that clients of `harness mcp serve` may set tasks, by name: `helper`, `review_*`. Default: none.
    given agents: Vec<Located<NamePattern>>;
    /// How they are offered: each as a tool of its own (`tools`), or all as one tool (`run_agent`).
    given agents_as: AgentsAs = AgentsAs::Tools;
    /// How clients get the schemas of parameters: without the keywords at the top that services of models refuse, such as
    /// `anyOf` (`plain`), or as they are written (`whole`).
    given schemas: Schemas = Schemas::Plain;
    /// What clients and the project's agents get to call: the tools (`tools`); `search_tools`, `describe_tool` and
    /// `run_script`, whose scripts call the tools (`code`); or `both`.
    given expose: Expose = Expose::Tools;
    /// Tools that only clients may call that can follow them as tasks, by name. Default: none.
    given only_as_tasks: Vec<Located<NamePattern>>;
    /// Tools that only scripts may call, by name, as those with `expose: script`. Default: none.
    given only_in_scripts: Vec<Located<NamePattern>>;
    /// Servers of other programs, by name. Their tools are tools of the project, if `harness.lock` has them.
    given servers: Servers;
}

keys! {
    /// A file with a URI of its own.
    ResourceKeys: Unknown::Refuse;
    /// The URI, such as `docs://guide`.
    required uri: Name;
    /// The path in the workspace.
    required file: Name;
    /// Its name. Default: the last part of the path.
    given name: Name;
    /// Its description.
    given description: Name;
    /// Its media type. Default: found by the end of the file's name.
    given mime_type: Name;
}

keys! {
    /// A template with more than its path.
    TemplateKeys: Unknown::Refuse;
    /// The path in the workspace, with variables such as `{name}`.
    required file: Name;
    /// The form of the URIs, with the same variables. Default: `file:///` and the path.
    given uri: Name;
    /// Its name. Default: its path.
    given name: Name;
    /// Its description.
    given description: Name;
    /// The media type of all its files.
    given mime_type: Name;
    /// Values that clients may offer for a variable, by its name.
    given values: Named<Vec<String>>;
}

impl McpPolicy {
    /// Whether clients may set this agent tasks.
    pub fn offers_agent(&self, name: &str) -> bool {
        self.agents.iter().any(|pattern| pattern.value.matches(name))
    }

    /// Whether clients call a tool as a task, or not at all.
    pub fn wants_task(&self, tool: &str) -> bool {
        self.only_as_tasks.iter().any(|pattern| pattern.value.matches(tool))
    }

    /// Whether scripts call a tool, and no model or client.
    pub fn is_only_in_scripts(&self, tool: &Tool) -> bool {
        let is_named = || self.only_in_scripts.iter().any(|pattern| pattern.value.matches(&tool.name));
        tool.expose == ToolExpose::Script || is_named()
    }

    /// A server by its name.
    pub fn server(&self, name: &str) -> Option<&McpServer> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The name of an agent that this one offers and another one does not. An error: that could not be found out.
    pub fn wider_than(&self, old: &Self) -> Result<Option<String>, ()> {
        let Some(first) = self.agents.first() else { return Ok(None) };
        let names =
            |policy: &Self| -> Vec<NamePattern> { policy.agents.iter().map(|pattern| pattern.value.clone()).collect() };
        let [now, before] = [names(self), names(old)].map(|names| ToolsPolicy::of_patterns(&names, &first.position));
        now.wider_than(&before)
    }
}

impl Shape for McpPolicy {
    fn schema() -> Schema {
        keys::schema::<McpKeys<'_>>()
    }
}

impl Read for McpPolicy {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: McpKeys<'_> = decoder.keys(field)?;
        let place = decoder.position(keys.resources.field().unwrap_or(field).span()).to_string();
        let resources = bounded(decoder, &keys.resources);
        let templates = bounded(decoder, &keys.templates);
        let mut uris = HashSet::new();
        for Located { value, position } in &resources {
            if let Resource::File { uri, .. } = value
                && !uris.insert(uri.clone())
            {
                decoder
                    .diagnostics
                    .push(Diagnostic::error(format!("{} is there twice", quoted(uri))).at(position.clone()));
            }
        }
        for Located { value, position } in &templates {
            let uri = value.uri.to_string();
            if !uris.insert(uri.clone()) {
                decoder
                    .diagnostics
                    .push(Diagnostic::error(format!("{} is there twice", quoted(&uri))).at(position.clone()));
            }
        }
        let search_above = keys.search_above.read(decoder).unwrap_or_default();
        Some(Self {
            resources,
            templates,
            search_above,
            agents: keys.agents.read(decoder).unwrap_or_default(),
            agents_as: keys.agents_as.read(decoder),
            schemas: keys.schemas.read(decoder),
            expose: keys.expose.read(decoder),
            only_as_tasks: keys.only_as_tasks.read(decoder).unwrap_or_default(),
            only_in_scripts: keys.only_in_scripts.read(decoder).unwrap_or_default(),
            servers: keys.servers.read(decoder).unwrap_or_default().0,
            place,
        })
    }
}

fn bounded<T: Read>(decoder: &mut Decoder, slot: &Slot<'_, Vec<Located<T>>>) -> Vec<Located<T>> {
    let Some(entries) = slot.read(decoder) else { return Vec::new() };
    if let (true, Some(field)) = (entries.len() > MAX_ENTRIES, slot.field()) {
        decoder.error(field, format!("{} has more than {MAX_ENTRIES} entries", quoted(&field.path)));
    }
    entries
}

impl Shape for Resource {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [PathPattern::schema(), keys::schema::<ResourceKeys<'_>>()]}))
    }
}

impl Read for Resource {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        if !matches!(field.node.value, Value::Map(_)) {
            let pattern = PathPattern::read(decoder, field)?;
            warn_of_closed(decoder, field, &pattern.to_string());
            return Some(Self::Files(pattern));
        }
        let keys: ResourceKeys<'_> = decoder.keys(field)?;
        let label = Label {
            name: text(decoder, &keys.name),
            description: text(decoder, &keys.description),
            mime_type: media(decoder, &keys.mime_type),
        };
        let (uri, file) = (needed(decoder, field, &keys.uri, "uri"), needed(decoder, field, &keys.file, "file"));
        let uri = decoder.parse_one(uri?, |uri| resource::own_uri(uri).map(|()| uri.to_owned()));
        let file = file?;
        let path = decoder.parse_one(file, resource::plain)?;
        warn_of_closed(decoder, file, &path.to_string());
        Some(Self::File { uri: uri?, path, label })
    }
}

impl Shape for Template {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [String::schema(), keys::schema::<TemplateKeys<'_>>()]}))
    }
}

impl Read for Template {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        if !matches!(field.node.value, Value::Map(_)) {
            return decoder.parse_one(field, Self::of_paths);
        }
        let keys: TemplateKeys<'_> = decoder.keys(field)?;
        let label = Label {
            name: text(decoder, &keys.name),
            description: text(decoder, &keys.description),
            mime_type: media(decoder, &keys.mime_type),
        };
        let values = keys.values.read(decoder).map(Named::pairs).unwrap_or_default();
        let file = needed(decoder, field, &keys.file, "file")?;
        let template = match keys.uri.field() {
            None => decoder.parse_one(file, Self::of_paths)?,
            Some(uri) => {
                let path = decoder.string(file)?.to_owned();
                decoder.parse_one(uri, |uri| Self::of(uri, &path))?
            }
        };
        for (name, values) in &values {
            if !template.uri.variables().any(|known| known == name) {
                decoder
                    .error(field, format!("`values` has {}, which is no variable of {}", quoted(name), template.uri));
                return None;
            }
            if values.len() > MAX_VALUES {
                decoder.error(field, format!("{} has more than {MAX_VALUES} values", quoted(name)));
                return None;
            }
        }
        Some(Self { label, values, ..template })
    }
}

/// A path that no policy opens is offered to nobody, and its author thinks that it is.
fn warn_of_closed(decoder: &mut Decoder, field: &Field<'_>, text: &str) {
    // What a pattern spells out is in each path that it finds.
    let path = WorkspacePath::parse(text, "").ok();
    if let Some(rule) = path.and_then(|path| rule_against(&path, Access::Read)) {
        decoder.warn(field, format!("{} offers nothing: {rule}", quoted(text)), "no policy opens it");
    }
}

fn needed<'n, 's>(decoder: &mut Decoder, of: &Field<'n>, slot: &'s Slot<'n, Name>, key: &str) -> Option<&'s Field<'n>> {
    if slot.field().is_none() {
        decoder.error(of, format!("{} has no `{key}`", quoted(&of.path)));
    }
    slot.field()
}

fn text(decoder: &mut Decoder, slot: &Slot<'_, Name>) -> Option<String> {
    let Name(text) = slot.read(decoder)?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn media(decoder: &mut Decoder, slot: &Slot<'_, Name>) -> Option<String> {
    let field = slot.field()?;
    decoder.parse_one(field, |text| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_' | ';' | '=' | ' ');
        match text.split_once('/') {
            Some((kind, of)) if !kind.is_empty() && !of.is_empty() && kind.chars().chain(of.chars()).all(is_word) => {
                Ok(text.to_owned())
            }
            _ => Err("this is not a media type, such as `text/markdown`".to_owned()),
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::policy::ProjectPolicy;

    fn parse(mcp: &str) -> (Option<ProjectPolicy>, Vec<String>) {
        let (policy, found) = ProjectPolicy::parse(".harness/harness.md", &format!("---\nmcp:\n{mcp}---\n"));
        let shown =
            found.iter().map(|one| format!("{} {}", one.position.as_ref().map_or(0, |at| at.line), one.message));
        (policy, shown.collect())
    }

    #[test]
    fn what_is_offered() {
        let (policy, wrong) = parse(
            "  resources:\n  - docs/**\n  - { uri: 'docs://guide', file: docs/guide.md, name: Guide, mime_type: text/markdown }\n  \
             templates:\n  - docs/{name}.md\n  - { uri: 'log://{day}', file: 'logs/{day}.txt', values: { day: [mon, tue] } }\n",
        );
        assert_eq!(wrong, Vec::<String>::new());
        let mcp = policy.unwrap().mcp;
        let shown: Vec<String> = mcp.resources.iter().map(|one| one.value.to_string()).collect();
        assert_eq!(shown, ["docs/**", "docs://guide (docs/guide.md)"]);
        let shown: Vec<String> = mcp.templates.iter().map(|one| one.value.to_string()).collect();
        assert_eq!(shown, ["file:///docs/{name}.md (docs/{name}.md)", "log://{day} (logs/{day}.txt)"]);
        assert_eq!(mcp.templates[1].values, [("day".to_owned(), vec!["mon".to_owned(), "tue".to_owned()])]);
        assert_eq!(mcp.search_above, super::SearchAbove(Some(40)));
        assert_eq!(parse("  search_above: off\n").0.unwrap().mcp.search_above, super::SearchAbove(None));
        assert_eq!(parse("  search_above: 7\n").0.unwrap().mcp.search_above, super::SearchAbove(Some(7)));
        assert_eq!(parse("  search_above: 0\n").1.len(), 1);
        assert_eq!(mcp.place, ".harness/harness.md:3:3");
        assert_eq!(parse("  resources: []\n").0.unwrap().mcp.resources, []);
    }

    #[test]
    fn what_is_wrong() {
        for (mcp, want) in [
            ("  resource: [x]\n", "3 unknown key `mcp.resource`"),
            ("  resources: x\n", "3 parse harness.md: yaml: line 3: `mcp.resources` must be a list, found a string"),
            ("  resources: [../x]\n", "3 `mcp.resources[0]`: a pattern may not hold `..`"),
            ("  resources: [{ uri: 'a://b' }]\n", "3 `mcp.resources[0]` has no `file`"),
            ("  resources: [{ file: b }]\n", "3 `mcp.resources[0]` has no `uri`"),
            (
                "  resources: [{ uri: 'file:///b', file: b }]\n",
                "3 `mcp.resources[0].uri`: a URI with `file:` is that of the path itself: leave `uri` out",
            ),
            (
                "  resources: [{ uri: 'a://b', file: b, mime_type: x }]\n",
                "3 `mcp.resources[0].mime_type`: this is not a media type, such as `text/markdown`",
            ),
            ("  resources: [{ uri: 'a://b', file: b }, { uri: 'a://b', file: c }]\n", "3 `a://b` is there twice"),
            (
                "  templates: [docs]\n",
                "3 `mcp.templates[0]`: a template has a variable, such as `{name}`; name a file in `resources` instead",
            ),
            (
                "  templates: [{ file: 'd/{x}', values: { y: [a] } }]\n",
                "3 `values` has `y`, which is no variable of file:///d/{x}",
            ),
        ] {
            let (policy, wrong) = parse(mcp);
            assert_eq!(wrong, [want], "{mcp}");
            assert!(policy.is_none(), "{mcp}");
        }
        // A warning, with which the policy holds.
        let (policy, wrong) = parse("  resources: [.env]\n");
        assert!(policy.is_some() && wrong[0].starts_with("3 `.env` offers nothing: "), "{wrong:?}");
    }

    #[test]
    fn there_are_bounds() {
        let entries = |count: usize| format!("  resources: [{}]\n", vec!["x"; count].join(", "));
        assert!(parse(&entries(super::MAX_ENTRIES)).0.is_some());
        assert_eq!(parse(&entries(super::MAX_ENTRIES + 1)).1, ["3 `mcp.resources` has more than 1000 entries"]);
        let values = |count: usize| {
            format!("  templates: [{{ file: 'd/{{x}}', values: {{ x: [{}] }} }}]\n", vec!["x"; count].join(", "))
        };
        assert!(parse(&values(super::MAX_VALUES)).0.is_some());
        assert_eq!(parse(&values(super::MAX_VALUES + 1)).1, ["3 `x` has more than 1000 values"]);
    }
}
