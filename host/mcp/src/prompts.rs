//! Prompts: agents and skills of the project, as messages that a person puts before a model.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use harness_artifact::agent::Agent;
use harness_artifact::skill::Skill;
use harness_artifact::skill::arguments::{Argument, Piece, pieces};
use harness_artifact::third_party;
use harness_dispatch::Loaded;
use harness_policy::grant::Grant;
use rmcp::model::{Prompt, PromptArgument};
use serde_json::{Map, Value as Json, json};

use crate::acts::READ;
use crate::names::Names;
use crate::resources::{self, Content, Data, Ended, Source, denied, failed};

/// Files and resources in one prompt.
const MAX_EMBEDDED: usize = 16;
/// Bytes of all of them, in Base64 where they are no text.
const MAX_BYTES: usize = 8 << 20;
/// What an agent is given.
const TASK: &str = "task";

/// What a prompt is of.
#[derive(Debug, Clone)]
pub(crate) enum Of {
    Agent(Arc<Agent>),
    Skill(Arc<Skill>),
}

/// All prompts by the names that clients use, in the order of these.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    all: BTreeMap<String, Of>,
}

impl Prompts {
    /// Those of artifacts whose source may speak to a model.
    ///
    /// An agent has its own name and a skill has its own with `_` for each `-`, which no other skill has, as far as clients
    /// accept it. Where an agent has the name of a skill already, that of the skill is changed.
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let agents = loaded.registry().agents().iter().filter(|agent| resources::speaks(loaded, &agent.source_name));
        let mut wanted: BTreeMap<String, Of> =
            agents.map(|agent| (agent.name.clone(), Of::Agent(agent.clone()))).collect();
        for skill in resources::skills(loaded) {
            let plain = skill.name.replace('-', "_");
            // No agent and no other skill can be called so.
            let name = if wanted.contains_key(&plain) { format!("skills/{plain}") } else { plain };
            wanted.insert(name, Of::Skill(skill.clone()));
        }
        let names = Names::of(wanted.keys().map(String::as_str));
        let all = names.iter().filter_map(|(name, own)| Some((name.to_owned(), wanted.get(own)?.clone())));
        Self { all: all.collect() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Of> {
        self.all.get(name)
    }

    /// As clients list them.
    pub(crate) fn listed(&self) -> BTreeMap<String, Prompt> {
        self.all.iter().map(|(name, of)| (name.clone(), of.listed(name))).collect()
    }
}

impl Of {
    fn description(&self) -> String {
        let own = match self {
            Self::Agent(agent) => agent.description.as_ref().map(|text| text.value.trim()).unwrap_or_default(),
            Self::Skill(skill) => skill.description.value.as_str(),
        };
        if own.is_empty() { format!("A task for the agent `{}`.", self.name()) } else { third_party::line(own) }
    }

    fn name(&self) -> &str {
        match self {
            Self::Agent(agent) => &agent.name,
            Self::Skill(skill) => &skill.name,
        }
    }

    /// What a person gives it.
    pub(crate) fn arguments(&self) -> Vec<Argument> {
        match self {
            Self::Agent(_) => vec![Argument {
                name: TASK.to_owned(),
                description: Some("What the agent is to do.".to_owned()),
                required: true,
                values: Vec::new(),
            }],
            Self::Skill(skill) => skill.arguments.clone(),
        }
    }

    fn listed(&self, name: &str) -> Prompt {
        let argument = |argument: &Argument| {
            let listed = PromptArgument::new(&argument.name).with_required(argument.required);
            match &argument.description {
                Some(description) => listed.with_description(third_party::line(description)),
                None => listed,
            }
        };
        let arguments: Vec<PromptArgument> = self.arguments().iter().map(argument).collect();
        Prompt::new(name, Some(self.description()), (!arguments.is_empty()).then_some(arguments))
    }

