//! `harness context`: what the agent's model would see.

use harness_agent::{Context as Seen, Section, context};
use harness_artifact::escape;
use harness_dispatch::Options;
use harness_provider::Form;
use harness_session::text::count;
use serde_json::{Value as Json, json};

use super::args::{Context, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::{project, run, sessions};

pub(crate) fn run(command: &Context, place: &ProjectArgs, printer: &Printer) -> Exit {
    let history = match command.resume.as_deref().map(|wanted| sessions::history(wanted, place, *printer)) {
        None => Vec::new(),
        Some(Ok((_, _, history))) => history,
        Some(Err(exit)) => return exit,
    };
    let options = Options::default();
    let project = match project::open(place, options, *printer) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let models = run::models(&project, place);
    let asked = context(&project, models, command.agent.as_deref(), &history, command.prompt.as_deref());
    let seen = match project::block_on(asked, *printer) {
        Ok(Ok(seen)) => seen,
        Ok(Err(why)) => {
            let hint = command.agent.as_ref().map(|_| "`harness agents` lists the agents");
            printer.error(&why, &[], hint);
            return Exit::Usage;
        }
        Err(exit) => return exit,
    };
    if command.json {
        printer.json(&as_json(&seen));
    } else {
        printer.data(&table(&seen, command.full));
    }
    Exit::Completed
}

/// A line for each part.
pub(crate) fn table(seen: &Seen, full: bool) -> String {
    let of = |section: &Section| match section.kind {
        "prompt" => "prompt".to_owned(),
        kind => format!("{kind}: {}", escape::line(&section.name)),
    };
    let names: Vec<String> = seen.sections.iter().map(of).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("total".len());
    let tools = match seen.form {
        Form::Structured => "",
        Form::Prose => ", tools in prose",
        Form::None => ", no tools",
    };
    let mut text = format!("model {}, room for {} tokens{tools}\n\n", escape::line(&seen.model), seen.room);
    for (name, section) in names.iter().zip(&seen.sections) {
        let from = if section.file.is_empty() { "" } else { &*section.file };
        let line = format!("{name:width$}  {:>7}  {}", format!("~{}", section.tokens), escape::line(from));
        text.push_str(line.trim_end());
        text.push('\n');
        if full {
            for line in escape::text(&section.text).lines() {
                text.push_str(format!("    {line}").trim_end());
                text.push('\n');
            }
        }
    }
    if seen.left_out > 0 {
        let messages = count(seen.left_out, "message", "messages");
        text.push_str(&format!("the oldest {messages} of the conversation would be left out\n"));
    }
    if !seen.without_room.is_empty() {
        let names = escape::line(&seen.without_room.join(", ")).into_owned();
        text.push_str(&format!(
            "left out, as `context.max_prose_bytes` in `harness.md` has no room for them: {names}\n"
        ));
    }
    let total = match seen.counted {
        Some(counted) => format!("{counted:>7}  counted by the model's service; the parts are estimates"),
        None => format!("{:>7}  estimated: a token for four bytes", format!("~{}", seen.estimated())),
    };
    text.push_str(&format!("{:width$}  {total}\n", "total"));
    text
}

fn as_json(seen: &Seen) -> Json {
    let section = |section: &Section| {
        json!({
            "kind": section.kind,
            "name": section.name,
            "file": (!section.file.is_empty()).then_some(&section.file),
            "estimated_tokens": section.tokens,
            "text": section.text,
        })
    };
    json!({
        "agent": (!seen.agent.is_empty()).then_some(&seen.agent),
        "model": seen.model,
        "room_tokens": seen.room,
        "tools": seen.form.word(),
        "left_out_messages": seen.left_out,
        "left_out_prose": seen.without_room,
        "sections": seen.sections.iter().map(section).collect::<Vec<_>>(),
        "estimated_tokens": seen.estimated(),
        "counted_tokens": seen.counted,
    })
}
