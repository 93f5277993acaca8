//! Code mode: `search_tools`, `describe_tool` and `run_script`, by which a model or a client calls many tools with one
//! script instead of one call each. Only what the script returns comes back.
//!
//! They are calls like any other. The script runs in an instance of its own and is granted nothing but to call tools: each
//! call that it makes takes the six steps with its own arguments, under no more than what the caller of the script may do.

mod find;
mod script;
mod stub;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;

use super::chain::CallContext;
use super::loaded::Loaded;
use super::pipeline::CallError;
use super::reentry::Nested;
use harness_artifact::alike;
use harness_artifact::lint;
use harness_artifact::tool::{ParameterType, Tool};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Origin, Scope, Service};
use harness_policy::limits::Limits;
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::{Outcome, Report};

pub use find::rank;

pub use harness_artifact::tool::CODE_TOOLS as NAMES;

/// Finds tools by words.
const SEARCH_TOOLS: &str = NAMES[0];
/// Shows how a tool is called from a script.
const DESCRIBE_TOOL: &str = NAMES[1];
/// Runs a script that calls tools.
pub const RUN_SCRIPT: &str = NAMES[2];

/// The text that `run_script` is described by.
const ABOUT: &str = "Runs a Starlark script (a subset of Python: no import, class, try, while or recursion) and returns what \
its function `run()` returns; nothing else comes back. Tools are functions with arguments by name. Example:\n\n\
def run():\n    issues = tracker_list(state=\"open\")\n    return [issue[\"title\"] for issue in issues if issue[\"votes\"] > 10]\n\n\
A tool that fails ends the script with its error. `meta.try_call(\"name\", {\"key\": \"value\"})` returns a record with `ok`, `value` \
and `error` instead, and `meta.parallel([(\"name\", {\"key\": \"value\"}), ...], limit=8)` a list of such records, in order. Names, \
arguments and types are checked before the first call. Find tools with `search_tools`, and see `describe_tool` for one.";

static TOOLS: LazyLock<[Arc<Tool>; 3]> = LazyLock::new(|| {
    let text = ParameterType::String;
    let found = "Finds tools by words of their names and descriptions, and returns how `run_script` calls each.";
    let described = "Describes one tool: how a script calls it, what it takes and what it returns.";
    [
        Tool::built_in(SEARCH_TOOLS, found, &[("query", text, true, "Words, such as `deploy staging`.")]),
        Tool::built_in(DESCRIBE_TOOL, described, &[("name", text, true, "The name of the tool, or of its function.")]),
        Tool::built_in(RUN_SCRIPT, ABOUT, &[("script", text, true, "The script. It defines `run()`.")]),
    ]
    .map(Arc::new)
});

/// The three tools, where the policy offers them (`mcp.expose`).
pub fn tools(loaded: &Loaded) -> &'static [Arc<Tool>] {
    if loaded.parts.policy.mcp.expose.has_code() { &*TOOLS } else { &[] }
}

/// One of them by its name, where the policy offers it.
pub(super) fn tool(loaded: &Loaded, name: &str) -> Option<&'static Arc<Tool>> {
    tools(loaded).iter().find(|tool| tool.name == name)
}

/// Why a model or a client does not call a tool itself, where only scripts do.
pub fn only_in_scripts(loaded: &Loaded, tool: &Tool) -> Option<CallError> {
    let mcp = &loaded.parts.policy.mcp;
    let hint = if mcp.expose.has_code() { "call it in a script by `run_script`" } else { "" };
    let refusal = || Refusal::new(format!("the tool `{}` is only called by scripts", tool.name), hint);
    mcp.is_only_in_scripts(tool).then(|| CallError::NotAllowed(refusal()))
}

/// The script that a call of `run_script` has.
pub(super) fn script_of<'a>(loaded: &Loaded, name: &str, arguments: &'a Json) -> Option<&'a str> {
    tool(loaded, name).filter(|tool| tool.name == RUN_SCRIPT)?;
    arguments.get("script").and_then(Json::as_str)
}

/// What a script may do by itself: call tools. The limits are those of who calls it.
pub(super) fn grant(loaded: &Loaded, run: &[Layer], caller: Option<&Arc<Grant>>) -> Arc<Grant> {
    let project = loaded.parts.policy.grant_for("", None);
    let callers = caller.iter().flat_map(|caller| caller.layers());
    let limits = project.layers().iter().chain(callers).map(|layer| &**layer).chain(run);
    let mut layers: Vec<Layer> =
        limits.map(|layer| Layer { limits: layer.limits, ..Layer::silent(layer.origin.clone()) }).collect();
    let nothing = Layer {
        fs: Some(Default::default()),
        network: Some(Default::default()),
        exec: Some(Default::default()),
        env: Some(Vec::new()),
        services: Some(vec![Service::Meta]),
        secrets: Some(Vec::new()),
        ..Layer::silent(Origin::new(RUN_SCRIPT, Scope::Call))
    };
    layers.push(nothing);
    Arc::new(Grant::new(layers))
}

