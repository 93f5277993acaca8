//! Which model answers whom.

use std::fmt::Debug;
use std::sync::Arc;

use super::listener::{Listener, Told};
use harness_provider::Provider;

/// The models of a project.
pub trait Models: Debug + Send + Sync {
    /// The one that the root runs on.
    ///
    /// # Errors
    ///
    /// Why there is none, and what to write.
    fn main(&self) -> Result<Model, String>;

    /// The profile of a name, where there is one.
    fn profile(&self, name: &str) -> Option<Result<Model, String>>;
}

/// Models of which whoever watches is told where one cannot be had.
#[derive(Debug)]
pub(super) struct Watched {
    models: Arc<dyn Models>,
    listener: Arc<dyn Listener>,
}

impl Watched {
    pub(super) fn new(models: Arc<dyn Models>, listener: Arc<dyn Listener>) -> Self {
        Self { models, listener }
    }

    fn told(&self, model: Option<&str>, had: Result<Model, String>) -> Result<Model, String> {
        had.inspect_err(|error| self.listener.told(&Told::NoModel { model, error }))
    }
}

impl Models for Watched {
    fn main(&self) -> Result<Model, String> {
        self.told(None, self.models.main())
    }

    fn profile(&self, name: &str) -> Option<Result<Model, String>> {
        Some(self.told(Some(name), self.models.profile(name)?))
    }
}

/// A model, and how it is asked.
#[derive(Debug, Clone)]
pub struct Model {
    /// What its service calls it.
    pub name: String,
    /// Its service.
    pub provider: Arc<dyn Provider>,
    /// Most tokens of a reply.
    pub max_tokens: Option<u64>,
    /// From 0 to 2.
    pub temperature: Option<f64>,
    /// Most tokens of a request and its reply, where it is known without asking.
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
