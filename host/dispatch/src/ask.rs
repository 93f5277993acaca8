//! Questions of scripts to the client of a call: its person, its model, its folders.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use harness_artifact::cases::Answers;
use harness_artifact::escape;
use harness_artifact::value_schema::ValueSchema;
use harness_capability::ask::{self, Asked, MAX_ANSWERED, Question};
use harness_sandbox::ends::MAX_ANSWER;
use serde_json::Value as Json;

use super::chain::CallContext;

/// Why there are no answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// Nobody can answer here: why, and what to do.
    Unavailable(String),
    /// Somebody can, and did not.
    Failed(String),
}

/// The answers to questions that are asked at once, in their order.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Vec<Json>, Unanswered>> + Send + 'a>>;

/// Answers the questions of scripts. A run has at most one, see [`Run::set_respondent`](super::Run::set_respondent).
pub trait Respondent: Debug + Send + Sync {
    /// Whom it can answer for, of `user`, `model` and `roots`.
    fn can(&self) -> Vec<&'static str>;

    /// Answers questions, each as `wit/ask.wit` says. The future is dropped if the call is canceled first.
    fn ask<'a>(&'a self, questions: &'a [Asked]) -> Answering<'a>;
}

/// Asks, and returns the answers as JSON. `author` is the third party whose script asks; none for the project's own.
pub(super) async fn ask(place: &CallContext, author: Option<&str>, questions: &[Asked]) -> Result<String, ask::Error> {
    let Some(respondent) = place.run.respondent() else {
        let why = "nobody can be asked here: call the tool at a terminal, or from a client that answers";
        return Err(ask::Error::Unavailable(why.to_owned()));
    };
    let questions = &named(questions, &asker(place.caller.as_deref(), author));
    let answers = match tokio::time::timeout(MAX_ANSWER, respondent.ask(questions)).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(Unanswered::Unavailable(why))) => return Err(ask::Error::Unavailable(why)),
        Ok(Err(Unanswered::Failed(why))) => return Err(ask::Error::Failed(why)),
        Err(_) => {
            let why = format!("there was no answer within {} seconds", MAX_ANSWER.as_secs());
            return Err(ask::Error::Failed(why));
        }
    };
    if answers.len() != questions.len() {
        return Err(ask::Error::Failed(format!("{} answers to {} questions", answers.len(), questions.len())));
    }
    for (asked, answer) in questions.iter().zip(&answers) {
        fits(&asked.question, answer).map_err(ask::Error::Failed)?;
    }
    let answers = Json::Array(answers).to_string();
    if answers.len() > MAX_ANSWERED {
        let why = format!("the answers have {} bytes, more than {MAX_ANSWERED}", answers.len());
        return Err(ask::Error::Failed(why));
    }
    Ok(answers)
}

/// Who asks a person, such as ``The tool `deploy` of `plugins/acme` ``.
fn asker(caller: Option<&str>, author: Option<&str>) -> String {
    let Some((kind, name)) = caller.and_then(|caller| caller.split_once(' ')) else { return "A script".to_owned() };
    let kind = if kind == "verify" { "`verify` of the tool" } else { kind };
    let of = author.map(|author| format!(" of `{}`", escape::line(author))).unwrap_or_default();
    format!("The {kind} `{}`{of}", escape::line(name))
}

/// The questions as they are shown: a form begins with the name of who asks. No script can leave it out, so that its
/// question cannot pass for one of the host's own, such as a confirmation.
fn named(questions: &[Asked], asker: &str) -> Vec<Asked> {
    let name = |asked: &Asked| {
        let mut asked = asked.clone();
        if let Question::User { message, .. } = &mut asked.question {
            *message = format!("{asker} asks:\n{message}");
        }
        asked
    };
    questions.iter().map(name).collect()
}

/// Answers that a case of a test gives.
#[derive(Debug)]
pub(super) struct Canned {
    given: [(&'static str, Option<Vec<Json>>); 3],
    /// How many of each were used.
    used: Mutex<[usize; 3]>,
}

impl Canned {
    pub(super) fn of(answers: &Answers) -> Self {
        let Answers { user, model, roots } = answers.clone();
        Self { given: [("user", user), ("model", model), ("roots", roots)], used: Mutex::default() }
    }

    fn answer(&self, question: &Question) -> Result<Json, Unanswered> {
        let whom = question.whom();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.given.iter().zip(used.iter_mut()).find(|((name, _), _)| *name == whom);
        let Some(((_, Some(all)), used)) = known else {
            return Err(Unanswered::Unavailable(format!("the case gives no `answers.{whom}`")));
        };
        if *question == Question::Roots {
            return Ok(Json::Array(all.clone()));
        }
        let next = all.get(*used).cloned();
        *used = used.saturating_add(1);
        next.ok_or_else(|| Unanswered::Failed(format!("the case gives no further `answers.{whom}`")))
    }
}

impl Respondent for Canned {
    fn can(&self) -> Vec<&'static str> {
        self.given.iter().filter_map(|(whom, all)| all.is_some().then_some(*whom)).collect()
    }

    fn ask<'a>(&'a self, questions: &'a [Asked]) -> Answering<'a> {
        let answers: Result<Vec<Json>, Unanswered> =
            questions.iter().map(|asked| self.answer(&asked.question)).collect();
        Box::pin(std::future::ready(answers))
    }
}

/// Whether an accepted form has what it asks for. A client that shows it need not check that.
pub(super) fn fits(question: &Question, answer: &Json) -> Result<(), String> {
    let (Question::User { schema, .. }, Some(content)) = (question, answer.get("content")) else { return Ok(()) };
    let schema = ValueSchema::compile(Json::Object(schema.clone()));
    let schema = schema.map_err(|why| format!("the schema of the form cannot be used: {why}"))?;
    schema.check(content).map_err(|misfit| format!("the answer does not fit the form: {misfit}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_names_who_asks_and_nothing_else_is_changed() {
        let form = |message: &str| Question::User { message: message.to_owned(), schema: serde_json::Map::new() };
        let asked = |question| Asked { key: "q1".to_owned(), question };
        let questions = [asked(form("`deploy` needs confirmation\nYes?")), asked(Question::Roots)];
        for (caller, author, want) in [
            (Some("tool deploy"), None, "The tool `deploy` asks:"),
            (Some("tool deploy"), Some("plugins/acme"), "The tool `deploy` of `plugins/acme` asks:"),
            (Some("hook a\u{1b}[2Jb c"), None, "The hook `a\\u{1b}[2Jb c` asks:"),
            (Some("verify deploy"), None, "The `verify` of the tool `deploy` asks:"),
            (None, None, "A script asks:"),
        ] {
            let shown = form(&format!("{want}\n`deploy` needs confirmation\nYes?"));
            assert_eq!(named(&questions, &asker(caller, author)), [asked(shown), asked(Question::Roots)]);
        }
    }

    #[test]
    fn an_accepted_form_is_checked() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let Json::Object(schema) = schema else { panic!() };
        let form = Question::User { message: "How many?".to_owned(), schema };
        assert_eq!(fits(&form, &json!({"action": "accept", "content": {"n": 1}})), Ok(()));
        assert_eq!(fits(&form, &json!({"action": "decline"})), Ok(()));
        for wrong in [json!({}), json!({"n": "1"}), json!([])] {
            let why = fits(&form, &json!({"action": "accept", "content": wrong})).unwrap_err();
            assert!(why.starts_with("the answer does not fit the form: "), "{why}");
        }
    }
}
