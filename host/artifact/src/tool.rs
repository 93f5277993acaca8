//! A tool: a function in Starlark that a model may call by name.

mod effect;

use std::fmt;

use serde_json::{Map, Value as Json, json};

use super::alike;
use super::arguments::{self, ArgumentError};
use super::cases::{self, Case, Subject, ToolCases};
use super::decode::{Decoder, Field};
use super::definition::{Served, server_of};
use super::diagnostic::{Diagnostic, Diagnostics, Position};
use super::keys::{self, Unknown, keys};
use super::located::Located;
use super::parameters::{self, Parameters, Returns};
use super::policy::mcp::ToolExpose;
use super::policy::{layer, sources};
use super::script::Script;
use super::shape::{self, Name, Schema, Shape};
use super::suggest::closest;
use super::third_party;
use super::value_schema::{Misfit, ValueSchema};
pub use effect::Effect;
use harness_policy::deadline::Author;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::text::quoted;

/// Names that tools of the host have, and no artifact.
pub const RESERVED: [&str; 7] =
    ["delegate", "delegate_async", "delegate_await", "delegate_status", READ_SKILL, "task_await", "task_poll"];
/// Names of the host's tools of code mode: of no artifact where the policy offers them (`mcp.expose`).
pub const CODE_TOOLS: [&str; 3] = ["search_tools", "describe_tool", "run_script"];
/// The tool by which a model reads a skill.
pub const READ_SKILL: &str = "read_skill";
/// The tool by which a model says that its task is complete, where the policy asks for that: the host's, unless the
/// project has one of the name.
pub const DONE: &str = "done";

/// A tool as its file declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The stem of its file, as it is; of one in a list, its `name`.
    pub name: String,
    /// The prose of its file, for the model; the name where there is none. Of one in a list, its `description`.
    pub description: String,
    /// What it takes, in the order of the file.
    pub parameters: Parameters,
    /// What its result has to fit.
    pub returns: Option<ValueSchema>,
    /// Its implementation. Without one, a call has nothing to run.
    pub script: Option<Script>,
    /// What judges each call that has completed: one that it does not accept has failed.
    pub verify: Option<Script>,
    /// The time that a call may take, in milliseconds, if its grant allows that. None where the file says 0 or nothing:
    /// the policy's limit counts.
    pub timeout_ms: Option<Located<u64>>,
    /// Whether it is declared with `async: true`: where the policy turns that on, the caller does not wait for it.
    pub asynchronous: Located<bool>,
    /// Whether its calls may overlap with others of one reply of a model, although it can write.
    pub parallel: bool,
    /// Whether a call is made again whose result is unknown, since the process ended while it was under way.
    pub effect: Effect,
    /// Whether a person confirms each call, for every caller.
    pub confirm: Located<bool>,
    /// Who calls it.
    pub expose: ToolExpose,
    /// The `capabilities:` it restricts itself to: one more layer of its grant.
    pub capabilities: Option<Layer>,
    /// Its `tests:`, in the order of the file.
    pub cases: Vec<Case>,
    /// Its `tags:`, for the hooks on `artifact.load`.
    pub tags: Vec<String>,
    /// The server that it is of, where it is one's.
    pub served: Option<Served>,
    /// The first line of its file; of one in a list, its entry.
    pub source: Position,
    /// The name by which a policy knows where it comes from, such as `tools/deploy` or `plugins/acme/tools/x`.
    pub source_name: String,
}

/// One parameter of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The key in the arguments.
    pub name: String,
    /// What its value must be.
    pub kind: Located<ParameterType>,
    /// For the model.
    pub description: Option<Located<String>>,
    /// Whether a call without it is refused.
    pub required: Located<bool>,
    /// Its other keywords of JSON Schema.
    pub keywords: Map<String, Json>,
    /// Where its name stands.
    pub position: Position,
}

/// What an argument must be in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of JSON")]
pub enum ParameterType {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    /// Other keywords say what.
    Any,
}

impl ParameterType {
    /// The words of the short form, in the order of messages.
    pub const ALL: [Self; 5] = [Self::String, Self::Number, Self::Boolean, Self::Object, Self::Array];