    /// The arguments that are needed and not given.
    pub(crate) fn missing(&self, given: &Map<String, Json>) -> Vec<Argument> {
        self.arguments().into_iter().filter(|one| one.required && !given.contains_key(&one.name)).collect()
    }
}

/// The messages of a prompt, as hooks see them and a client gets them. Waits for the disk.
///
/// # Errors
///
/// How the act ends instead.
pub(crate) fn get(loaded: &Loaded, grant: &Grant, of: &Of, given: &Map<String, Json>) -> Result<Json, Ended> {
    let values = values(of, given).map_err(failed)?;
    let contents = match of {
        Of::Agent(agent) => {
            let prompt = agent.system_prompt.trim();
            let prompt = match third_party::author(&agent.source_name) {
                Some(author) if !prompt.is_empty() => third_party::quoted(author, prompt, prompt.len()),
                _ => prompt.to_owned(),
            };
            let task = values.get(TASK).map(|task| (*task).to_owned()).unwrap_or_default();
            [prompt, task].into_iter().filter(|text| !text.is_empty()).map(as_text).collect()
        }
        Of::Skill(skill) => Work { loaded, grant, skill, values: &values, room: MAX_BYTES, embedded: 0 }.contents()?,
    };
    let messages: Vec<Json> = contents.into_iter().map(|content| json!({"role": "user", "content": content})).collect();
    Ok(json!({"description": of.description(), "messages": messages}))
}

/// The values that were given, all of them texts that the arguments may have.
fn values<'g>(of: &Of, given: &'g Map<String, Json>) -> Result<BTreeMap<&'g str, &'g str>, String> {
    let arguments = of.arguments();
    if let Some(missing) = of.missing(given).first() {
        return Err(format!("the argument `{}` is missing", missing.name));
    }
    let mut values = BTreeMap::new();
    for (name, value) in given {
        let Some(argument) = arguments.iter().find(|argument| argument.name == *name) else {
            let known: Vec<String> = arguments.iter().map(|argument| format!("`{}`", argument.name)).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("those are {}", known.join(", ")) };
            return Err(format!("there is no argument `{name}`: {known}"));
        };
        let text = value.as_str().ok_or_else(|| format!("the argument `{name}` is not a text"))?;
        if !argument.values.is_empty() && !argument.values.iter().any(|known| known == text) {
            return Err(format!("the argument `{name}` is none of {}", argument.values.join(", ")));
        }
        values.insert(name.as_str(), text);
    }
    Ok(values)
}

fn as_text(text: String) -> Json {
    json!({"type": "text", "text": text})
}

/// The prose of a skill as contents of messages: a line that is an image of Markdown is replaced by what it shows.
struct Work<'a> {
    loaded: &'a Loaded,
    grant: &'a Grant,
    skill: &'a Arc<Skill>,
    values: &'a BTreeMap<&'a str, &'a str>,
    /// Bytes that are left for what is embedded.
    room: usize,
    embedded: usize,
}

impl Work<'_> {
    fn contents(mut self) -> Result<Vec<Json>, Ended> {
        let declared: HashSet<&str> = self.skill.arguments.iter().map(|one| one.name.as_str()).collect();
        let mut contents = Vec::new();
        // Where it is cut is seen before any value is in it: no value embeds anything by itself.
        for block in blocks(&self.skill.body) {
            let embedded = match block {
                Block::Text(_) => None,
                Block::Image { target, .. } => self.embed(target, &declared)?,
            };
            let text = match block {
                Block::Text(text) | Block::Image { line: text, .. } => text,
            };
            contents.extend(embedded.or_else(|| {
                let text = self.filled(text, &declared);
                Some(text.trim())
                    .filter(|text| !text.is_empty())
                    .map(|text| as_text(resources::framed(self.skill, text)))
            }));
        }
        Ok(contents)
    }

    /// A text with the values of its arguments.
    fn filled(&self, text: &str, declared: &HashSet<&str>) -> String {
        let value = |name: &str| self.values.get(name).copied().unwrap_or_default();
        let filled = pieces(text).into_iter().map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Value(name) if declared.contains(name) => value(name).to_owned(),
            Piece::Value(name) => format!("{{{{{name}}}}}"),
        });
        filled.collect()
    }

    /// What a target shows. None if it is no file beside the skill and no resource, as the address of a picture elsewhere.
    fn embed(&mut self, target: &str, declared: &HashSet<&str>) -> Result<Option<Json>, Ended> {
        let is_chosen =
            pieces(target).iter().any(|piece| matches!(piece, Piece::Value(name) if declared.contains(name)));
        let target = self.filled(target, declared);
        let beside = resources::beside(self.skill, &target);
        if is_chosen && beside.is_none() {
            // What the client names it could read itself, or not at all.
            if let Err(refusal) = self.loaded.policy().tools.decide(READ) {
                return Err(denied(refusal));
            }
        }
        let Some(source) = beside.or_else(|| resources::find(self.loaded, &target)) else {
            return if is_chosen { Err(denied(resources::not_offered(self.loaded, &target))) } else { Ok(None) };
        };
        self.embedded = self.embedded.saturating_add(1);
        if self.embedded > MAX_EMBEDDED {
            return Err(failed(format!("a prompt has {MAX_EMBEDDED} files and resources at most")));
        }
        let uri = match &source {
            Source::Beside(skill, file) => harness_policy::resource::skill_uri(&skill.name, &file.path),
            Source::Skill(_) | Source::File(..) => target,
        };
        let content = resources::read(self.loaded, self.grant, &source)?;
        let bytes = match &content.data {
            Data::Text(data) | Data::Blob(data) => data.len(),
        };
        let room = self.room.checked_sub(bytes);
        self.room = room.ok_or_else(|| failed(format!("what a prompt shows has {MAX_BYTES} bytes at most")))?;
        Ok(Some(embedded(&uri, content)))
    }
}

