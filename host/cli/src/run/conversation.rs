//! A conversation at a terminal: lines are edited and remembered, Ctrl-C stops a turn, `/quit` or the end of input the
//! session.

use std::sync::Arc;

use harness_agent::Session;
use harness_artifact::escape;
use harness_dispatch::Project;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use tokio::runtime::Runtime;

use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::project;
use super::super::signals::{Heard, Signals};
use super::{Opened, Watch, answered, failed, start};

const HELP: &str = "/tools   the tools that the agent may call\n\
                    /hooks   the hooks of each event\n\
                    /agents  the sub-agents\n\
                    /usage   the tokens that the services of the models counted\n\
                    /quit    end the session\n\
                    Ctrl-C stops a turn; the conversation continues.";

pub(super) fn run(opened: Opened, explain: bool, printer: Printer) -> Exit {
    let mut editor = match DefaultEditor::new() {
        Ok(editor) => editor,
        Err(error) => {
            printer.error(&format!("cannot read from the terminal: {error}"), &[], None);
            return Exit::Fault;
        }
    };
    let watch = Arc::new(Watch::new(printer, true, explain));
    let Opened { project, models, runtime, asked, record } = opened;
    let recorded = record.begin(&project, watch.clone(), asked.clone());
    let mut signals = runtime.block_on(async { Signals::new() });
    let started = start(&recorded, &project, models, &mut signals, false, printer);
    let mut session = match runtime.block_on(started) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    printer.say("Type a task; /help lists the commands.");
    let exit = loop {
        let typing = asked.typing();
        watch.unsign();
        let read = typed(&runtime, &mut signals, editor);
        drop(typing);
        let line = match read {
            Ok((back, line)) => {
                editor = back;
                line
            }
            Err(exit) => {
                printer.say("");
                break exit;
            }
        };
        let line = match line {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(_) => break Exit::Completed,
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(line);
        match command(line) {
            None => {
                let ended = runtime.block_on(signals.unless(session.turn(line)));
                let seen = watch.end();
                let (activity, usage) = (session.activity(), session.usage());
                match ended {
                    Ok(Ok(turn)) => drop(answered(&turn, &activity, usage, seen, false, printer)),
                    Ok(Err(error)) => drop(failed(&error, &activity, usage, false, printer)),
                    Err(heard) => {
                        runtime.block_on(asked.over());
                        if heard != Heard::Interrupt {
                            break heard.exit();
                        }
                        printer.say("stopped");
                    }
                }
                recorded.check(printer);
            }
            Some("quit" | "exit") => break Exit::Completed,
            Some(command) => print_command(command, &project, &session, printer),
        }
    };
    let name = recorded.name();
    runtime.block_on(async {
        signals.at_once();
        session.end().await;
    });
    recorded.end(printer);
    let exit = project::audited(&project, exit, printer);
    // Someone may still read what is typed, where a signal came first.
    runtime.shutdown_background();
    if let Some(name) = name {
        printer.say(&format!("`harness run --resume {name}` resumes this conversation"));
    }
    exit
}

/// A line as a person types it, with the editor. Where a signal comes first, the terminal is as it was before.
fn typed(
    runtime: &Runtime,
    signals: &mut Signals,
    mut editor: DefaultEditor,
) -> Result<(DefaultEditor, rustyline::Result<String>), Exit> {
    let terminal = tcgetattr(std::io::stdin()).ok();
    let line = runtime.spawn_blocking(move || {
        let line = editor.readline("> ");
        (editor, line)
    });
    match runtime.block_on(signals.unless_ended(line)) {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(_)) => Err(Exit::Fault),
        Err(heard) => {
            if let Some(terminal) = terminal {
                let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &terminal);
            }
            Err(heard.exit())
        }
    }
}

/// The command that a line is: a slash and one word. `/etc/hosts: what is in it?` is none.
fn command(line: &str) -> Option<&str> {
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    line.strip_prefix('/').filter(is_word)
}

fn print_command(command: &str, project: &Project, session: &Session, printer: Printer) {
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
            format!("{} input tokens, {} output tokens", usage.input_tokens, usage.output_tokens)
        }
        "help" => HELP.to_owned(),
        other => format!("there is no command /{}; /help lists them", escape::line(other)),
    };
    printer.say(&text);
}