    /// The word in an artifact and in a JSON Schema.
    pub fn word(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::Array => "array",
            Self::Any => "any",
        }
    }

    /// The type of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Integer]).find(|kind| kind.word() == word)
    }

    /// The word that an author who wrote another one probably wants.
    pub(super) fn suggest(word: &str) -> Option<&'static str> {
        match word.to_ascii_lowercase().as_str() {
            "str" | "text" => Some("string"),
            "int" | "float" | "double" => Some("number"),
            "bool" => Some("boolean"),
            "dict" | "map" | "struct" => Some("object"),
            "list" | "tuple" => Some("array"),
            other => closest(other, Self::ALL.map(Self::word)),
        }
    }
}

impl fmt::Display for ParameterType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A key that seems to mean `confirm` must not leave a tool without it.
const GUARDED: Unknown = Unknown::RefuseLike(&["confirm"]);

keys! {
    /// What a tool has wherever it is written.
    pub(super) ToolKeys: GUARDED;
    /// The parameters of the tool, in the order that models see.
    optional parameters: Parameters;
    /// The JSON Schema of the result.
    given returns: Returns;
    /// Starlark that defines `run(args)`.
    optional script: Script;
    /// Starlark that defines `run(result)` and verifies each call that has completed.
    optional verify: Script;
    /// Maximum time of a call in milliseconds; 0: the limit of the policy, which it never exceeds.
    optional timeout_ms: Timeout;
    /// Whether the tool runs in the background. Ignored unless `sandbox.async_tools` is set.
    optional asynchronous("async"): bool = false;
    /// Whether calls may overlap with others of one reply, although the tool can write. Ignored unless
    /// `tools_policy.concurrency` is more than 1.
    given parallel: bool = false;
    /// What a second call does, in a turn that is continued after the process ended: nothing outside of the run (`none`),
    /// nothing more than the first (`idempotent`), or more (`once`). Only the first two are made again if their result is
    /// unknown.
    given effect: Effect = Effect::Once;
    /// Whether a person confirms each call, for every caller.
    given confirm: bool = false;
    /// Who calls the tool: models, clients and scripts (`both`), or scripts alone (`script`).
    given expose: ToolExpose = ToolExpose::Both;
    /// Rules that narrow the grant of the tool: one more layer.
    given capabilities: Layer;
    /// Cases that `harness test` runs.
    optional tests: ToolCases;
    /// Tags for hooks on `artifact.load`, which may reject an artifact by them.
    optional tags: Vec<String>;
}

keys! {
    /// What a tool in a list has instead of a file's name and prose.
    EntryKeys: GUARDED;
    /// Its name, by which it is called.
    required name: Name;
    /// Its description for the model.
    optional description: String;
}

/// One of a list of tools.
impl Shape for Tool {
    fn schema() -> Schema {
        keys::schema::<(EntryKeys<'_>, ToolKeys<'_>)>()
    }
}

/// Milliseconds that may be more than any limit.
struct Timeout;

impl Shape for Timeout {
    fn schema() -> Schema {
        shape::schema(json!({"type": "integer", "minimum": 0, "default": 0}))
    }
}

