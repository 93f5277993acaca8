//! Runs an agent with a model of the program's own, and asks the program before a tool changes anything.
//!
//! ```text
//! cargo run --release --example agent
//! ```

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "an example writes its project and prints")]

use std::error::Error;
use std::fs;
use std::sync::Arc;

use harness::{
    Abilities, Answer, Confirmer, Delta, Finish, Message, Model, Models, Options, Pending, Project, Provider,
    ProviderError, Question, Reply, Request, Run, Session, Silent, ToolCall,
};
use serde_json::{Value as Json, json};

const POLICY: &str = "---
fs: { write: [notes] }
---
";

const ADD_NOTE: &str = r#"---
parameters:
  text: { type: string, required: true }
confirm: true
script: |
  def run(args):
      fs.write("notes/note.md", args["text"])
      return "written"
---
Writes a note.
"#;

/// A model that calls `add_note` once, and then says what came of it. A real one sends the request to a service.
#[derive(Debug)]
struct Writer;

impl Provider for Writer {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        let (text, calls, finish) = match request.messages.last() {
            Some(Message::Tool { content, .. }) => (format!("The tool said: {content}."), vec![], Finish::Stop),
            Some(Message::User(text)) => {
                let arguments = json!({ "text": text }).to_string();
                let call = ToolCall { id: "1".to_owned(), name: "add_note".to_owned(), arguments };
                (String::new(), vec![call], Finish::ToolCalls)
            }
            _ => ("Nothing to do.".to_owned(), vec![], Finish::Stop),
        };
        heard(Delta::Text(&text));
        let (id, model) = (String::new(), request.model.clone());
        Box::pin(std::future::ready(Ok(Reply { id, model, text, calls, usage: None, finish })))
    }

    fn abilities<'a>(&'a self, _: &'a str) -> Pending<'a, Abilities> {
        Box::pin(std::future::ready(Abilities { tools: Some(true), context_tokens: None }))
    }
}

/// The only model there is.
#[derive(Debug)]
struct OneModel;

impl Models for OneModel {
    fn main(&self) -> Result<Model, String> {
        Ok(Model {
            name: "writer".to_owned(),
            provider: Arc::new(Writer),
            max_tokens: None,
            temperature: None,
            context_tokens: None,
        })
    }

    fn profile(&self, _: &str) -> Option<Result<Model, String>> {
        None
    }
}

/// Says yes to short notes. A real one asks a person.
#[derive(Debug)]
struct ShortNotes;

impl Confirmer for ShortNotes {
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pending<'a, Answer> {
        let short = question.arguments.get("text").and_then(Json::as_str).is_some_and(|text| text.len() < 20);
        let answer = if short { Answer::Yes } else { Answer::No };
        println!("asked for {} {}: {}", question.tool, question.arguments, answer.name());
        Box::pin(std::future::ready(answer))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    fs::create_dir_all(root.join(".harness/tools"))?;
    fs::create_dir(root.join("notes"))?;
    fs::write(root.join(".harness/harness.md"), POLICY)?;
    fs::write(root.join(".harness/tools/add_note.md"), ADD_NOTE)?;

    let project = Project::open(root, Options::default())?;
    let run = Run::new();
    run.set_confirmer(Arc::new(ShortNotes));
    let mut session = Session::start(&project, &run, Arc::new(OneModel), Arc::new(Silent)).await?;
    for prompt in ["Buy milk.", "Write down all that was said today."] {
        println!("{}", session.turn(prompt).await?.text);
    }
    session.end().await;
    println!("notes/note.md: {}", fs::read_to_string(root.join("notes/note.md"))?);
    Ok(())
}
