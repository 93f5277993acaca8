//! What the grant of a call says of the imports that need no further rule, and the way back into dispatch.

use std::sync::Arc;

use super::State;
use harness_capability::reentry::Reentry;
use harness_capability::{agents, ask, cache, meta, metrics, observe, tasks, turn};
use harness_policy::grant::Grant;
use harness_policy::layer::Service;
use harness_policy::refusal::Refusal;

impl State {
    pub(super) fn grant(&self) -> &Grant {
        &self.context.grant
    }

    pub(super) fn granted(&self, service: Service) -> Result<(), Refusal> {
        self.context.grant.decide_service(service)
    }

    /// Whether `meta` is granted, and the way to it.
    pub(super) fn meta(&self) -> (Result<(), meta::Error>, Result<Arc<dyn Reentry>, meta::Error>) {
        let granted = self.granted(Service::Meta).map_err(|refusal| meta::Error::AccessDenied(refusal.into()));
        let none = || meta::Error::Invalid("nothing in this run can be called or added to".to_owned());
        (granted, self.context.reentry.clone().ok_or_else(none))
    }

    /// Whether agents are granted, and the way to them.
    pub(super) fn agents(&self) -> (Result<(), agents::Error>, Result<Arc<dyn Reentry>, agents::Error>) {
        let granted = self.granted(Service::Delegate).map_err(|refusal| agents::Error::AccessDenied(refusal.into()));
        let none = || agents::Error::Invalid("nothing in this run runs agents".to_owned());
        (granted, self.context.reentry.clone().ok_or_else(none))
    }

    /// Whether tasks may be asked for, which is for anyone who may start one, and the way to them.
    pub(super) fn tasks(&self) -> (Result<(), tasks::Error>, Result<Arc<dyn Reentry>, tasks::Error>) {
        let granted =
            self.granted(Service::Delegate).or_else(|refusal| self.granted(Service::Meta).map_err(|_| refusal));
        let granted = granted.map_err(|refusal| tasks::Error::AccessDenied(refusal.into()));
        let none = || tasks::Error::Invalid("nothing in this run starts tasks".to_owned());
        (granted, self.context.reentry.clone().ok_or_else(none))
    }

    /// Whether all of these may be asked.
    pub(super) fn ask_granted(&self, questions: &[ask::Asked]) -> Result<(), ask::Error> {
        let granted = |asked: &ask::Asked| self.granted(asked.question.service());
        questions.iter().try_for_each(granted).map_err(|refusal| ask::Error::AccessDenied(refusal.into()))
    }

    /// Whom the client of the call can answer for, as far as that is granted.
    pub(super) fn can_ask(&self) -> Vec<String> {
        let services = [("user", Service::AskUser), ("model", Service::AskModel), ("roots", Service::AskRoots)];
        let can = self.context.reentry.as_ref().map(|reentry| reentry.can_ask()).unwrap_or_default();
        let granted = services.into_iter().filter(|(_, service)| self.granted(*service).is_ok());
        granted.filter(|(whom, _)| can.contains(whom)).map(|(whom, _)| whom.to_owned()).collect()
    }

    /// The way to the client of the call.
    pub(super) fn client(&self) -> Result<Arc<dyn Reentry>, ask::Error> {
        let none = || ask::Error::Unavailable("nothing in this run asks anyone".to_owned());
        self.context.reentry.clone().ok_or_else(none)
    }

    /// The way to the hooks that listen.
    pub(super) fn observer(&self) -> Result<Arc<dyn Reentry>, observe::Error> {
        let none = || observe::refused("nothing in this run hears built-ins".to_owned());
        self.context.reentry.clone().ok_or_else(none)
    }

    pub(super) fn cache_granted(&self) -> Result<(), cache::Error> {
        self.granted(Service::Cache).map_err(|refusal| cache::Error::AccessDenied(refusal.into()))
    }

    /// The service `cache` grants the values of a turn, too.
    pub(super) fn turn_granted(&self) -> Result<(), turn::Error> {
        self.granted(Service::Cache).map_err(|refusal| turn::Error::AccessDenied(refusal.into()))
    }

    pub(super) fn metrics_granted(&self) -> Result<(), metrics::Error> {
        self.granted(Service::Metrics).map_err(|refusal| metrics::Error::AccessDenied(refusal.into()))
    }
}
