//! `tests:` of an artifact: cases with an input, fakes for what the script would reach, and what is expected.
//!
//! A misspelled key in a case would be a check that is never made, so here unknown keys are errors.

use serde_json::{Map, Value as Json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::decode::{Decoder, Field, Fields, Unknown};
use super::diagnostic::Position;
use super::event::Event;
use super::json;
use super::suggest::quoted;
use super::yaml::Value;

/// What a case is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A call of a tool.
    Tool,
    /// An event that a hook sees.
    Hook,
}

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its name; no two of an artifact have the same.
    pub name: String,
    /// Of a hook, what is dispatched: the hook's own event where the case names none.
    pub event: Option<Event>,
    /// Of a tool the arguments, of a hook the payload.
    pub input: Json,
    /// The world of the case.
    pub given: Given,
    /// What must come out.
    pub expect: Vec<Expectation>,
    /// Where its name stands.
    pub position: Position,
}

/// The world of a case: nothing but what it names is there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    /// The files of the workspace, by path.
    pub files: Vec<(String, String)>,
    /// What servers answer.
    pub http: Vec<HttpAnswer>,
    /// What commands print.
    pub commands: Vec<CommandResult>,
    /// The time of the clock, in seconds and nanoseconds since 1970: 0 where the case does not say.
    pub now: (i64, u32),
    /// The seed of the random numbers.
    pub random: u64,
    /// Variables of the host's environment.
    pub env: Vec<(String, String)>,
    /// What the cache holds.
    pub cache: Vec<(String, Json)>,
    /// What the metrics are.
    pub metrics: Vec<(String, f64)>,
    /// Whether the other hooks of the project run as well.
    pub hooks: bool,
}

/// An answer to a request of this method and URL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the parts of an HTTP exchange")]
pub struct HttpAnswer {
    pub method: String,
    pub url: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// What a command of this name with these arguments gives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of what `exec.run` returns")]
pub struct CommandResult {
    pub cmd: String,
    /// None: whatever the arguments are.
    pub args: Option<Vec<String>>,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    pub timed_out: bool,
}

/// One thing that must come out.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// What is looked at.
    pub aspect: Aspect,
    /// Whether all of it must be this (`expect`), or hold this (`contains`).
    pub whole: bool,
    /// What it must be or hold.
    pub value: Json,
    /// Where that was written.
    pub position: Position,
}