/// The tools that a script may call.
struct Callable {
    /// By their names.
    tools: BTreeMap<String, Arc<Tool>>,
    /// By the names of their functions. A tool whose function would have a name of the language, of a built-in or of
    /// another tool is called by `meta.call`.
    functions: BTreeMap<String, Arc<Tool>>,
}

impl Callable {
    fn at(place: &CallContext) -> Self {
        let loaded = &place.loaded;
        let all = loaded.parts.registry.tools().iter().chain(place.added_tools().map(|added| &added.tool));
        let allowed = all.filter(|tool| loaded.parts.policy.tools.decide(&tool.name).is_ok());
        let tools: BTreeMap<String, Arc<Tool>> = allowed.map(|tool| (tool.name.clone(), tool.clone())).collect();
        // Tools of the project have the names first, and among these the ones that need no other. A name that two tools
        // of one kind would have is neither's, and no other's either.
        let mut functions: BTreeMap<String, Option<Arc<Tool>>> = BTreeMap::new();
        for (is_own, is_exact) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut named: BTreeMap<String, Option<Arc<Tool>>> = BTreeMap::new();
            for tool in tools.values().filter(|tool| stub::author(tool).is_none() == is_own) {
                if let Some(function) = function(&tool.name).filter(|function| (*function == tool.name) == is_exact) {
                    named.entry(function).and_modify(|two| *two = None).or_insert_with(|| Some(tool.clone()));
                }
            }
            for (function, tool) in named {
                functions.entry(function).or_insert(tool);
            }
        }
        let functions = functions.into_iter().filter_map(|(function, tool)| Some((function, tool?))).collect();
        Self { tools, functions }
    }

    /// The name of the function of a tool, where it has one.
    fn function_of(&self, tool: &Tool) -> Option<&str> {
        let (name, _) = self.functions.get_key_value(&function(&tool.name)?)?;
        self.functions.get(name).filter(|of| of.name == tool.name)?;
        Some(name)
    }
}

/// The name of a function for a tool: what is no letter, digit or `_` becomes `_`.
fn function(tool: &str) -> Option<String> {
    let name: String = tool.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (starts && name != "run" && !lint::is_taken(&name)).then_some(name)
}

/// Runs one of the tools. `caller` is the grant of the script that calls it, where one does: nothing that it calls gets more.
pub(super) async fn run(
    place: &CallContext,
    tool: &Tool,
    (grant, caller): (&Arc<Grant>, Option<&Arc<Grant>>),
    limits: Limits,
    arguments: &Json,
) -> (Report<String>, Vec<Nested>) {
    if tool.name == RUN_SCRIPT {
        return script::run(place, tool, (grant, caller), limits, arguments).await;
    }
    (script::ended(answer(place, &tool.name, arguments), 0), Vec::new())
}

/// `search_tools` and `describe_tool`.
fn answer(place: &CallContext, name: &str, arguments: &Json) -> Outcome<String> {
    let text = |key: &str| arguments.get(key).and_then(Json::as_str).unwrap_or_default();
    let callable = Callable::at(place);
    let answer = match name {
        SEARCH_TOOLS => find::answer(&callable, text("query")),
        _ => {
            let wanted = text("name");
            let tool = callable.tools.get(wanted).or_else(|| callable.functions.get(wanted));
            match tool {
                Some(tool) => stub::described(&callable, tool),
                None => {
                    let names = callable.tools.keys().map(String::as_str);
                    return failed(unknown(wanted, names));
                }
            }
        }
    };
    Outcome::Completed(Json::String(answer).to_string())
}

fn unknown<'a>(wanted: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let shown = harness_policy::text::quoted(wanted);
    let alike = names.clone().find(|name| alike::is_alike(name, wanted));
    match alike.or_else(|| harness_artifact::suggest::closest(wanted, names)) {
        Some(meant) => format!("there is no tool {shown}: did you mean `{meant}`?"),
        None => format!("there is no tool {shown}: `{SEARCH_TOOLS}` finds tools by words"),
    }
}

fn failed(why: String) -> Outcome<String> {
    use harness_sandbox::outcome::{Failure, FailureKind};
    Outcome::Failed(Failure::without_place(FailureKind::Script, "", why))
}
