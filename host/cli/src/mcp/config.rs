//! `harness mcp config`.

use std::path::Path;

use clap::Args;
use harness_sys::{self as sys, output};
use serde_json::{Value as Json, json};

use super::clients::{Client, File, Form};
use super::merge::{self, Merged};
use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  harness mcp config claude-code\n  harness mcp config vscode --write")]
pub(crate) struct Config {
    /// The client.
    #[arg(value_enum)]
    pub(crate) client: Client,

    /// Name of the server in the client: 1 to 20 characters of `a-z`, `0-9`, `_` and `-`.
    #[arg(long, value_name = "NAME", default_value = "harness", value_parser = name)]
    pub(crate) name: String,

    /// Add the server to the client's file in the project. Everything else in the file stays as it is, comments too.
    #[arg(long)]
    pub(crate) write: bool,
}

/// Characters of a server's name. Some clients have 60 for it and the name of a tool, which has up to 40.
const MAX_NAME: usize = 20;

fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    let is_name = (1..=MAX_NAME).contains(&text.len()) && text.chars().all(fits);
    if is_name { Ok(text.to_owned()) } else { Err(format!("1 to {MAX_NAME} characters of a-z, 0-9, _ and -")) }
}

pub(crate) fn run(command: &Config, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let root = project::there(place, printer)?;
    let root = sys::real_path(&root).map_err(|error| {
        printer.error(&format!("`{}` cannot be read: {error}", root.display()), &[], None);
        Exit::Usage
    })?;
    if root.to_str().is_none() {
        printer.error(&format!("the path `{}` is not text, which a client needs", root.display()), &[], None);
        return Err(Exit::Usage);
    }
    let Config { client, name, write } = command;
    let entry = client.entry(name, &root);
    if !write {
        printer.data(&whole(*client, name, &entry));
        return Ok(Exit::Completed);
    }
    match client.file() {
        File::Project(path) => add(*client, name, &entry, (&root, path), printer),
        File::Home(path) => {
            let why = format!("this client reads no file of a project: add the server to `{path}` yourself");
            printer.error(&why, &[], Some("without `--write`, what to add is printed"));
            Err(Exit::Usage)
        }
    }
}

/// A file that has nothing but the server.
fn whole(client: Client, name: &str, entry: &Json) -> String {
    match client.form() {
        Form::Json | Form::JsonWithComments => format!("{:#}\n", json!({client.section(): {name: entry}})),
        Form::Toml => merge::toml_table(client.section(), name, entry),
        Form::Yaml => yaml(client.section(), name, entry),
    }
}

/// JSON is YAML too, so that values are written as JSON.
fn yaml(section: &str, name: &str, entry: &Json) -> String {
    let lines = entry.as_object().into_iter().flatten().map(|(key, value)| format!("    {key}: {value}\n"));
    format!("{section}:\n  {name}:\n{}", lines.collect::<String>())
}

fn add(client: Client, name: &str, entry: &Json, at: (&Path, &str), printer: Printer) -> Result<Exit, Exit> {
    let (root, path) = at;
    let file = root.join(path);
    let failed = |why: String, hint: Option<&str>| {
        printer.error(&why, &[], hint);
        Exit::Usage
    };
    let before = match sys::read_text(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(format!("`{path}` cannot be read: {error}"), None)),
    };
    let merged = if before.trim().is_empty() {
        Ok(Merged::Text(whole(client, name, entry)))
    } else {
        match client.form() {
            Form::Toml => merge::toml(&before, client.section(), name, entry),
            form => merge::json(&before, client.section(), name, entry, form == Form::JsonWithComments),
        }
    };
    let text = match merged {
        Ok(Merged::Same) => {
            printer.data(&format!("{path} has it already"));
            return Ok(Exit::Completed);
        }
        Ok(Merged::Text(text)) => text,
        Err(why) => {
            let hint = "without `--write`, what to add is printed; `--name NAME` adds it under another name";
            return Err(failed(format!("`{path}` stays as it is: {why}"), Some(hint)));
        }
    };
    let made = file.parent().map_or(Ok(()), |folder| match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    });
    made.and_then(|()| output::write(&file, &text, output::Readers::All, &[root]))
        .map_err(|error| failed(format!("`{path}` cannot be written: {error}"), None))?;
    printer.data(&format!("wrote {path}"));
    Ok(Exit::Completed)
}