/// A content as part of a message.
fn embedded(uri: &str, content: Content) -> Json {
    let kind = content.mime_type.split('/').next().unwrap_or_default();
    match (&content.data, kind) {
        (Data::Blob(data), "image" | "audio") => json!({"type": kind, "data": data, "mimeType": content.mime_type}),
        _ => json!({"type": "resource", "resource": resources::shown(uri, content)}),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block<'t> {
    Text(&'t str),
    /// A line that is an image alone.
    Image {
        line: &'t str,
        target: &'t str,
    },
}

/// The prose in blocks: each line that is an image, and the text between two of them. Code stays as it is.
fn blocks(body: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let (mut begin, mut at) = (0_usize, 0_usize);
    let mut fence: Option<&str> = None;
    for line in body.split_inclusive('\n') {
        let end = at.saturating_add(line.len());
        let bare = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| bare.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if let (None, Some(target)) = (fence, image(bare)) {
            blocks.extend(body.get(begin..at).filter(|text| !text.trim().is_empty()).map(Block::Text));
            blocks.push(Block::Image { line: bare, target });
            begin = end;
        }
        at = end;
    }
    blocks.extend(body.get(begin..).filter(|text| !text.trim().is_empty()).map(Block::Text));
    blocks
}

/// The target of a line such as `![a picture](picture.png)`.
fn image(line: &str) -> Option<&str> {
    let (text, target) = line.strip_prefix("![")?.strip_suffix(')')?.split_once("](")?;
    let is_one = !text.contains(['[', ']']) && !target.is_empty() && !target.contains(['(', ')', ' ']);
    is_one.then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_cut_at_lines_that_are_images() {
        let line = |line, target| Block::Image { line, target };
        for (body, want) in [
            (
                "One.\n\n![a](b.png)\n\nTwo.",
                vec![Block::Text("One.\n\n"), line("![a](b.png)", "b.png"), Block::Text("\nTwo.")],
            ),
            ("![](a)\n![b]({{c}})", vec![line("![](a)", "a"), line("![b]({{c}})", "{{c}}")]),
            ("See ![a](b.png) here.", vec![Block::Text("See ![a](b.png) here.")]),
            ("```\n![a](b.png)\n```", vec![Block::Text("```\n![a](b.png)\n```")]),
            ("~~~\n```\n![a](b)\n~~~\n![a](b)", vec![Block::Text("~~~\n```\n![a](b)\n~~~\n"), line("![a](b)", "b")]),
            ("![a](b c)\n![a](b)(c)\n[a](b)", vec![Block::Text("![a](b c)\n![a](b)(c)\n[a](b)")]),
            ("", vec![]),
        ] {
            assert_eq!(blocks(body), want, "{body}");
        }
    }
}
