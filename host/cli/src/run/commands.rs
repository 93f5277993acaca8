//! The commands of a conversation: a slash, a name, and what some of them take.

use std::path::Path;

use harness_agent::{Session, context};
use harness_artifact::escape;
use harness_provider::Message;
use harness_sys::output;
use tokio::runtime::Runtime;

use super::super::context::table;
use super::super::printer::Printer;
use super::chosen::Chosen;
use super::conversation::Talk;

/// The names of all commands, for completion.
pub(super) const NAMES: &[&str] =
    &["agents", "clear", "compact", "context", "exit", "help", "hooks", "model", "quit", "save", "tools", "usage"];

pub(super) const HELP: &str = "\
/tools         the tools that the agent may call
/hooks         the hooks of each event
/agents        the sub-agents
/usage         the tokens that the services of the models counted
/context       what the model would get now, and about how many tokens each part takes
/model [NAME]  the models of the project; with a name, use that one from now on
/compact       replace the conversation by a summary, which the model writes
/clear         forget the conversation
/save FILE     write the conversation to a file, as Markdown
/quit          end the session
Alt-Enter, Ctrl-J or a backslash at the end of a line begins another line.
Ctrl-C stops a turn; the conversation continues. What is typed during a turn is read after it.";

/// What a person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Typed<'a> {
    /// A message to the agent.
    Message(&'a str),
    /// A summary instead of the conversation.
    Compact,
    /// The end.
    Quit,
    /// Any other command, with what it is given.
    Command(&'a str, &'a str),
}

impl<'a> Typed<'a> {
    /// What a text means: a command is a slash and one word. `/etc/hosts: what is in it?` is none.
    pub(super) fn of(text: &'a str) -> Self {
        let Some(rest) = text.strip_prefix('/') else { return Self::Message(text) };
        let (word, given) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let is_word = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
        match (word, given.trim()) {
            _ if !is_word => Self::Message(text),
            ("quit" | "exit", "") => Self::Quit,
            ("compact", "") => Self::Compact,
            (word, given) => Self::Command(word, given),
        }
    }
}

impl Talk<'_> {
    /// Does what a command says, and prints what it has to say.
    pub(super) fn command(&mut self, name: &str, given: &str) {
        let printer = self.printer;
        match (name, given) {
            ("save", file) if !file.is_empty() => save(&self.session, self.root, Path::new(file), printer),
            ("model", wanted) if !wanted.is_empty() => match self.session.use_model(wanted) {
                Ok(()) => printer.say(&format!("model {} from now on", escape::line(wanted))),
                Err(why) => printer.error(&why, &[], Some("`/model` lists the models of the project")),
            },
            ("clear", "") => {
                self.session.clear();
                printer.say("the conversation is forgotten");
            }
            _ => {
                let text = self.text(name, given);
                printer.say(text.trim_end());
            }
        }
    }

    /// What a command shows.
    fn text(&self, name: &str, given: &str) -> String {
        let loaded = self.project.loaded();
        let list = |names: Vec<&str>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.iter().map(|name| escape::line(name).into_owned()).collect::<Vec<_>>().join("\n"),
        };
        match (name, given) {
            ("tools", "") => list(self.session.tools().iter().map(|tool| tool.name.as_str()).collect()),
            ("hooks", "") => list(self.session.hooks().iter().map(String::as_str).collect()),
            ("agents", "") => list(loaded.registry().agents().iter().map(|agent| agent.name.as_str()).collect()),
            ("usage", "") => {
                let usage = self.session.usage();
                format!("{} input tokens, {} output tokens", usage.input_tokens, usage.output_tokens)
            }
            ("model", "") => self.models_text(),
            ("context", "") => self.context_text(self.runtime),
            ("save", "") => "name a file: `/save FILE`".to_owned(),
            ("help", "") => HELP.to_owned(),
            (name, "") => format!("there is no command /{}; /help lists them", escape::line(name)),
            (name, given) => {
                format!("there is no command `/{} {}`; /help lists them", escape::line(name), escape::line(given))
            }
        }
    }

    /// The models of the project, the one in use marked.
    fn models_text(&self) -> String {
        let used = self.session.model().unwrap_or_default();
        let loaded = self.project.loaded();
        let line = |name: &str| format!("{} {}", if name == used { "*" } else { " " }, escape::line(name));
        let all: Vec<String> = loaded.policy().models.all().map(|model| line(&model.name.value)).collect();
        if all.is_empty() { "none".to_owned() } else { all.join("\n") }
    }

    fn context_text(&self, runtime: &Runtime) -> String {
        let models = Chosen::of(self.models.clone(), self.session.model().ok());
        let asked = context(self.project, models, None, self.session.history(), None);
        match runtime.block_on(asked) {
            Ok(seen) => table(&seen, false),
            Err(why) => format!("there is no context: {}", escape::text(&why)),
        }
    }
}

/// Writes the conversation to a file.
fn save(session: &Session, root: &Path, file: &Path, printer: Printer) {
    let text = markdown(session.history());
    match output::write_report(file, &text, output::Readers::Owner, &[root]) {
        Ok(()) => printer.say(&format!("wrote `{}`", escape::line(&file.display().to_string()))),
        Err(error) => {
            let hint = "the process may only write where the project's policy lets it, or anywhere with \
                        `--no-self-confine`";
            printer.error(&format!("cannot write `{}`: {error}", file.display()), &[], Some(hint));
        }
    }
}

/// A conversation as a text for people.
fn markdown(history: &[Message]) -> String {
    let mut text = String::new();
    for message in history {
        let (head, said) = match message {
            Message::System(said) => ("System", said.clone()),
            Message::User(said) => ("User", said.clone()),
            Message::Assistant { text, calls } => {
                let calls = calls.iter().map(|call| format!("calls `{}` {}", call.name, call.arguments));
                let parts: Vec<String> =
                    Some(text.clone()).filter(|text| !text.is_empty()).into_iter().chain(calls).collect();
                ("Agent", parts.join("\n\n"))
            }
            Message::Tool { name, content, .. } => {
                let quoted: Vec<String> =
                    content.lines().map(|line| format!("> {line}").trim_end().to_owned()).collect();
                text.push_str(&format!("`{name}` returned:\n\n{}\n\n", quoted.join("\n")));
                continue;
            }
        };
        text.push_str(&format!("## {head}\n\n{said}\n\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_and_a_word_are_a_command() {
        for (text, expected) in [
            ("/quit", Typed::Quit),
            ("/quit now", Typed::Command("quit", "now")),
            ("/compact", Typed::Compact),
            ("/model  m-2 ", Typed::Command("model", "m-2")),
            ("/", Typed::Message("/")),
            ("/etc/hosts: what is in it?", Typed::Message("/etc/hosts: what is in it?")),
            ("what?", Typed::Message("what?")),
        ] {
            assert_eq!(Typed::of(text), expected, "{text}");
        }
    }
}
