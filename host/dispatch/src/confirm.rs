//! Calls that a person has to confirm: those of tools with `confirm: true`, and of tools that `tools_policy.confirm` names.
//!
//! The host asks after the hooks have allowed a call, with the arguments that will run, for every caller. Without a
//! confirmer the call is denied.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use serde_json::Value as Json;

use super::chain::CallContext;
use super::past::Happened;
use harness_artifact::tool::Tool;
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;

/// A call that needs confirmation.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// Identifier of the call, if an agent or a program makes it itself. None: a script makes it, in the middle of a call.
    pub call: Option<&'a str>,
    /// The name of the tool.
    pub tool: &'a str,
    /// The file of the tool.
    pub artifact: &'a str,
    /// The rule that requires the confirmation, with its file.
    pub rule: &'a str,
    /// The arguments of the call.
    pub arguments: &'a Json,
    /// The caller, such as `agent` or `tool deploy`; none for the program itself.
    pub caller: Option<&'a str>,
    /// Whether an answer may apply to later calls too. False for tools that the run has added, because their scripts may
    /// change.
    pub lasting: bool,
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call is made.
    Yes,
    /// It is not.
    No,
    /// No confirmer is installed; the call is denied.
    Nobody,
}

impl Answer {
    /// The word in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Nobody => "nobody",
        }
    }
}

/// Answers questions. A run has at most one, see [`Run::set_confirmer`](super::Run::set_confirmer).
pub trait Confirmer: Debug + Send + Sync {
    /// Answers a question. The future is dropped if the call is canceled first.
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

    /// What a caller may do where nobody answers.
    fn without(&self, tool: &str) -> String {
        at_terminal(tool)
    }
}

/// What a caller at a terminal may do.
fn at_terminal(tool: &str) -> String {
    format!("call it at a terminal, or confirm it in advance with `--confirm {tool}`")
}

/// Says yes: where nothing that is called is real.
#[derive(Debug, Clone, Copy)]
pub struct Granted;

impl Confirmer for Granted {
    fn confirm<'a>(&'a self, _: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(std::future::ready(Answer::Yes))
    }
}

/// Why a call of a tool needs confirmation, where it is: the tool's own word, else the policy's.
pub fn rule(place: &CallContext, tool: &Tool) -> Option<String> {
    if let Some(served) = tool.served.as_ref().filter(|served| served.is_destructive) {
        return Some(format!("the MCP server `{}` says that it may destroy something", served.server));
    }
    if *tool.confirm {
        return Some(format!("`confirm: true` in `{}`", tool.confirm.position));
    }
    let pattern = place.loaded.parts.policy.tools.confirms(&tool.name)?;
    Some(format!("`{}` of `tools_policy.confirm` in `{}`", pattern.value, pattern.position))
}

/// Asks, and returns why the call may not be made, where it may not.
pub async fn ask(
    place: &CallContext,
    call: &str,
    tool: &Tool,
    rule: &str,
    arguments: &Json,
) -> (Answer, Option<Refusal>) {
    let own = (place.depth == 0).then_some(call);
    let question = Question {
        call: own,
        tool: &tool.name,
        artifact: &tool.source.file,
        rule,
        arguments,
        caller: place.caller.as_deref(),
        lasting: place.added_tool(&tool.name).is_none(),
    };
    let answer = match place.run.confirmer() {
        Some(confirmer) => {
            if let Some(call) = own {
                place.tell(&Happened::Asks { call, tool: &tool.name });
            }
            confirmer.confirm(&question).await
        }
        None => Answer::Nobody,
    };
    place.tell(&Happened::Confirmed { call, tool: &tool.name, answer });
    let name = quoted(&tool.name);
    let refusal = match answer {
        Answer::Yes => None,
        Answer::No => Some(Refusal::always(format!("the call of {name} was not confirmed ({rule})"))),
        Answer::Nobody => Some(Refusal::new(
            format!("each call of {name} needs confirmation ({rule}), and no confirmer is available"),
            match place.run.confirmer() {
                Some(confirmer) => confirmer.without(&tool.name),
                None => at_terminal(&tool.name),
            },
        )),
    };
    (answer, refusal)
}
