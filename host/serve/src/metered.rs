//! Models whose tokens are counted as they are used, and priced, whichever agent asks them and for whichever call or run.
//!
//! A request to a model is sent while anything is left of the budgets of tokens and cost: a run that is under way exceeds them
//! by no more than its last reply.

use std::sync::Arc;

use harness_agent::{Model, Models};
use harness_policy::text::quoted;
use harness_provider::{Abilities, Delta, Form, Pending, Provider, ProviderError, Reply, Request};

use crate::budget::{Ledger, Refused, Resource};
use crate::prices::{Prices, cost};
use crate::problem::Problem;
use crate::tenants::now;

/// What the use of models is counted by.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    /// The budgets of the tenant.
    pub(crate) ledger: Arc<Ledger>,
    /// The prices of the server.
    pub(crate) prices: Arc<Prices>,
    /// Who sets the budgets, for messages.
    pub(crate) set_by: String,
}

impl Meter {
    /// Lets a request in to a model.
    async fn admit(&self, model: &str) -> Result<(), ProviderError> {
        if self.ledger.bounds(Resource::Cost) && self.prices.of(model).is_none() {
            let set_by = &self.set_by;
            return Err(ProviderError::NotAdmitted(format!(
                "the model {} has no price, and {set_by} has a budget of cost; ask the operator for a price of it in `prices` of \
                 `serve.yaml`",
                quoted(model)
            )));
        }
        let refused = self.ledger.admit_of(now(), |of| matches!(of, Resource::Tokens | Resource::Cost)).await;
        refused.map_err(|refused| {
            let why = match &refused {
                Refused::Exceeded(exceeded) => exceeded.in_full(&self.set_by),
                Refused::Store(_) => Problem::refused(&refused, now()).detail().to_owned(),
            };
            ProviderError::NotAdmitted(why)
        })
    }

    /// Counts what a reply took.
    fn spend(&self, model: &str, reply: &Reply) {
        let Some(usage) = reply.usage else { return };
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        self.ledger.spend(now(), Resource::Tokens, tokens);
        if let Some(price) = self.prices.of(model) {
            let cost = cost(price, usage);
            self.ledger.spend(now(), Resource::Cost, cost);
            self.prices.count(cost);
        }
    }
}

/// The models of a tenant.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) models: Arc<dyn Models>,
    pub(crate) meter: Meter,
}

impl Metered {
    fn counted(&self, model: Model) -> Model {
        let provider = Arc::new(Counting { provider: model.provider, meter: self.meter.clone() });
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
    meter: Meter,
}

impl Provider for Counting {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            self.meter.admit(&request.model).await?;
            let reply = self.provider.complete(request, heard).await?;
            self.meter.spend(&request.model, &reply);
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
