//! A client that answers every question, so that a question of a corpus is one that gets an answer.

use harness_capability::ask::{Asked, Question};
use harness_dispatch::ask::{Answering, Respondent};
use serde_json::json;

#[derive(Debug)]
pub(crate) struct Answers;

impl Respondent for Answers {
    fn can(&self) -> Vec<&'static str> {
        vec!["user", "model", "roots"]
    }

    fn ask<'a>(&'a self, questions: &'a [Asked]) -> Answering<'a> {
        let answer = |asked: &Asked| match asked.question {
            Question::User { .. } => json!({"action": "decline"}),
            Question::Model { .. } => json!({"text": "answer", "model": "m", "stop_reason": "endTurn"}),
            Question::Roots => json!([{"uri": "file:///work", "name": "work"}]),
        };
        Box::pin(std::future::ready(Ok(questions.iter().map(answer).collect())))
    }
}
