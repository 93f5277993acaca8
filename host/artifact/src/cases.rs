//! `tests:` of an artifact: cases with an input, fakes for what the script would reach, and what is expected.
//!
//! A misspelled key in a case would be a check that is never made, so here unknown keys are errors.

mod read;

pub(super) use read::{HookCases, ToolCases, decode};

use serde_json::Value as Json;

use super::diagnostic::Position;
use super::event::Event;
use harness_policy::layer::Layer;

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
    /// The responses of servers.
    pub http: Vec<HttpAnswer>,
    /// The output of commands.
    pub commands: Vec<CommandResult>,
    /// The results of tools of MCP servers.
    pub mcp: Vec<McpResult>,
    /// The time of the clock, in seconds and nanoseconds since 1970: 0 where the case does not say.
    pub now: (i64, u32),
    /// The seed of the random numbers.
    pub random: u64,
    /// Variables of the host's environment.
    pub env: Vec<(String, String)>,
    /// What the cache holds.
    pub cache: Vec<(String, Json)>,
    /// What the turn holds.
    pub turn: Vec<(String, Json)>,
    /// What the client of the call answers.
    pub answers: Answers,
    /// What the metrics are.
    pub metrics: Vec<(String, f64)>,
    /// Whether the other hooks of the project run as well.
    pub hooks: bool,
    /// What the artifact is granted in the case, where that is not what the policy grants it.
    pub granted: Option<Layer>,
}

/// What a client answers to scripts that ask it; `None`: nobody can be asked that.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// Of the person, in order.
    pub user: Option<Vec<Json>>,
    /// Of the model, in order.
    pub model: Option<Vec<Json>>,
    /// The folders.
    pub roots: Option<Vec<Json>>,
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

/// What a tool of an MCP server gives for these arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct McpResult {
    /// The name of the tool in the project.
    pub tool: String,
    /// None: whatever the arguments are.
    pub args: Option<Json>,
    /// The text of the result.
    pub text: Option<String>,
    /// Its structured content.
    pub structured: Option<Json>,
    /// Whether it says that it failed.
    pub is_error: bool,
}

/// One thing that must come out.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// What is checked.
    pub aspect: Aspect,
    /// Whether all of it must be this (`expect`), or hold this (`contains`).
    pub whole: bool,
    /// What it must be or hold.
    pub value: Json,
    /// Where that was written.
    pub position: Position,
}

macro_rules! aspects {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal;)*) => {
        /// What a case can look at.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Aspect { $($(#[doc = $doc])+ $variant,)* }

        impl Aspect {
            /// All, in the order of messages.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The key in a case.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What it is, for editors.
            fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii(),)* }
            }
        }
    };
}

aspects! {
    /// How the call ended: `completed`, `failed`, `denied`, `limited`.
    Outcome = "outcome";
    /// The value that the tool returned, after its hooks.
    Result = "result";
    /// The text that a model gets.
    Content = "content";
    /// The blocks of a result that is content, each with its `type`.
    Blocks = "blocks";
    /// Whether the result is an error.
    IsError = "is_error";
    /// The message of a call that did not complete.
    Error = "error";
    /// The decision of the hook: `allow`, `block`, `modify`, `skip` (its `when` did not match), `error`.
    Decision = "decision";
    /// The reason of the block.
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
    /// The values of the turn afterwards, by key.
    Ctx = "ctx";
}

impl Aspect {
    /// Whether a case about this can look at it.
    pub fn is_of(self, subject: Subject) -> bool {
        match self {
            Self::Outcome | Self::Result | Self::Content | Self::Blocks | Self::IsError | Self::Error => {
                subject == Subject::Tool
            }
            Self::Decision | Self::Payload => subject == Subject::Hook,
            Self::Reason | Self::Log | Self::Hooks | Self::Files | Self::Metrics | Self::Cache | Self::Ctx => true,
        }
    }
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
            "  - name: counts\n    args: { path: a.txt, n: 3 }\n    given:\n      files: { a.txt: one }\n      http: [ { url: \"https://x.org\", status: 404, headers: { a: b }, body: no } ]\n      commands: [ { cmd: git, args: [status], stdout: ok, exit_code: 3 }, { cmd: ls, timed_out: true } ]\n      now: 2026-01-02T03:04:05Z\n      random: 7\n      env: { CI: 'true' }\n      cache: { k: [1] }\n      ctx: { step: 2 }\n      metrics: { calls: 2 }\n      hooks: true\n    expect: { result: { words: 1 }, outcome: completed }\n    contains: { log: [counted] }\n",
        );
        assert_eq!(wrong, [""; 0]);
        let case = &cases[0];
        assert_eq!((case.name.as_str(), &case.input), ("counts", &json!({"path": "a.txt", "n": 3})));
        let given = &case.given;
        assert_eq!(given.files, [("a.txt".to_owned(), "one".to_owned())]);
        assert_eq!((given.http[0].method.as_str(), given.http[0].status), ("GET", 404));
        assert_eq!((given.commands[0].exit_code, given.commands[1].exit_code), (3, -1));
        assert_eq!(given.turn, [("step".to_owned(), json!(2))]);
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
                "`tests[3].given.now`: `noon` is not a time such as `2026-01-02T03:04:05Z`",
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