macro_rules! aspects {
    ($($(#[$doc:meta])* $variant:ident = $word:literal;)*) => {
        /// What a case can look at.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Aspect { $($(#[$doc])* $variant,)* }

        impl Aspect {
            /// All, in the order of messages.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The key in a case.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

aspects! {
    /// How the call ended: `completed`, `failed`, `denied`, `limited`.
    Outcome = "outcome";
    /// The value that a tool gave back, after its hooks.
    Result = "result";
    /// The text that a model gets.
    Content = "content";
    /// Whether that is an error.
    IsError = "is_error";
    /// The message of a call that did not complete.
    Error = "error";
    /// What a hook decided: `allow`, `block`, `modify`, `skip` (its `when` did not match), `error`.
    Decision = "decision";
    /// Why it blocked.
    Reason = "reason";
    /// The payload after the hook.
    Payload = "payload";
    /// Lines of the log, each as `level: message`.
    Log = "log";
    /// Names of the hooks that ran, in order.
    Hooks = "hooks";
    /// The files of the workspace afterwards, by path.
    Files = "files";
    /// The metrics afterwards, by name.
    Metrics = "metrics";
    /// The cache afterwards, by key.
    Cache = "cache";
}

impl Aspect {
    /// Whether a case about this can look at it.
    pub fn is_of(self, subject: Subject) -> bool {
        match self {
            Self::Outcome | Self::Result | Self::Content | Self::IsError | Self::Error => subject == Subject::Tool,
            Self::Decision | Self::Payload => subject == Subject::Hook,
            Self::Reason | Self::Log | Self::Hooks | Self::Files | Self::Metrics | Self::Cache => true,
        }
    }
}

/// Reads `tests:`.
pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>, subject: Subject) -> Vec<Case> {
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
    let mut fields = decoder.mapping(item)?;
    let name_field = fields.optional("name");
    let name = name_field.as_ref().and_then(|f| decoder.string(f)).filter(|name| !name.trim().is_empty());
    if name.is_none() {
        let hint = "say in a few words what it shows: `name: blocks rm -rf /`".to_owned();
        decoder.error_with(item, format!("{} has no name", quoted(&item.path)), Some(hint));
    }
    let (event, input) = match subject {
        Subject::Tool => (None, fields.optional("args").and_then(|f| object(decoder, &f))),
        Subject::Hook => {
            let event = fields.optional("event").and_then(|f| {
                decoder.parse_one(&f, |name| Event::parse(name).ok_or_else(|| format!("{} is no event", quoted(name))))
            });
            (event, fields.take("payload").and_then(|f| json::value(decoder, &f)))
        }
    };
    let given = fields.optional("given").and_then(|f| given(decoder, &f)).unwrap_or_default();
    let mut expect = Vec::new();
    let mut said = false;
    for (key, whole) in [("expect", true), ("contains", false)] {
        if let Some(field) = fields.optional(key) {
            said |= !matches!(&field.node.value, Value::Map(entries) if entries.is_empty());
            expect.extend(expectations(decoder, &field, whole, subject));
        }
    }
    decoder.finish(fields, Unknown::Refuse);
    if !said {
        let hint = "say what must come out: `expect: { ... }`, or `contains: { ... }` for a part of it".to_owned();
        decoder.error_with(item, format!("{} expects nothing", quoted(&item.path)), Some(hint));
    }
    let position = decoder.position(name_field.as_ref().map_or(item.node.span, Field::span));
    let input = input.unwrap_or_else(|| if subject == Subject::Tool { Json::Object(Map::new()) } else { Json::Null });
    Some(Case { name: name.unwrap_or_default().to_owned(), event, input, given, expect, position })
}

fn expectations(decoder: &mut Decoder, field: &Field<'_>, whole: bool, subject: Subject) -> Vec<Expectation> {
    let Some(mut fields) = decoder.mapping(field) else { return Vec::new() };
    let mut found = Vec::new();
    for aspect in Aspect::ALL.iter().copied().filter(|aspect| aspect.is_of(subject)) {
        let Some(field) = fields.take(aspect.word()) else { continue };
        if let Some(value) = json::value(decoder, &field) {
            let position = decoder.position(field.span());
            found.push(Expectation { aspect, whole, value, position });
        }
    }
    decoder.finish(fields, Unknown::Refuse);
    found
}

fn given(decoder: &mut Decoder, field: &Field<'_>) -> Option<Given> {
    let mut fields = decoder.mapping(field)?;
    let texts = |decoder: &mut Decoder, field: Option<Field<'_>>| texts(decoder, field);
    let files = texts(decoder, fields.optional("files"));
    let env = texts(decoder, fields.optional("env"));
    let http = list(decoder, fields.optional("http"), http);
    let commands = list(decoder, fields.optional("commands"), command);
    let now = fields.optional("now").and_then(|f| moment(decoder, &f)).unwrap_or_default();
    let random = fields.optional("random").and_then(|f| decoder.integer_in(&f, 0..=u64::MAX)).unwrap_or_default();
    let cache = pairs(decoder, fields.optional("cache"), json::value);
    let metrics = pairs(decoder, fields.optional("metrics"), |decoder, field| match json::value(decoder, field)? {
        Json::Number(number) => number.as_f64(),
        _ => {
            decoder.error(field, format!("{} must be a number", quoted(&field.path)));
            None
        }
    });
    let hooks = fields.optional("hooks").and_then(|f| decoder.boolean(&f)).unwrap_or(false);
    decoder.finish(fields, Unknown::Refuse);
    Some(Given { files, http, commands, now, random, env, cache, metrics, hooks })
}

fn list<T>(
    decoder: &mut Decoder,
    field: Option<Field<'_>>,
    one: impl Fn(&mut Decoder, &Field<'_>) -> Option<T>,
) -> Vec<T> {
    let items = field.and_then(|field| decoder.list(&field)).unwrap_or_default();
    items.iter().filter_map(|item| one(decoder, item)).collect()
}

fn pairs<T>(
    decoder: &mut Decoder,
    field: Option<Field<'_>>,
    one: impl Fn(&mut Decoder, &Field<'_>) -> Option<T>,
) -> Vec<(String, T)> {
    let entries = field.and_then(|field| decoder.mapping(&field)).map(|fields| fields.all()).unwrap_or_default();
    entries.into_iter().filter_map(|(key, field)| Some((key.text.clone(), one(decoder, &field)?))).collect()
}

fn texts(decoder: &mut Decoder, field: Option<Field<'_>>) -> Vec<(String, String)> {
    pairs(decoder, field, |decoder, field| decoder.string(field).map(str::to_owned))
}

fn text(decoder: &mut Decoder, fields: &mut Fields<'_>, key: &'static str) -> String {
    fields.optional(key).and_then(|f| decoder.string(&f)).unwrap_or_default().to_owned()
}

fn required(decoder: &mut Decoder, fields: &mut Fields<'_>, item: &Field<'_>, key: &'static str) -> Option<String> {
    match fields.optional(key) {
        Some(field) => decoder.string(&field).map(str::to_owned),
        None => {
            decoder.error(item, format!("{} has no `{key}`", quoted(&item.path)));
            None
        }
    }
}

fn http(decoder: &mut Decoder, item: &Field<'_>) -> Option<HttpAnswer> {
    let mut fields = decoder.mapping(item)?;
    let url = required(decoder, &mut fields, item, "url");
    let method = text(decoder, &mut fields, "method");
    let status = fields.optional("status").map(|f| decoder.integer_in(&f, 100..=599));
    let headers = texts(decoder, fields.optional("headers"));
    let body = text(decoder, &mut fields, "body");
    decoder.finish(fields, Unknown::Refuse);
    Some(HttpAnswer {
        method: if method.is_empty() { "GET".to_owned() } else { method.to_ascii_uppercase() },
        url: url?,
        status: status.unwrap_or(Some(200)).and_then(|status| u16::try_from(status).ok())?,
        headers,
        body,
    })
}

fn command(decoder: &mut Decoder, item: &Field<'_>) -> Option<CommandResult> {
    let mut fields = decoder.mapping(item)?;
    let cmd = required(decoder, &mut fields, item, "cmd");
    let args = fields.optional("args").map(|f| decoder.parsed(&f, |text| Ok(text.to_owned())));
    let stdout = text(decoder, &mut fields, "stdout");
    let stderr = text(decoder, &mut fields, "stderr");
    let exit_code = fields.optional("exit_code").and_then(|f| decoder.integer(&f));
    let timed_out = fields.optional("timed_out").and_then(|f| decoder.boolean(&f)).unwrap_or(false);
    decoder.finish(fields, Unknown::Refuse);
    let args = match args {
        Some(None) => return None,
        Some(args) => args,
        None => None,
    };
    let exit_code = exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(if timed_out { -1 } else { 0 });
    Some(CommandResult { cmd: cmd?, args, stdout, stderr, exit_code, timed_out })
}

fn moment(decoder: &mut Decoder, field: &Field<'_>) -> Option<(i64, u32)> {
    if let Value::Int(_) = field.node.value {
        return decoder.integer(field).and_then(|seconds| i64::try_from(seconds).ok()).map(|seconds| (seconds, 0));
    }
    decoder.parse_one(field, |text| {
        let moment = OffsetDateTime::parse(text, &Rfc3339)
            .map_err(|_| format!("{} is no moment such as `2026-01-02T03:04:05Z`", quoted(text)))?;
        Ok((moment.unix_timestamp(), moment.nanosecond()))
    })
}

fn object(decoder: &mut Decoder, field: &Field<'_>) -> Option<Json> {
    decoder.mapping(field)?;
    json::value(decoder, field)
}

#[cfg(test)]
mod tests {
    use super::super::hook::Hook;
    use super::super::tool::Tool;
    use super::*;
    use serde_json::json;

    fn of_tool(tests: &str) -> (Vec<Case>, Vec<String>) {
        let (tool, diagnostics) = Tool::parse(".harness/tools/t.md", "t", &format!("---\ntests:\n{tests}---\n"));
        let messages = diagnostics.iter().map(|d| d.message.clone()).collect();
        (tool.map(|tool| tool.cases).unwrap_or_default(), messages)
    }

    #[test]
    fn a_whole_case() {
        let (cases, wrong) = of_tool(
            "  - name: counts\n    args: { path: a.txt, n: 3 }\n    given:\n      files: { a.txt: one }\n      http: [ { url: \"https://x.org\", status: 404, headers: { a: b }, body: no } ]\n      commands: [ { cmd: git, args: [status], stdout: ok, exit_code: 3 }, { cmd: ls, timed_out: true } ]\n      now: 2026-01-02T03:04:05Z\n      random: 7\n      env: { CI: 'true' }\n      cache: { k: [1] }\n      metrics: { calls: 2 }\n      hooks: true\n    expect: { result: { words: 1 }, outcome: completed }\n    contains: { log: [counted] }\n",
        );
        assert_eq!(wrong, [""; 0]);
        let case = &cases[0];
        assert_eq!((case.name.as_str(), &case.input), ("counts", &json!({"path": "a.txt", "n": 3})));
        let given = &case.given;
        assert_eq!(given.files, [("a.txt".to_owned(), "one".to_owned())]);
        assert_eq!((given.http[0].method.as_str(), given.http[0].status), ("GET", 404));
        assert_eq!((given.commands[0].exit_code, given.commands[1].exit_code), (3, -1));
        assert_eq!((given.now, given.random, given.hooks), ((1_767_323_045, 0), 7, true));
        let expect: Vec<_> = case.expect.iter().map(|e| (e.aspect, e.whole, e.value.clone())).collect();
        assert_eq!(
            expect,
            [
                (Aspect::Outcome, true, json!("completed")),
                (Aspect::Result, true, json!({"words": 1})),
                (Aspect::Log, false, json!(["counted"])),
            ]
        );
        assert_eq!(case.position.to_string(), ".harness/tools/t.md:3:11");
    }

    #[test]
    fn a_check_that_is_never_made_is_an_error() {
        let (_, wrong) = of_tool(
            "  - name: a\n    expect: { decision: allow }\n  - name: a\n    argz: {}\n    expect: { result: 1 }\n  - args: { x: 1 }\n  - name: b\n    given: { now: noon, http: [{}], comands: [] }\n    expect: {}\n",
        );
        assert_eq!(
            wrong,
            [
                "unknown key `tests[0].expect.decision`",
                "two cases are named `a`",
                "unknown key `tests[1].argz`",
                "`tests[2]` has no name",
                "`tests[2]` expects nothing",
                "`tests[3]` expects nothing",
                "`tests[3].given.now`: `noon` is no moment such as `2026-01-02T03:04:05Z`",
                "`tests[3].given.http[0]` has no `url`",
                "unknown key `tests[3].given.comands`",
            ]
        );
    }

    #[test]
    fn a_hook_has_a_payload_and_may_name_another_event() {
        let text = "---\nevent: tool.pre\ntests:\n  - name: x\n    event: tool.post\n    payload: text\n    expect: { decision: skip, reason: r }\n---\n";
        let (hook, _) = Hook::parse(".harness/hooks/h.md", "h", 0, text);
        let case = &hook.unwrap().cases[0];
        assert_eq!((&case.event, &case.input), (&Some(Event::ToolPost), &json!("text")));
    }
}
