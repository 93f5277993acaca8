//! What clients see of a project's tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use harness_artifact::policy::mcp::Schemas;
use harness_artifact::tool::Tool;
use harness_dispatch::{Loaded, code};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Service};
use rmcp::model::{JsonObject, Tool as Definition, ToolAnnotations};
use serde_json::Value as Json;

use crate::agents::{self, AgentTool};
use crate::names::Names;
use crate::search::{self, SEARCH};

/// Bytes of a description. Claude Code cuts there.
const MAX_DESCRIPTION: usize = 2048;
/// The end of a description that was cut.
const CUT: &str = " [...]";
/// Keywords that services of models refuse at the top of a schema, for all tools of a request. The host checks arguments
/// against them all the same.
const REFUSED_AT_TOP: [&str; 10] = ["$ref", "allOf", "anyOf", "const", "else", "enum", "if", "not", "oneOf", "then"];

/// What the policy lets clients call, as they get it: in the order of names, which is the same for the same artifacts.
#[derive(Debug, Default)]
pub struct Catalog {
    definitions: BTreeMap<String, Definition>,
    /// Those that are listed, where that is not all of them.
    listed: Option<BTreeMap<String, Definition>>,
    targets: BTreeMap<String, Target>,
}

/// What a name for clients leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The tool of this name.
    Tool(String),
    /// Agents.
    Agent(AgentTool),
    /// The search for tools.
    Search,
    /// One of the tools of code mode, of this name.
    Code(&'static str),
}

impl Catalog {
    /// The catalog of artifacts that are in force.
    pub fn of(loaded: &Loaded) -> Self {
        let offered: BTreeMap<&str, &Arc<Tool>> = loaded
            .registry()
            .tools()
            .iter()
            .filter(|tool| loaded.policy().tools.decide(&tool.name).is_ok())
            .filter(|tool| !loaded.policy().mcp.is_only_in_scripts(tool))
            .map(|tool| (tool.name.as_str(), tool))
            .collect();
        let agents = agents::offered(loaded);
        let names = Names::of(offered.keys().copied().chain(agents.keys().map(String::as_str)));
        let has_agents = !loaded.registry().agents().is_empty();
        let (schemas, expose) = (loaded.policy().mcp.schemas, loaded.policy().mcp.expose);
        let mut catalog = Self::default();
        for (name, own) in names.iter() {
            let (definition, target) = match (offered.get(own), agents.get(own)) {
                (Some(_), _) if !expose.has_tools() => continue,
                (Some(tool), _) => {
                    let hints = tool.script.as_ref().map(|_| annotations(&loaded.grant(tool), has_agents));
                    (define(name, tool, hints, schemas), Target::Tool(own.to_owned()))
                }
                (None, Some(agent)) => (agent.define(name, loaded), Target::Agent(agent.clone())),
                (None, None) => continue,
            };
            catalog.definitions.insert(name.to_owned(), definition);
            catalog.targets.insert(name.to_owned(), target);
        }
        catalog.offer_search(loaded);
        catalog.offer_code(loaded);
        catalog
    }

    /// Lists the tools of code mode, where the policy offers them. They win over what has their names.
    fn offer_code(&mut self, loaded: &Loaded) {
        for tool in code::tools(loaded).iter().filter(|tool| loaded.policy().tools.decide(&tool.name).is_ok()) {
            let hints = match tool.name.as_str() {
                // It can do what all tools can.
                code::RUN_SCRIPT => ToolAnnotations::new().read_only(false).destructive(true).open_world(true),
                _ => ToolAnnotations::new().read_only(true).open_world(false),
            };
            let definition = define(&tool.name, tool, Some(hints), Schemas::Whole);
            if let Some(listed) = &mut self.listed {
                listed.insert(tool.name.clone(), definition.clone());
            }
            self.definitions.insert(tool.name.clone(), definition);
            let name = code::NAMES.iter().find(|name| **name == tool.name);
            self.targets.extend(name.map(|name| (tool.name.clone(), Target::Code(name))));
        }
    }

    /// Lists the first ones only, and the search for the others, where there are more than the policy wants listed.
    fn offer_search(&mut self, loaded: &Loaded) {
        let policy = loaded.policy();
        let most = policy.mcp.search_above.0.and_then(|most| usize::try_from(most).ok());
        let is_free = !self.definitions.contains_key(SEARCH) && policy.tools.decide(SEARCH).is_ok();
        let Some(most) = most.filter(|most| is_free && self.definitions.len() > *most) else { return };
        let search = search::definition(self.definitions.len());
        let first = self.definitions.iter().take(most.saturating_sub(1));
        let mut listed: BTreeMap<String, Definition> =
            first.map(|(name, definition)| (name.clone(), definition.clone())).collect();
        listed.insert(SEARCH.to_owned(), search.clone());
        self.listed = Some(listed);
        self.definitions.insert(SEARCH.to_owned(), search);
        self.targets.insert(SEARCH.to_owned(), Target::Search);
    }

    /// The definitions that a client gets listed: all, or the first ones and `search_tools`.
    pub fn listed(&self) -> &BTreeMap<String, Definition> {
        self.listed.as_ref().unwrap_or(&self.definitions)
    }