impl Tool {
    /// A tool of the program's own, which has no file and no script. Each parameter is a name, a type, whether it is
    /// required, and what it is.
    pub fn built_in(name: &str, description: &str, parameters: &[(&str, ParameterType, bool, &str)]) -> Self {
        let here = Position { file: format!("built-in:{name}").into(), line: 1, column: 1, length: 1 };
        let parameter = |(name, kind, required, description): &(&str, ParameterType, bool, &str)| Parameter {
            name: (*name).to_owned(),
            kind: Located::new(*kind, here.clone()),
            description: Some(Located::new((*description).to_owned(), here.clone())),
            required: Located::new(*required, here.clone()),
            keywords: Map::new(),
            position: here.clone(),
        };
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: Parameters::of(parameters.iter().map(parameter).collect()),
            returns: None,
            script: None,
            verify: None,
            timeout_ms: None,
            asynchronous: Located::new(false, here.clone()),
            parallel: false,
            effect: Effect::Once,
            confirm: Located::new(false, here.clone()),
            expose: ToolExpose::Both,
            capabilities: None,
            cases: Vec::new(),
            tags: Vec::new(),
            served: None,
            source: here.clone(),
            source_name: format!("built-in/{name}"),
        }
    }

    /// Whether it is a file of its own, whose prose its description is.
    pub fn has_prose(&self) -> bool {
        // The first line of a file is that of its front matter, in which no entry of a list can be.
        self.source.line == 1 && self.description != self.name
    }

    /// The time that it asks for, in milliseconds.
    pub fn asked(&self) -> Option<u64> {
        self.timeout_ms.as_ref().map(|own| own.value)
    }

    /// Whose word its front matter is.
    pub fn author(&self) -> Author {
        if sources::bundle_of(&self.source_name).is_some() { Author::Plugin } else { Author::Project }
    }

    /// Reads a tool. `file` is for messages, such as `.harness/tools/greet.md`; `stem` becomes its name. The tool is
    /// there only if nothing is wrong with it; the diagnostics hold everything that is, and warnings.
    pub fn parse(file: &str, stem: &str, text: &str) -> (Option<Self>, Diagnostics) {
        Self::parse_at(file, &sources::name_of(None, &format!("tools/{stem}")), stem, text)
    }

    /// Like [`parse`](Self::parse), for a file whose name as a source does not follow from its path.
    pub fn parse_at(file: &str, source_name: &str, stem: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let mut decoder = Decoder::new(file, format!("parse tool {stem}.md"));
        let tool = Self::decode(&mut decoder, source_name, stem, text);
        let diagnostics = decoder.into_diagnostics();
        (tool.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, source_name: &str, stem: &str, text: &str) -> Option<Self> {
        check_name(decoder, "tool", stem, &decoder.top());
        let document = decoder.document(text)?;
        let keys = decoder.root(&document.root)?;
        let mut tool = Self::of(decoder, keys, stem, decoder.top(), source_name);
        tool.description = if document.body.is_empty() { stem } else { document.body }.to_owned();
        Some(tool)
    }

    /// Reads one of a list of tools: the same keys, and a `name` and a `description`. `place` is the list's own, as
    /// [`source_name`](Self::source_name) begins with.
    pub fn entry(decoder: &mut Decoder, index: usize, field: &Field<'_>, place: &str) -> Option<Self> {
        let (entry, keys): (EntryKeys<'_>, ToolKeys<'_>) = decoder.keys(field)?;
        let (name, at) = match entry.name.located(decoder) {
            Some(Located { value: Name(name), position }) if !name.is_empty() => (name, position),
            _ => {
                let hint = "give it a line such as `name: read_file`".to_owned();
                decoder.error_with(field, format!("tools[{index}].name cannot be empty"), Some(hint));
                (String::new(), decoder.position(field.span()))
            }
        };
        if !name.is_empty() {
            check_name(decoder, "tool", &name, &at);
        }
        let description = entry.description.read(decoder);
        let mut tool = Self::of(decoder, keys, &name, at, &format!("{place}tools/{name}"));
        tool.description =
            description.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).unwrap_or(name);
        Some(tool)
    }

    /// A tool of the keys that it has wherever it is written.
    fn of(decoder: &mut Decoder, keys: ToolKeys<'_>, name: &str, source: Position, source_name: &str) -> Self {
        let parameters = keys.parameters.field().and_then(|f| Parameters::decode(decoder, name, f));
        let origin = Origin::new(&*source.file, Scope::Artifact);
        Self {
            name: name.to_owned(),
            description: name.to_owned(),
            parameters: parameters.unwrap_or_default(),
            returns: keys.returns.field().and_then(|f| parameters::returns(decoder, name, f)),
            script: keys.script.read(decoder),
            verify: keys.verify.read(decoder),
            timeout_ms: keys.timeout_ms.field().and_then(|f| timeout_ms(decoder, name, f)),
            asynchronous: keys.asynchronous.located(decoder, &source),
            parallel: keys.parallel.read(decoder),
            effect: keys.effect.read(decoder),
            confirm: keys.confirm.located(decoder, &source),
            expose: keys.expose.read(decoder),
            capabilities: keys.capabilities.field().and_then(|f| layer::decode(decoder, f, origin)),
            tags: keys.tags.read(decoder).unwrap_or_default(),
            cases: keys.tests.field().map(|f| cases::decode(decoder, f, Subject::Tool)).unwrap_or_default(),
            served: None,
            source,
            source_name: source_name.to_owned(),
        }
    }

    /// The parameters as a model sees them: a JSON Schema of an object, in the order of the file.
    pub fn json_schema(&self) -> Json {
        self.parameters.json_schema()
    }

    /// Its description and its parameters as a model gets to see them. What a third party says of its own is quoted and cut.
    pub fn offered(&self) -> (String, Json) {
        let mut parameters = self.json_schema();
        let author = third_party::author(&self.source_name);
        let description = match author.or_else(|| server_of(&self.source_name).map(|_| self.source_name.as_str())) {
            None => self.description.clone(),
            Some(author) => {
                third_party::cut_schema(&mut parameters);
                third_party::quoted(author, &self.description, third_party::MOST)
            }
        };
        (description, parameters)
    }

    /// Whether arguments fit the parameters; all that does not, in the order of the parameters.
    pub fn check_arguments(&self, arguments: &Json) -> Result<(), Vec<ArgumentError>> {
        arguments::check(&self.parameters, arguments)
    }

    /// Gives arguments that are not there the `default` of their parameter.
    pub fn fill_defaults(&self, arguments: &mut Json) {
        // A server fills in its own.
        if let (Json::Object(arguments), None) = (arguments, &self.served) {
            self.parameters.fill(arguments);
        }
    }

    /// Names of arguments that pass without being declared, each with the parameter that was probably meant.
    pub fn undeclared<'a>(&'a self, arguments: &'a Json) -> Vec<(&'a str, Option<&'a str>)> {
        let names = || self.parameters.list.iter().map(|parameter| parameter.name.as_str());
        let is_declared = |name: &str| names().any(|one| one == name);
        let given = arguments.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        // Who declares nothing says nothing of what is taken.
        let silent = self.parameters.list.is_empty() || self.parameters.is_about_others();
        let given = given.filter(|name| !silent && !is_declared(name));
        given.map(|name| (name, closest(name, names()))).collect()
    }

    /// Whether a result fits `returns`.
    pub fn check_result(&self, result: &Json) -> Result<(), Misfit> {
        self.returns.as_ref().map_or(Ok(()), |returns| returns.check(result))
    }

    /// The arguments that a command line gives as `key=value`, each value read by the type of its parameter.
    pub fn read_arguments<S: AsRef<str>>(&self, pairs: &[S]) -> Result<Map<String, Json>, Vec<ArgumentError>> {
        arguments::read(&self.parameters, pairs)
    }
}

