//! The models that a project's `harness.md` names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::models::{Model, Models};
use crate::ambient;
use crate::artifact::diagnostic::Diagnostics;
use crate::artifact::model::{self, ModelConfig};
use crate::artifact::replies;
use crate::provider::Provider;
use crate::provider::connect::connect;
use crate::provider::script::Scripted;
use crate::provider::settings::Settings;

/// The models of a project, each connected when it is first asked for.
#[derive(Debug)]
pub struct Configured {
    root: PathBuf,
    models: model::Models,
    connected: Mutex<HashMap<String, Arc<dyn Provider>>>,
}

impl Configured {
    /// Those of the project in a folder, whose policy names them.
    pub fn new(root: &Path, models: &model::Models) -> Self {
        Self { root: root.to_owned(), models: models.clone(), connected: Mutex::default() }
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
        // A file of replies is one list, whoever is answered from it.
        let key = config.script.as_ref().map_or_else(|| format!("model {}", config.name.value), |s| s.value.clone());
        if let Some(provider) = connected.get(&key) {
            return Ok(provider.clone());
        }
        let provider: Arc<dyn Provider> = match &config.script {
            Some(file) => Arc::new(scripted(&self.root, &file.value)?),
            None => Arc::from(connect(&Settings::from(config)).map_err(|error| error.to_string())?),
        };
        connected.insert(key, provider.clone());
        Ok(provider)
    }
}

impl Models for Configured {
    fn main(&self) -> Result<Model, String> {
        let none =
            "`.harness/harness.md` names no model: write `model: { name: ..., provider: ... }` in its front matter";
        self.models.main.as_ref().map_or_else(|| Err(none.to_owned()), |config| self.model(config))
    }

    fn profile(&self, name: &str) -> Option<Result<Model, String>> {
        self.models.all().find(|config| config.name.value == name).map(|config| self.model(config))
    }
}

/// The replies in a file of the project.
fn scripted(root: &Path, file: &str) -> Result<Scripted, String> {
    let text = ambient::read_text(&root.join(file)).map_err(|error| format!("cannot read `{file}`: {error}"))?;
    let (replies, diagnostics) = replies::parse(file, &text);
    replies.map(|replies| Scripted::new(file, replies)).ok_or_else(|| first(&diagnostics))
}

/// The first of what is wrong with it.
fn first(diagnostics: &Diagnostics) -> String {
    let told = diagnostics.iter().next().map(|diagnostic| {
        let place = diagnostic.position.as_ref().map(|position| format!("{position}: ")).unwrap_or_default();
        format!("{place}{}", diagnostic.message)
    });
    told.unwrap_or_default()
}