    /// Whether there are more tools than are listed, so that clients can search.
    pub fn searches(&self) -> bool {
        self.listed.is_some()
    }

    /// All definitions by the names that clients use, in the order of these.
    pub fn definitions(&self) -> &BTreeMap<String, Definition> {
        &self.definitions
    }

    /// One definition, by the name that clients use.
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.definitions.get(name)
    }

    /// Whether results of a tool are values too.
    pub(crate) fn is_structured(&self, name: &str) -> bool {
        self.definition(name).is_some_and(|tool| tool.output_schema.is_some())
    }

    /// What a name for clients leads to.
    pub(crate) fn target(&self, name: &str) -> Option<&Target> {
        self.targets.get(name)
    }
}

/// A definition. What the program implements is not held by a grant, and has no hints.
pub(crate) fn define(name: &str, tool: &Tool, hints: Option<ToolAnnotations>, schemas: Schemas) -> Definition {
    let (description, parameters) = tool.offered();
    let parameters = match parameters {
        Json::Object(schema) if schemas == Schemas::Whole => schema,
        schema => at_top(schema),
    };
    let mut definition = Definition::new(name.to_owned(), shortened(&description, &tool.name), Arc::new(parameters));
    // A boolean is a schema too, and says nothing that a client could use.
    if let Some(Json::Object(returns)) = tool.returns.as_ref().map(|returns| returns.json()) {
        definition = definition.with_raw_output_schema(Arc::new(returns.clone()));
    }
    definition.annotations = hints;
    definition
}

/// A schema that is plainly one of an object.
fn at_top(schema: Json) -> JsonObject {
    let Json::Object(mut schema) = schema else { return JsonObject::new() };
    schema.retain(|keyword, _| !REFUSED_AT_TOP.contains(&keyword.as_str()));
    schema
}

/// A description without the heading that repeats the tool's name, cut to what clients read.
pub(crate) fn shortened(description: &str, name: &str) -> String {
    let (first, rest) = description.split_once('\n').unwrap_or((description, ""));
    let is_name = first.strip_prefix('#').is_some_and(|heading| heading.trim_start_matches('#').trim() == name);
    let text = if is_name && !rest.trim().is_empty() { rest.trim() } else { description.trim() };
    if text.len() <= MAX_DESCRIPTION {
        return text.to_owned();
    }
    let kept = text.get(..text.floor_char_boundary(MAX_DESCRIPTION - CUT.len())).unwrap_or_default();
    format!("{}{CUT}", kept.trim_end())
}

/// What the grant shows. It is the most that a tool can do, so that a hint can be too careful and never too kind.
fn annotations(grant: &Grant, has_agents: bool) -> ToolAnnotations {
    let writes = allows(grant, |layer| layer.fs.as_ref().map(|fs| !fs.write.is_empty()));
    let runs = allows(grant, |layer| layer.exec.as_ref().map(|exec| !exec.allow.is_empty()));
    let connects = allows(grant, |layer| layer.network.as_ref().map(|network| !network.allow.is_empty()));
    let sends = allows(grant, |layer| {
        layer.network.as_ref().map(|network| network.allow.iter().any(|rule| !rule.only_reads()))
    });
    let runs_with_network = runs && allows(grant, |layer| layer.exec.as_ref().map(|exec| exec.network.is_some()));
    let delegates = has_agents
        && allows(grant, |layer| layer.services.as_ref().map(|services| services.contains(&Service::Delegate)));
    let changes = writes || runs || sends || delegates;
    let hints = ToolAnnotations::new().read_only(!changes).open_world(connects || runs_with_network || delegates);
    // Of a tool that changes nothing this says nothing.
    if changes { hints.destructive(true) } else { hints }
}

/// Whether a layer grants something, and none withholds it.
fn allows(grant: &Grant, granted: impl Fn(&Layer) -> Option<bool>) -> bool {
    let answers: Vec<bool> = grant.layers().iter().filter_map(|layer| granted(layer)).collect();
    answers.contains(&true) && !answers.contains(&false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_keeps_what_clients_read() {
        assert_eq!(shortened("# greet\n\nGreets someone.", "greet"), "Greets someone.");
        assert_eq!(shortened("# greet", "greet"), "# greet");
        assert_eq!(shortened("# Greeting\n\nGreets.", "greet"), "# Greeting\n\nGreets.");
        let most = "x".repeat(MAX_DESCRIPTION);
        assert_eq!(shortened(&most, "greet"), most);
        let cut = shortened(&"\u{fc}".repeat(MAX_DESCRIPTION), "greet");
        assert!(cut.len() <= MAX_DESCRIPTION && cut.ends_with("\u{fc} [...]"), "{cut}");
    }

    #[test]
    fn a_schema_is_plainly_one_of_an_object() {
        let given = json!({
            "type": "object",
            "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "required": [],
            "oneOf": [{"required": ["a"]}],
            "additionalProperties": false
        });
        let mut want = given.clone();
        want.as_object_mut().unwrap().remove("oneOf");
        assert_eq!(Json::Object(at_top(given)), want);
    }
}
