//! The models of a replay: each reply is the one that the record has.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::convert;
use crate::read::{Recording, calls_of};
use crate::record::{self, Asked, What};
use harness_agent::{Configured, Model, Models};
use harness_artifact::model::{self, ModelConfig};
use harness_capability::env::Variables;
use harness_provider::{Abilities, Delta, Finish, Pending, Provider, ProviderError, Reply, Request, Usage};
use harness_sandbox::strand;

/// What a model was asked, and what came of it; nothing where the session was ended before.
#[derive(Debug, Clone)]
struct Exchange {
    asked: Asked,
    ended: Option<Result<record::Reply, String>>,
}

/// The exchanges of a session.
#[derive(Debug)]
struct Kept {
    /// By strand and name of the agent, those that were not given yet.
    exchanges: Mutex<HashMap<(String, String), Vec<Exchange>>>,
    /// Most tokens of a request, by model.
    rooms: HashMap<String, u64>,
}

/// The models of a project with the replies of a record.
#[derive(Debug)]
pub(super) struct Replies {
    root: PathBuf,
    models: model::Models,
    kept: Arc<Kept>,
    /// Those that could not be had, and why: by their names, or of the project without one.
    unmade: HashMap<Option<String>, String>,
}

impl Replies {
    pub(super) fn new(root: &Path, models: &model::Models, recording: &Recording) -> Self {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut open: HashMap<&str, usize> = HashMap::new();
        let mut exchanges: HashMap<(String, String), Vec<Exchange>> = HashMap::new();
        let mut rooms = HashMap::new();
        let mut unmade = HashMap::new();
        for line in &recording.lines {
            let by = line.by.as_str();
            let agent = |names: &HashMap<&str, &str>| {
                (line.strand.clone(), names.get(by).copied().unwrap_or_default().to_owned())
            };
            let ended = match &line.what {
                What::Turn(turn) => {
                    names.insert(by, &turn.agent);
                    continue;
                }
                What::Asked(asked) => {
                    rooms.entry(asked.model.clone()).or_insert(asked.room);
                    let of_agent = exchanges.entry(agent(&names)).or_default();
                    open.insert(by, of_agent.len());
                    of_agent.push(Exchange { asked: asked.clone(), ended: None });
                    continue;
                }
                What::Unmade(one) => {
                    unmade.insert(one.model.clone(), one.error.clone());
                    continue;
                }
                What::Reply(reply) => Ok(reply.clone()),
                What::Unanswered(failed) => Err(failed.error.clone()),
                _ => continue,
            };
            let of_agent = exchanges.get_mut(&agent(&names));
            let exchange = open.remove(by).and_then(|at| of_agent?.get_mut(at));
            if let Some(exchange) = exchange {
                exchange.ended = Some(ended);
            }
        }
        let kept = Kept { exchanges: Mutex::new(exchanges), rooms };
        Self { root: root.to_owned(), models: models.clone(), kept: Arc::new(kept), unmade }
    }

    fn model(&self, name: Option<&str>, config: &ModelConfig) -> Result<Model, String> {
        if let Some(error) = self.unmade.get(&name.map(str::to_owned)) {
            return Err(error.clone());
        }
        Ok(Model {
            name: config.name.value.clone(),
            provider: self.kept.clone(),
            max_tokens: config.max_tokens.as_ref().map(|most| most.value),
            temperature: config.temperature.as_ref().map(|value| value.value),
            context_tokens: config.context_tokens.as_ref().map(|most| most.value),
        })
    }
}

impl Models for Replies {
    fn main(&self) -> Result<Model, String> {
        match &self.models.main {
            Some(config) => self.model(None, config),
            // It says why there is none.
            None => Configured::new(&self.root, &self.models, &Variables::default()).main(),
        }
    }

    fn profile(&self, name: &str) -> Option<Result<Model, String>> {
        self.models.all().find(|config| config.name.value == name).map(|config| self.model(Some(name), config))
    }
}

impl Provider for Kept {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            match self.reply(request) {
                Some(reply) => reply,
                // Nobody waited for it then.
                None => strand::cut().await,
            }
        })
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        let context_tokens = self.rooms.get(model).or_else(|| self.rooms.values().next()).copied();
        Box::pin(async move { Abilities { tools: Some(true), context_tokens } })
    }
}

impl Kept {
    fn reply(&self, request: &Request) -> Option<Result<Reply, ProviderError>> {
        let said = convert::asked(0, request, 0).said;
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let of_agent = exchanges.get_mut(&(strand::name(), request.agent.clone())).filter(|left| !left.is_empty());
        let Some(left) = of_agent else {
            let why = "the recording has no further reply for this agent".to_owned();
            return Some(Err(ProviderError::Unusable(why)));
        };
        // Where nobody was asked just this, the next reply is as good as any.
        let at = left.iter().position(|exchange| exchange.asked.said == said).unwrap_or(0);
        left.remove(at).ended.map(|ended| match ended {
            Ok(reply) => Ok(Reply {
                id: reply.id.clone(),
                model: reply.model.clone(),
                text: reply.text.clone(),
                calls: calls_of(&reply),
                usage: reply.tokens.map(|t| Usage { input_tokens: t.input, output_tokens: t.output }),
                finish: Finish::of(&reply.finish),
            }),
            Err(error) => Err(ProviderError::Unusable(error)),
        })
    }
}
