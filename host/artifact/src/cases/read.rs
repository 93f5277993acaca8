//! How `tests:` is read: its keys, and what becomes of them.

use serde_json::{Map, Value as Json, json};

use super::{Answers, Aspect, Case, CommandResult, Expectation, Given, HttpAnswer, McpResult, Subject};
use crate::data::{Arguments, Data, ExitCode, Metric, Moment};
use crate::decode::{Decoder, Field};
use crate::event::Event;
use crate::keys::{self, Slot, Unknown, keys};
use crate::policy::layer;
use crate::shape::{self, Between, Name, Named, Read, Schema, Shape};
use crate::yaml::Value;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::LimitRules;
use harness_policy::text::quoted;

keys! {
    /// A case of a tool.
    ToolCaseKeys: Unknown::Refuse;
    /// The purpose of the case, such as `counts the words of a file`.
    required name: Name;
    /// The arguments of the call.
    optional args: Arguments;
    /// The environment of the case. It contains only what is named here.
    optional given: Given;
    /// The whole expected outcome.
    optional expect: ToolAspects;
    /// A part of the expected outcome.
    optional contains: ToolAspects;
}

keys! {
    /// A case of a hook.
    HookCaseKeys: Unknown::Refuse;
    /// The purpose of the case, such as `blocks rm -rf /`.
    required name: Name;
    /// The event. Default: the event of the hook.
    optional event: Event;
    /// The payload of the event.
    given payload: Data;
    /// The environment of the case. It contains only what is named here.
    optional given: Given;
    /// The whole expected outcome.
    optional expect: HookAspects;
    /// A part of the expected outcome.
    optional contains: HookAspects;
}

keys! {
    /// The world of a case.
    GivenKeys: Unknown::Refuse;
    /// The files of the workspace, by path.
    optional files: Named<String>;
    /// Variables of the host's environment.
    optional env: Named<String>;
    /// The responses of servers.
    optional http: Vec<HttpAnswer>;
    /// The output of commands.
    optional commands: Vec<CommandResult>;
    /// The results of tools of MCP servers.
    optional mcp: Vec<McpResult>;
    /// The time of the clock, such as `2026-01-02T03:04:05Z`, or seconds since 1970.
    optional now: Moment;
    /// The seed of the random numbers.
    optional random: Between<0, { u64::MAX }>;
    /// The values in the cache, by key.
    optional cache: Named<Data>;
    /// The values of the turn, by key.
    optional ctx: Named<Data>;
    /// The answers of the client of the call.
    optional answers: Answers;
    /// The metrics, by name.
    optional metrics: Named<Metric>;
    /// Whether the other hooks of the project run as well.
    optional hooks: bool = false;
    /// The grant in the case, instead of the policy's grant. Nothing in a case is real.
    given granted: Layer;
}

keys! {
    /// What a client answers.
    AnswersKeys: Unknown::Refuse;
    /// The answers of the person, in order, as `ask.user` returns them. Without the key nobody can be asked.
    optional user: Vec<Data>;
    /// The answers of the model, in order, as `ask.model` returns them.
    optional model: Vec<Data>;
    /// The folders, as `ask.roots` returns them.
    optional roots: Vec<Data>;
}

keys! {
    /// One answer of a server.
    HttpKeys: Unknown::Refuse;
    /// The URL of the request.
    required url: String;
    /// The method of the request.
    optional method: String = "GET".to_owned();
    /// The status of the response.
    optional status: Between<100, 599> = Between(200);
    /// Its headers.
    optional headers: Named<String>;
    /// The body of the response.
    optional body: String;
}

keys! {
    /// One command.
    CommandKeys: Unknown::Refuse;
    /// The name of the command.
    required cmd: String;
    /// Its arguments. Default: any.
    optional args: Vec<String>;
    /// Its standard output.
    optional stdout: String;
    /// Its standard error.
    optional stderr: String;
    /// Exit code. Default: 0, or -1 if the command timed out.
    optional exit_code: ExitCode;
    /// Whether it times out.
    optional timed_out: bool = false;
}

keys! {
    /// One result of a tool of an MCP server.
    McpKeys: Unknown::Refuse;
    /// The name of the tool in the project, such as `git_log`.
    required tool: String;
    /// Its arguments. Default: any.
    optional args: Data;
    /// The text of its result.
    optional text: String;
    /// Its structured content.
    optional structured: Data;
    /// Whether it says that it failed.
    optional is_error: bool = false;
}

/// `tests:` of a tool, for its schema.
pub(crate) struct ToolCases;

