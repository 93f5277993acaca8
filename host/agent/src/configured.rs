//! The models that a project's `harness.md` names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::models::{Model, Models};
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::located::Located;
use harness_artifact::model::{self, ModelConfig};
use harness_artifact::replies::{self, ScriptedReply};
use harness_artifact::suggest::closest;
use harness_capability::env::Variables;
use harness_capability::outbound::Outbound;
use harness_policy::text::quoted;
use harness_provider::Provider;
use harness_provider::connect::connect_counted;
use harness_provider::script::Scripted;
use harness_provider::settings::Settings;
use harness_sys as sys;

/// The models of a project, each connected when it is first asked for.
#[derive(Debug)]
pub struct Configured {
    root: PathBuf,
    /// The file that names them, for messages.
    policy: String,
    models: model::Models,
    /// Where their keys are.
    variables: Variables,
    /// Whether services are reached at public addresses alone.
    is_public: bool,
    /// Counts what is sent.
    outbound: Outbound,
    connected: Mutex<HashMap<String, Arc<dyn Provider>>>,
}

impl Configured {
    /// Those of the project in a folder, whose policy names them. Their keys are in these variables.
    pub fn new(root: &Path, models: &model::Models, variables: &Variables) -> Self {
        let policy = ".harness/harness.md".to_owned();
        let (models, variables) = (models.clone(), variables.clone());
        let (outbound, connected) = (Outbound::default(), Mutex::default());
        Self { root: root.to_owned(), policy, models, variables, is_public: false, outbound, connected }
    }

    /// The same of a policy that is another file; where there is none, messages name the one to write.
    #[must_use]
    pub fn of_policy(self, file: &str) -> Self {
        if file.is_empty() { self } else { Self { policy: file.to_owned(), ..self } }
    }

    /// The same, with services at public addresses alone: for the models of a tenant.
    #[must_use]
    pub fn at_public_addresses(self) -> Self {
        Self { is_public: true, ..self }
    }

    /// The same, with what is sent to services counted by a meter.
    #[must_use]
    pub fn counted_by(self, outbound: Outbound) -> Self {
        Self { outbound, ..self }
    }

    fn model(&self, config: &ModelConfig) -> Result<Model, String> {
        Ok(Model {
            name: config.name.value.clone(),
            provider: self.provider(config)?,
            max_tokens: config.max_tokens.as_ref().map(|most| most.value),
            temperature: config.temperature.as_ref().map(|value| value.value),
            context_tokens: config.context_tokens.as_ref().map(|most| most.value),
        })
    }

    fn provider(&self, config: &ModelConfig) -> Result<Arc<dyn Provider>, String> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        // A file of replies is one list, anyone who is answered from it.
        let key = config.script.as_ref().map_or_else(|| format!("model {}", config.name.value), |s| s.value.clone());
        if let Some(provider) = connected.get(&key) {
            return Ok(provider.clone());
        }
        let provider: Arc<dyn Provider> = match &config.script {
            Some(file) => Arc::new(scripted(&self.root, file)?),
            None => {
                let variables = self.variables.clone();
                let key = Arc::new(move |name: &str| variables.value(name));
                let settings = Settings { is_public: self.is_public, ..Settings::from(config) };
                let provider = connect_counted(&settings, key, &self.outbound);
                Arc::from(provider.map_err(|error| error.to_string())?)
            }
        };
        connected.insert(key, provider.clone());
        Ok(provider)
    }
}

impl Models for Configured {
    fn main(&self) -> Result<Model, String> {
        let none = || {
            let file = &self.policy;
            format!("`{file}` names no model: write `model: {{ name: ..., provider: ... }}` in its front matter")
        };
        self.models.main.as_ref().map_or_else(|| Err(none()), |config| self.model(config))
    }

    fn profile(&self, name: &str) -> Option<Result<Model, String>> {
        self.models.all().find(|config| config.name.value == name).map(|config| self.model(config))
    }
}

/// What a file of replies that a model names holds, and what is wrong with it.
#[derive(Debug)]
pub struct RepliesFile {
    /// As the policy names it.
    pub file: String,
    /// Its text; empty where it cannot be read.
    pub text: String,
    replies: Option<Vec<ScriptedReply>>,
    /// What is wrong with it, as far as that is known before the first request.
    pub problems: Vec<Diagnostic>,
}

impl RepliesFile {
    fn read(root: &Path, named: &Located<String>) -> Self {
        let file = named.value.clone();
        match sys::read_text(&root.join(&file)) {
            Ok(text) => {
                let (replies, problems) = replies::parse(&file, &text);
                Self { file, text, replies, problems: problems.into_iter().collect() }
            }
            Err(error) => {
                let problem = Diagnostic::error(format!("cannot read `{file}`: {error}")).at(named.position.clone());
                let hint = "`script` names a file of replies, from the folder of the project";
                Self { file, text: String::new(), replies: None, problems: vec![problem.hint(hint)] }
            }
        }
    }

    /// A reply for an agent that is not there is never given.
    fn for_agents(mut self, agents: &[&str]) -> Self {
        for reply in self.replies.iter().flatten() {
            let Some(agent) = reply.agent.as_deref().filter(|agent| !agents.contains(agent)) else { continue };
            let problem = Diagnostic::warning(format!("there is no agent {}", quoted(agent)));
            let hint = closest(agent, agents.iter().copied()).map(|name| format!("did you mean `{name}`?"));
            let problem = problem.at(reply.position.clone());
            self.problems.push(match hint {
                Some(hint) => problem.hint(hint),
                None => problem.hint("no agent gets this reply"),
            });
        }
        self
    }
}

/// The files of replies that models name, each once, looked at. `agents` are the names of those that there are.
pub fn replies_files(root: &Path, models: &model::Models, agents: &[&str]) -> Vec<RepliesFile> {
    let mut found: Vec<RepliesFile> = Vec::new();
    for named in models.all().filter_map(|model| model.script.as_ref()) {
        if !found.iter().any(|known| known.file == named.value) {
            found.push(RepliesFile::read(root, named).for_agents(agents));
        }
    }
    found
}

/// The replies in a file of the project, or the first of what is wrong with it.
fn scripted(root: &Path, named: &Located<String>) -> Result<Scripted, String> {
    let RepliesFile { file, replies, problems, .. } = RepliesFile::read(root, named);
    replies.map(|replies| Scripted::new(&file, replies)).ok_or_else(|| {
        let told = problems.first().map(|problem| {
            let place = problem.position.as_ref().map(|position| format!("{position}: ")).unwrap_or_default();
            format!("{place}{}", problem.message)
        });
        told.unwrap_or_default()
    })
}
