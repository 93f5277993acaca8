//! The models of a project of which another one than its own was chosen.

use std::sync::Arc;

use harness_agent::{Model, Models};

/// Models whose main one is that of a name.
#[derive(Debug)]
pub(super) struct Chosen {
    models: Arc<dyn Models>,
    name: Option<String>,
}

impl Chosen {
    /// These, with the model of this name as the root's.
    pub(super) fn of(models: Arc<dyn Models>, name: Option<String>) -> Arc<dyn Models> {
        Arc::new(Self { models, name })
    }
}

impl Models for Chosen {
    fn main(&self) -> Result<Model, String> {
        let chosen = self.name.as_deref().and_then(|name| self.models.profile(name));
        chosen.unwrap_or_else(|| self.models.main())
    }

    fn profile(&self, name: &str) -> Option<Result<Model, String>> {
        self.models.profile(name)
    }
}