impl Shape for ToolCases {
    fn schema() -> Schema {
        list_of(keys::schema::<ToolCaseKeys<'_>>())
    }
}

/// `tests:` of a hook, for its schema.
pub(crate) struct HookCases;

impl Shape for HookCases {
    fn schema() -> Schema {
        list_of(keys::schema::<HookCaseKeys<'_>>())
    }
}

/// Cases that each look at something.
fn list_of(mut case: Schema) -> Schema {
    case.insert("anyOf".to_owned(), json!([{"required": ["expect"]}, {"required": ["contains"]}]));
    shape::schema(json!({"type": "array", "items": case}))
}

/// What a case of a tool can look at.
struct ToolAspects;

impl Shape for ToolAspects {
    fn schema() -> Schema {
        aspects(Subject::Tool)
    }
}

/// What a case of a hook can look at.
struct HookAspects;

impl Shape for HookAspects {
    fn schema() -> Schema {
        aspects(Subject::Hook)
    }
}

fn aspects(subject: Subject) -> Schema {
    let of = Aspect::ALL.iter().filter(|aspect| aspect.is_of(subject));
    let properties: Map<String, Json> =
        of.map(|aspect| (aspect.word().to_owned(), json!({"description": aspect.about()}))).collect();
    shape::schema(json!({"type": "object", "properties": properties, "additionalProperties": false}))
}

/// Reads `tests:`.
pub(crate) fn decode(decoder: &mut Decoder, field: &Field<'_>, subject: Subject) -> Vec<Case> {
    let items = decoder.list(field).unwrap_or_default();
    let mut cases: Vec<Case> = Vec::new();
    for item in &items {
        let Some(case) = case(decoder, item, subject) else { continue };
        if let Some(first) = cases.iter().find(|other| other.name == case.name) {
            let hint = format!("it is first used on line {}", first.position.line);
            decoder.error_with(item, format!("two cases are named {}", quoted(&case.name)), Some(hint));
        }
        cases.push(case);
    }
    cases
}

fn case(decoder: &mut Decoder, item: &Field<'_>, subject: Subject) -> Option<Case> {
    match subject {
        Subject::Tool => {
            let keys: ToolCaseKeys<'_> = decoder.keys(item)?;
            let input = keys.args.read(decoder).map_or_else(Map::new, |arguments| arguments.0).into();
            let looked_at = [(keys.expect.field(), true), (keys.contains.field(), false)];
            Some(whole(decoder, item, subject, (&keys.name, &keys.given), looked_at, (None, input)))
        }
        Subject::Hook => {
            let keys: HookCaseKeys<'_> = decoder.keys(item)?;
            let event = keys.event.field().and_then(|f| {
                decoder
                    .parse_one(f, |name| Event::parse(name).ok_or_else(|| format!("{} is not an event", quoted(name))))
            });
            let input = keys.payload.read(decoder).map_or(Json::Null, |payload| payload.0);
            let looked_at = [(keys.expect.field(), true), (keys.contains.field(), false)];
            Some(whole(decoder, item, subject, (&keys.name, &keys.given), looked_at, (event, input)))
        }
    }
}

/// A case of what a tool's and a hook's have both.
fn whole(
    decoder: &mut Decoder,
    item: &Field<'_>,
    subject: Subject,
    (name, given): (&Slot<'_, Name>, &Slot<'_, Given>),
    looked_at: [(Option<&Field<'_>>, bool); 2],
    (event, input): (Option<Event>, Json),
) -> Case {
    let position = decoder.position(name.field().map_or(item.node.span, Field::span));
    let name = name.read(decoder).map(|name| name.0).filter(|name| !name.trim().is_empty());
    if name.is_none() {
        let hint = "say in a few words what it shows: `name: blocks rm -rf /`".to_owned();
        decoder.error_with(item, format!("{} has no name", quoted(&item.path)), Some(hint));
    }
    let given = given.read(decoder).unwrap_or_default();
    let mut expect = Vec::new();
    let mut said = false;
    for (field, whole) in looked_at {
        if let Some(field) = field {
            said |= !matches!(&field.node.value, Value::Map(entries) if entries.is_empty());
            expect.extend(expectations(decoder, field, whole, subject));
        }
    }
    if !said {
        let hint = "say what must come out: `expect: { ... }`, or `contains: { ... }` for a part of it".to_owned();
        decoder.error_with(item, format!("{} expects nothing", quoted(&item.path)), Some(hint));
    }
    Case { name: name.unwrap_or_default(), event, input, given, expect, position }
}

fn expectations(decoder: &mut Decoder, field: &Field<'_>, whole: bool, subject: Subject) -> Vec<Expectation> {
    let of = || Aspect::ALL.iter().copied().filter(|aspect| aspect.is_of(subject));
    let fields = decoder.words(field, of().map(Aspect::word)).unwrap_or_default();
    let mut found = Vec::new();
    for (word, field) in fields {
        let Some(aspect) = of().find(|aspect| aspect.word() == word) else { continue };
        if let Some(Data(value)) = Data::read(decoder, &field) {
            found.push(Expectation { aspect, whole, value, position: decoder.position(field.span()) });
        }
    }
    found
}

impl Shape for Given {
    fn schema() -> Schema {
        keys::schema::<GivenKeys<'_>>()
    }
}

impl Read for Given {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: GivenKeys<'_> = decoder.keys(field)?;
        let cache = keys.cache.read(decoder).unwrap_or_default().pairs();
        let turn = keys.ctx.read(decoder).unwrap_or_default().pairs();
        let metrics = keys.metrics.read(decoder).unwrap_or_default().pairs();
        Some(Self {
            files: keys.files.read(decoder).unwrap_or_default().pairs(),
            http: keys.http.read(decoder).unwrap_or_default(),
            commands: keys.commands.read(decoder).unwrap_or_default(),
            mcp: keys.mcp.read(decoder).unwrap_or_default(),
            now: keys.now.read(decoder).map(|now| now.0).unwrap_or_default(),
            random: keys.random.read(decoder).map(|seed| seed.0).unwrap_or_default(),
            env: keys.env.read(decoder).unwrap_or_default().pairs(),
            cache: cache.into_iter().map(|(key, value)| (key, value.0)).collect(),
            turn: turn.into_iter().map(|(key, value)| (key, value.0)).collect(),
            metrics: metrics.into_iter().map(|(name, value)| (name, value.0)).collect(),
            answers: keys.answers.read(decoder).unwrap_or_default(),
            hooks: keys.hooks.read(decoder),
            granted: keys.granted.field().and_then(|field| granted(decoder, field)),
        })
    }
}

/// A layer without limits, which are the policy's: a case takes real time and memory.
fn granted(decoder: &mut Decoder, field: &Field<'_>) -> Option<Layer> {
    let origin = Origin::new(&*decoder.top().file, Scope::Call);
    let layer = layer::decode(decoder, field, origin)?;
    if layer.limits != LimitRules::default() {
        let hint = "leave them out: a case runs under those of the policy".to_owned();
        decoder.error_with(field, format!("{} has limits", quoted(&field.path)), Some(hint));
    }
    Some(layer)
}

impl Shape for Answers {
    fn schema() -> Schema {
        keys::schema::<AnswersKeys<'_>>()
    }
}

impl Read for Answers {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: AnswersKeys<'_> = decoder.keys(field)?;
        let plain = |all: Option<Vec<Data>>| all.map(|all| all.into_iter().map(|Data(answer)| answer).collect());
        Some(Self {
            user: plain(keys.user.read(decoder)),
            model: plain(keys.model.read(decoder)),
            roots: plain(keys.roots.read(decoder)),
        })
    }
}

impl Shape for HttpAnswer {
    fn schema() -> Schema {
        keys::schema::<HttpKeys<'_>>()
    }
}

impl Read for HttpAnswer {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: HttpKeys<'_> = decoder.keys(field)?;
        let method = keys.method.read(decoder);
        Some(Self {
            method: if method.is_empty() { "GET".to_owned() } else { method.to_ascii_uppercase() },
            status: u16::try_from(keys.status.read(decoder).0).ok()?,
            headers: keys.headers.read(decoder).unwrap_or_default().pairs(),
            body: keys.body.read(decoder).unwrap_or_default(),
            url: required(decoder, field, "url", &keys.url)?,
        })
    }
}

impl Shape for McpResult {
    fn schema() -> Schema {
        keys::schema::<McpKeys<'_>>()
    }
}

impl Read for McpResult {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: McpKeys<'_> = decoder.keys(field)?;
        Some(Self {
            args: keys.args.read(decoder).map(|args| args.0),
            text: keys.text.read(decoder),
            structured: keys.structured.read(decoder).map(|value| value.0),
            is_error: keys.is_error.read(decoder),
            tool: required(decoder, field, "tool", &keys.tool)?,
        })
    }
}

impl Shape for CommandResult {
    fn schema() -> Schema {
        keys::schema::<CommandKeys<'_>>()
    }
}

impl Read for CommandResult {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: CommandKeys<'_> = decoder.keys(field)?;
        let timed_out = keys.timed_out.read(decoder);
        let exit_code = keys.exit_code.field().and_then(|f| decoder.integer(f));
        Some(Self {
            args: keys.args.read(decoder),
            stdout: keys.stdout.read(decoder).unwrap_or_default(),
            stderr: keys.stderr.read(decoder).unwrap_or_default(),
            exit_code: exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(if timed_out { -1 } else { 0 }),
            timed_out,
            cmd: required(decoder, field, "cmd", &keys.cmd)?,
        })
    }
}

fn required(decoder: &mut Decoder, item: &Field<'_>, key: &str, slot: &Slot<'_, String>) -> Option<String> {
    if slot.field().is_none() {
        decoder.error(item, format!("{} has no `{key}`", quoted(&item.path)));
    }
    slot.read(decoder)
}
