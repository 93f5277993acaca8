//! The machine as one project sees it: clock, random numbers, variables and resolver.
//!
//! The embedder passes it when it opens the project. A project gets no variable of the process that is not passed.

use std::net::IpAddr;
use std::sync::Arc;

use super::clock::Clock;
use super::env::Variables;
use super::http::Names;
use super::random::Random;

/// The machine as one project sees it. The default has the machine's clock, random numbers and resolver, and no
/// variable.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct System {
    /// Where time comes from.
    pub clock: Arc<Clock>,
    /// Where random numbers come from.
    pub random: Arc<Random>,
    /// Where the variables are that scripts and commands may get, and that hold secrets and the keys of models.
    pub variables: Variables,
    /// Who knows the addresses of names.
    pub(crate) names: Names,
}

impl System {
    /// The same with the environment of the process, for a program that serves only the user who started it.
    #[must_use]
    pub fn with_environment(self) -> Self {
        self.with_variables(Variables::Host)
    }

    /// The same with these variables.
    #[must_use]
    pub fn with_variables(self, variables: Variables) -> Self {
        Self { variables, ..self }
    }

    /// The same with another clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// The same with other random numbers.
    #[must_use]
    pub fn with_random(self, random: Random) -> Self {
        Self { random: Arc::new(random), ..self }
    }

    /// The same with a resolver of its own. Each address that it returns is decided like those of the system: it cannot
    /// lead a script to more than the grant allows.
    #[must_use]
    pub fn with_resolver(self, names: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self { names: Names::Given(Arc::new(names)), ..self }
    }
}
