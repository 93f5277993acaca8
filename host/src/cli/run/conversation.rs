//! A conversation at a terminal: lines are edited and remembered, Ctrl-C stops a turn, `/quit` or the end of input the
//! session.

use std::sync::Arc;

use harness::agent::Session;
use harness::artifact::escape;
use harness::dispatch::Project;
use harness::provider::Usage;
use rustyline::error::ReadlineError;

use super::super::exit::Exit;
use super::super::printer::Printer;
use super::{Opened, Watch, answered, failed, interruptible};

const HELP: &str = "/tools   what the agent may call\n\
                    /hooks   what looks at each step\n\
                    /agents  what it may set to work\n\
                    /usage   what the models' services have counted\n\
                    /quit    end the session\n\
                    Ctrl-C stops a turn; the conversation goes on.";

pub(super) fn run(opened: Opened, printer: Printer) -> Exit {
    let mut editor = match rustyline::DefaultEditor::new() {
        Ok(editor) => editor,
        Err(error) => {
            printer.error(&format!("cannot read from the terminal: {error}"), &[], None);
            return Exit::Fault;
        }
    };
    let watch = Arc::new(Watch::new(printer, true, false));
    let Opened { project, models, runtime, asked, record } = opened;
    let recorded = record.begin(&project, watch.clone(), asked.clone());
    let mut session = match runtime.block_on(recorded.start(&project, models)) {
        Ok(session) => session,
        Err(error) => return failed(&error, Usage::default(), false, printer),
    };
    printer.say("Say what is to be done; /help lists the commands.");
    loop {
        let typing = asked.typing();
        watch.unsign();
        let line = editor.readline("> ");
        drop(typing);
        let line = match line {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(_) => break,
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(line);
        match command(line) {
            None => {
                let ended = runtime.block_on(interruptible(session.turn(line)));
                let seen = watch.end();
                match ended {
                    Some(Ok(turn)) => drop(answered(&turn, session.usage(), seen, false, printer)),
                    Some(Err(error)) => drop(failed(&error, session.usage(), false, printer)),
                    None => {
                        runtime.block_on(asked.over());
                        printer.say("stopped");
                    }
                }
                recorded.check(printer);
            }
            Some("quit" | "exit") => break,
            Some(command) => tell(command, &project, &session, printer),
        }
    }
    let name = recorded.name();
    runtime.block_on(session.end());
    recorded.end(printer);
    if let Some(name) = name {
        printer.say(&format!("`harness run --resume {name}` goes on with this conversation"));
    }
    Exit::Completed
}

/// The command that a line is: a slash and one word. `/etc/hosts: what is in it?` is none.
fn command(line: &str) -> Option<&str> {
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    line.strip_prefix('/').filter(is_word)
}

fn tell(command: &str, project: &Project, session: &Session, printer: Printer) {
    let loaded = project.loaded();
    let registry = loaded.registry();
    let (tools, hooks) = (session.tools(), session.hooks());
    let list = |names: Vec<&str>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().map(|name| escape::line(name).into_owned()).collect::<Vec<_>>().join("\n"),
    };
    let text = match command {
        "tools" => list(tools.iter().map(|tool| tool.name.as_str()).collect()),
        "hooks" => list(hooks.iter().map(String::as_str).collect()),
        "agents" => list(registry.agents().iter().map(|agent| agent.name.as_str()).collect()),
        "usage" => {
            let usage = session.usage();
            format!("{} tokens asked, {} answered", usage.input_tokens, usage.output_tokens)
        }
        "help" => HELP.to_owned(),
        other => format!("there is no command /{}; /help lists them", escape::line(other)),
    };
    printer.say(&text);
}
