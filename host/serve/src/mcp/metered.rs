//! Models whose tokens are counted as they are used, whichever agent asks them.

use std::sync::Arc;

use harness_agent::{Model, Models};
use harness_provider::{Abilities, Delta, Form, Pending, Provider, ProviderError, Reply, Request};

use crate::budget::Resource;
use crate::tenant::Tenant;
use crate::tenants::now;

/// The models of a tenant.
#[derive(Debug)]
pub(super) struct Metered {
    pub(super) models: Arc<dyn Models>,
    pub(super) tenant: Arc<Tenant>,
}

impl Metered {
    fn counted(&self, model: Model) -> Model {
        let provider = Arc::new(Counting { provider: model.provider, tenant: self.tenant.clone() });
        Model { provider, ..model }
    }
}

impl Models for Metered {
    fn main(&self) -> Result<Model, String> {
        self.models.main().map(|model| self.counted(model))
    }

    fn profile(&self, name: &str) -> Option<Result<Model, String>> {
        self.models.profile(name).map(|found| found.map(|model| self.counted(model)))
    }
}

/// A service of models.
#[derive(Debug)]
struct Counting {
    provider: Arc<dyn Provider>,
    tenant: Arc<Tenant>,
}

impl Provider for Counting {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let reply = self.provider.complete(request, heard).await?;
            if let Some(usage) = reply.usage {
                let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
                self.tenant.ledger.spend(now(), Resource::Tokens, tokens);
            }
            Ok(reply)
        })
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        self.provider.abilities(model)
    }

    fn count<'a>(&'a self, request: &'a Request) -> Pending<'a, Option<u64>> {
        self.provider.count(request)
    }

    fn form<'a>(&'a self, request: &'a Request) -> Pending<'a, Form> {
        self.provider.form(request)
    }
}
