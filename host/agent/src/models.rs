//! The models of a project, by name.

use std::fmt::Debug;
use std::sync::Arc;

use super::listener::{AgentEvent, Listener};
use harness_provider::Provider;

/// The models of a project.
pub trait Models: Debug + Send + Sync {
    /// Returns the model of the root.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is none, and the line to write.
    fn main(&self) -> Result<Model, String>;

    /// Returns the model of a profile, or `None` if no profile has the name.
    fn profile(&self, name: &str) -> Option<Result<Model, String>>;
}

/// Models that report to the listener if one is unavailable.
#[derive(Debug)]
pub(super) struct Watched {
    models: Arc<dyn Models>,
    listener: Arc<dyn Listener>,
}

impl Watched {
    pub(super) fn new(models: Arc<dyn Models>, listener: Arc<dyn Listener>) -> Self {
        Self { models, listener }
    }

    fn watch(&self, model: Option<&str>, had: Result<Model, String>) -> Result<Model, String> {
        had.inspect_err(|error| self.listener.notify(&AgentEvent::NoModel { model, error }))
    }
}

impl Models for Watched {
    fn main(&self) -> Result<Model, String> {
        self.watch(None, self.models.main())
    }

    fn profile(&self, name: &str) -> Option<Result<Model, String>> {
        Some(self.watch(Some(name), self.models.profile(name)?))
    }
}

/// A model and the settings of its requests.
#[derive(Debug, Clone)]
pub struct Model {
    /// The name at its service.
    pub name: String,
    /// Its service.
    pub provider: Arc<dyn Provider>,
    /// The maximum number of tokens of a reply.
    pub max_tokens: Option<u64>,
    /// The sampling temperature, from 0 to 2.
    pub temperature: Option<f64>,
    /// The maximum number of tokens of a request and its reply, if it is configured.
    pub context_tokens: Option<u64>,
}

impl Model {
    /// The model of a name: a profile, or another model of the same service.
    ///
    /// # Errors
    ///
    /// Those of the profile.
    pub(super) fn named(&self, name: &str, models: &dyn Models) -> Result<Self, String> {
        if name == self.name {
            return Ok(self.clone());
        }
        models.profile(name).unwrap_or_else(|| Ok(Self { name: name.to_owned(), context_tokens: None, ..self.clone() }))
    }
}
