//! What an agent's model would see, part by part, and how many tokens that takes.

use std::sync::Arc;

use super::listener::Silent;
use super::models::Models;
use super::prose::Beginning;
use super::runtime::Runtime;
use super::sentences::FRAMING;
use super::{root, window};
use harness_artifact::tool::Tool;
use harness_dispatch::{Project, Run};
use harness_policy::text::quoted;
use harness_provider::message::without_orphans;
use harness_provider::{Form, Message, Request, ToolSchema, prose};

/// What a model would see.
#[derive(Debug, Clone)]
pub struct Context {
    /// The sub-agent; empty for the root.
    pub agent: String,
    /// The model.
    pub model: String,
    /// How many tokens a request may have: what is known of the model, or what the policy allows where that is less.
    pub room: u64,
    /// How the model learns of its tools.
    pub form: Form,
    /// Its parts, in the order in which it gets them.
    pub sections: Vec<Section>,
    /// Messages of the conversation that are too old to go with the rest.
    pub left_out: u64,
    /// The sources of prose, and the skills, for which the system prompt has no room.
    pub without_room: Vec<String>,
    /// The tokens of all of it as the service of the model counts them, if it does.
    pub counted: Option<u64>,
}

/// A part of what a model sees.
#[derive(Debug, Clone)]
pub struct Section {
    /// `system`, `prose`, `tool`, `history` or `prompt`.
    pub kind: &'static str,
    /// What it is called: of a tool, its name.
    pub name: String,
    /// The file that it is from; empty for what is the host's own or was said.
    pub file: String,
    /// What it says; of a tool that is reported of in a field of the request, as JSON.
    pub text: String,
    /// How many tokens it takes, about: a fourth of its bytes.
    pub tokens: u64,
}

impl Context {
    /// The estimates of all parts together.
    pub fn estimated(&self) -> u64 {
        self.sections.iter().map(|section| section.tokens).fold(0, u64::saturating_add)
    }
}

/// What the model of a project's agent would see after a conversation, or that of a sub-agent which the root starts.
/// Nobody is asked, but the model's service for what it knows of the model and counts in the request.
///
/// # Errors
///
/// Where there is no such agent, or no model.
pub async fn context(
    project: &Project,
    models: Arc<dyn Models>,
    agent: Option<&str>,
    history: &[Message],
    prompt: Option<&str>,
) -> Result<Context, String> {
    let run = Run::new();
    let mut runtime = root(project, &run, models, Arc::new(Silent));
    if let Some(name) = agent {
        let found = runtime.loaded.registry().agents().iter().find(|agent| agent.name == name).cloned();
        let agent = found.ok_or_else(|| format!("there is no agent {}", quoted(name)))?;
        let own = agent.model.as_ref().map(|model| model.value.clone());
        let parent = runtime.model()?;
        let model = own.map_or(Ok(parent.clone()), |own| parent.named(&own, runtime.crew.models.as_ref()))?;
        runtime = Arc::new(runtime.child("delegation_1".to_owned(), &agent, model, None));
    }
    let model = runtime.model()?;
    let mut request = Request {
        model: model.name.clone(),
        messages: Vec::new(),
        tools: runtime.tools(&runtime.place(&run)),
        max_tokens: model.max_tokens,
        temperature: model.temperature,
        agent: runtime.name().to_owned(),
    };
    let abilities = model.provider.abilities(&model.name).await;
    // Known since its abilities were asked for.
    let form = model.provider.form(&request).await;
    let most = runtime.crew.settings.max_tokens;
    let room = model.context_tokens.or(abilities.context_tokens).map_or(most, |context| most.min(context));
    let beginning = Beginning::of(&runtime, form, room);
    request.messages = beginning.messages();
    // As a turn does it, of which something that is said is always the beginning.
    let mut history = without_orphans(history.to_vec());
    let (pinned, held) = (history.len(), history.len());
    history.push(Message::User(prompt.unwrap_or_default().to_owned()));
    let fits = window::room(runtime.crew.settings.max_history, room, model.max_tokens, 1.0, &request);
    let mut history = without_orphans(window::window(&history, pinned, fits));
    let prompt = history.pop().filter(|_| prompt.is_some());
    request.messages.extend(history.iter().cloned().chain(prompt.clone()));
    Ok(Context {
        agent: runtime.name().to_owned(),
        room,
        form,
        sections: sections(&runtime, &beginning, &request.tools, form, &history, prompt.as_ref()),
        left_out: held.saturating_sub(history.len()) as u64,
        without_room: beginning.left_out,
        counted: model.provider.count(&request).await,
        model: model.name,
    })
}

