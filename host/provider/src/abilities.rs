//! What models can do, asked once.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Abilities, Provider};

/// How long nothing is asked again where a service said nothing: it may only have been down.
const UNKNOWN: Duration = Duration::from_secs(300);

/// What services said of their models. For one run: a model of the same name may be another tomorrow, and asking is
/// cheap beside a reply.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<String, (Abilities, Instant)>>);

impl Known {
    /// What a model can do, from memory or else from the service.
    pub(super) async fn of(&self, provider: &dyn Provider, model: &str) -> Abilities {
        // Kept over the question, so that two who ask at once ask one time.
        let mut known = self.0.lock().await;
        let unknown = Abilities::default();
        match known.get(model) {
            Some((said, when)) if *said != unknown || when.elapsed() < UNKNOWN => *said,
            _ => {
                let said = provider.abilities(model).await;
                known.insert(model.to_owned(), (said, Instant::now()));
                said
            }
        }
    }

    /// Remembers that a model was refused its tools.
    pub(super) async fn without_tools(&self, model: &str) {
        let mut known = self.0.lock().await;
        let (said, _) = known.entry(model.to_owned()).or_insert_with(|| (Abilities::default(), Instant::now()));
        said.tools = Some(false);
    }
}
