//! Calls that a person has to confirm: those of tools with `confirm: true`, and of tools that `tools_policy.confirm` names.
//!
//! The host asks when the hooks have let a call pass, with the arguments that will run, whoever makes the call. Where
//! nobody can answer the call is denied.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use serde_json::Value as Json;

use super::chain::Place;
use super::past::Happened;
use harness_artifact::tool::Tool;
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;

/// What is to be confirmed.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The file that it is from.
    pub artifact: &'a str,
    /// Who says that it is to be confirmed, and where.
    pub rule: &'a str,
    /// What it will be called with.
    pub arguments: &'a Json,
    /// Who calls it, such as `agent` or `tool deploy`; none for the program itself.
    pub caller: Option<&'a str>,
    /// Whether an answer may hold for later calls too: not for a tool that the run has added, whose script may be
    /// another one by then.
    pub lasting: bool,
}

/// What came of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call is made.
    Yes,
    /// It is not.
    No,
    /// There is nobody who could say: it is not.
    Nobody,
}

impl Answer {
    /// The word for it in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Nobody => "nobody",
        }
    }
}

/// Who is asked. A run has one, see [`Run::set_confirmer`](super::Run::set_confirmer); without it there is nobody.
pub trait Confirmer: Debug + Send + Sync {
    /// Asks. The future is dropped where the call is given up meanwhile.
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
}

/// Says yes: where nothing that is called is real.
#[derive(Debug, Clone, Copy)]
pub struct Granted;

impl Confirmer for Granted {
    fn confirm<'a>(&'a self, _: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(std::future::ready(Answer::Yes))
    }
}

/// Why a call of a tool is to be confirmed, where it is: the tool's own word, else the policy's.
pub fn rule(place: &Place, tool: &Tool) -> Option<String> {
    if *tool.confirm {
        return Some(format!("`confirm: true` in `{}`", tool.confirm.position));
    }
    let pattern = place.loaded.policy.tools.confirms(&tool.name)?;
    Some(format!("`{}` of `tools_policy.confirm` in `{}`", pattern.value, pattern.position))
}

/// Asks, and gives back why the call may not be made, where it may not.
pub async fn ask(place: &Place, call: &str, tool: &Tool, rule: &str, arguments: &Json) -> (Answer, Option<Refusal>) {
    let question = Question {
        tool: &tool.name,
        artifact: &tool.source.file,
        rule,
        arguments,
        caller: place.caller.as_deref(),
        lasting: place.added_tool(&tool.name).is_none(),
    };
    let answer = match place.run.confirmer() {
        Some(confirmer) => confirmer.confirm(&question).await,
        None => Answer::Nobody,
    };
    place.tell(&Happened::Confirmed { call, tool: &tool.name, answer });
    let name = quoted(&tool.name);
    let refusal = match answer {
        Answer::Yes => None,
        Answer::No => Some(Refusal::always(format!("the call of {name} was not confirmed ({rule})"))),
        Answer::Nobody => Some(Refusal::new(
            format!("each call of {name} is to be confirmed ({rule}), and there is nobody to ask"),
            format!("call it at a terminal, or confirm it beforehand with `--confirm {}`", tool.name),
        )),
    };
    (answer, refusal)
}