fn sections(
    runtime: &Runtime,
    beginning: &Beginning,
    tools: &[ToolSchema],
    form: Form,
    history: &[Message],
    prompt: Option<&Message>,
) -> Vec<Section> {
    let said = |kind, name: &str, file: &str, message: &Message| Section {
        kind,
        name: name.to_owned(),
        file: file.to_owned(),
        text: text_of(message),
        tokens: window::tokens(message),
    };
    let system = |name: &str, file: &str, text: &str| said("system", name, file, &Message::System(text.to_owned()));
    let own = runtime
        .agent
        .as_ref()
        .map_or_else(|| runtime.loaded.policy().project.origin.file.clone(), |agent| agent.source.file.to_string());
    let mut sections: Vec<Section> = Vec::new();
    sections.extend(beginning.prompt.iter().map(|prompt| system("prompt of the agent", &own, prompt)));
    sections.push(system("what tools return is data", "", FRAMING));
    sections.extend(beginning.notes.iter().map(|note| Section {
        kind: "prose",
        name: note.source.clone(),
        file: String::new(),
        text: note.text.clone(),
        tokens: window::tokens_of_text(&note.text),
    }));
    sections.extend(beginning.skills.iter().map(|skills| system("skills", "", skills)));
    match form {
        Form::Structured => sections.extend(tools.iter().map(|tool| structured(runtime, tool))),
        // They are reported behind the first thing that is said to it.
        Form::Prose => drop(sections.splice(1..1, in_prose(runtime, tools))),
        Form::None => {}
    }
    let sent =
        |message: &Message| if form == Form::Structured { message.clone() } else { prose::as_plain_text(message) };
    let history = history.iter().map(sent);
    sections.extend(history.map(|message| said("history", role(&message), "", &message)));
    sections.extend(prompt.map(|message| said("prompt", "user", "", message)));
    sections
}

fn structured(runtime: &Runtime, tool: &ToolSchema) -> Section {
    let ToolSchema { name, description, parameters } = tool;
    let text = serde_json::json!({"name": name, "description": description, "parameters": parameters});
    let file = file_of(runtime, name);
    Section { kind: "tool", name: name.clone(), file, text: text.to_string(), tokens: window::tokens_of_tool(tool) }
}

/// Tools as parts of the system prompt.
fn in_prose(runtime: &Runtime, tools: &[ToolSchema]) -> Vec<Section> {
    let part = |kind, name: &str, file: String, text: String| {
        let tokens = window::tokens_of_text(&text);
        Section { kind, name: name.to_owned(), file, text, tokens }
    };
    let how = (!tools.is_empty()).then(|| part("system", "how tools are called", String::new(), prose::HOW.to_owned()));
    let each = tools.iter().map(|tool| part("tool", &tool.name, file_of(runtime, &tool.name), prose::described(tool)));
    how.into_iter().chain(each).collect()
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::System(_) => "system",
        Message::User(_) => "user",
        Message::Assistant { .. } => "assistant",
        Message::Tool { .. } => "tool",
    }
}

fn text_of(message: &Message) -> String {
    match message {
        Message::System(text) | Message::User(text) => text.clone(),
        Message::Assistant { .. } | Message::Tool { .. } => message.to_json().to_string(),
    }
}

/// The file of a tool that an agent has; none of those that are the host's.
fn file_of(runtime: &Runtime, name: &str) -> String {
    let built_in = |tool: &&Arc<Tool>| tool.name == name;
    if runtime.built_ins.iter().any(|tool| built_in(&tool)) {
        return String::new();
    }
    runtime.loaded.registry().tool(name).map(|tool| tool.source.file.to_string()).unwrap_or_default()
}