/// A name is the stem of a file, as it is; what cannot be one is refused where the name comes from elsewhere.
pub(super) fn check_name(decoder: &mut Decoder, kind: &str, name: &str, at: &Position) {
    let Some(wrong) = name_problem(name) else { return };
    let message = format!("the name of a {kind} {wrong}, found {}", quoted(name));
    decoder.diagnostics.push(Diagnostic::error(message).at(at.clone()));
}

/// Why nothing can be called so, if nothing can.
pub fn name_problem(name: &str) -> Option<String> {
    let wrong = if name.is_empty() {
        "cannot be empty"
    } else if matches!(name, "." | "..") {
        "cannot be `.` or `..`"
    } else if name.contains('/') {
        "must not contain `/`"
    } else if name.chars().any(char::is_control) {
        "must not contain control characters"
    } else if name.trim() != name {
        // In a list nobody sees it.
        "must not begin or end with a space"
    } else if let Some(c) = alike::invisible(name) {
        return Some(format!("must not contain what is not seen, such as U+{:04X}", u32::from(c)));
    } else if name.len() > 3
        && name.get(name.len().saturating_sub(3)..).is_some_and(|end| end.eq_ignore_ascii_case(".md"))
    {
        // Else it would be read as the name of a file.
        "cannot end in `.md`"
    } else if let Some(scripts) = alike::mixed_scripts(name) {
        let unusual = alike::unusual(name);
        return Some(format!("must not mix letters of {} ({unusual})", scripts.join(" and ")));
    } else {
        return None;
    };
    Some(wrong.to_owned())
}

fn timeout_ms(decoder: &mut Decoder, tool: &str, field: &Field<'_>) -> Option<Located<u64>> {
    let value = decoder.integer(field)?;
    if value < 0 {
        decoder.error(field, format!("tool {tool:?} timeout_ms must be >= 0"));
        return None;
    }
    let Ok(ms) = u64::try_from(value) else {
        decoder.error(field, format!("tool {tool:?} timeout_ms must be at most {}", u64::MAX));
        return None;
    };
    (ms > 0).then(|| Located::new(ms, decoder.position(field.span())))
}

#[cfg(test)]
mod tests;
