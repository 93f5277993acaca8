//! Forms of MCP servers for the person whom the run reaches: at the terminal, or at the client of `harness mcp serve`.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use harness_artifact::definition::Served;
use harness_artifact::third_party;
use harness_capability::ask::{Asked, Question};
use harness_capability::secrets::Vault;
use harness_gateway::limits::FORMS;
use harness_gateway::{Answerer, Answering, Form};
use harness_policy::layer::Service;
use harness_sandbox::ends::MAX_ANSWER;
use serde_json::{Value as Json, json};
use tokio::time::{Instant, timeout};

use super::ask::{Respondent, fits};
use super::chain::CallContext;

/// The shortest time between two looks at whether a call that waits for a person is over.
const LOOK: Duration = Duration::from_millis(10);

/// The person, for the forms of one server during one call.
#[derive(Debug)]
pub(super) struct Person<'a> {
    respondent: &'a dyn Respondent,
    secrets: &'a Vault,
    server: &'a str,
    waited: Mutex<Waited>,
    /// Forms of this call so far, by requests and by results.
    shown: AtomicUsize,
}

/// How long a person has been waited for.
#[derive(Debug, Default)]
struct Waited {
    before: Duration,
    since: Option<Instant>,
    asking: u32,
}

impl<'a> Person<'a> {
    /// None where nobody can be asked, or the project does not let its client be asked (`ask_user` in `sandbox.services`).
    pub(super) fn of(place: &'a CallContext, server: &'a str) -> Option<Self> {
        place.loaded.parts.policy.grant_for("", None).decide_service(Service::AskUser).ok()?;
        let respondent = place.run.respondent().filter(|respondent| respondent.can().contains(&"user"))?;
        let (waited, shown) = (Mutex::default(), AtomicUsize::default());
        Some(Self { respondent, secrets: &place.loaded.parts.secrets, server, waited, shown })
    }

    /// How long the call has waited for the person, which its own time does not count.
    fn waited(&self) -> Duration {
        let waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        waited.before.saturating_add(waited.since.map(|since| since.elapsed()).unwrap_or_default())
    }

    /// The question as it is shown: who asks, and what, framed, so that it cannot pass for one of the host's.
    fn question(&self, form: &Form) -> Option<Asked> {
        let schema = Json::Object(form.schema.clone());
        if self.secrets.find(&schema.to_string()).is_some() {
            return None;
        }
        let mut text = form.message.clone();
        self.secrets.redact(&mut text);
        let text = third_party::quoted(&Served::source(self.server), &text, third_party::MOST);
        let message = format!("The MCP server `{}` asks:\n{text}", self.server);
        Some(Asked { key: "form".to_owned(), question: Question::User { message, schema: form.schema.clone() } })
    }
}

/// Counts the time until it is dropped, of one form or of several at once.
struct Asking<'p, 'a>(&'p Person<'a>);

impl<'p, 'a> Asking<'p, 'a> {
    fn begin(person: &'p Person<'a>) -> Self {
        let mut waited = person.waited.lock().unwrap_or_else(PoisonError::into_inner);
        waited.asking = waited.asking.saturating_add(1);
        waited.since.get_or_insert_with(Instant::now);
        drop(waited);
        Self(person)
    }
}

impl Drop for Asking<'_, '_> {
    fn drop(&mut self) {
        let mut waited = self.0.waited.lock().unwrap_or_else(PoisonError::into_inner);
        waited.asking = waited.asking.saturating_sub(1);
        if waited.asking == 0 {
            let more = waited.since.take().map(|since| since.elapsed()).unwrap_or_default();
            waited.before = waited.before.saturating_add(more);
        }
    }
}

impl Answerer for Person<'_> {
    fn show<'s>(&'s self, form: &'s Form) -> Answering<'s> {
        Box::pin(async move {
            let declined = json!({"action": "decline"});
            let Some(question) = self.question(form) else { return declined };
            let left = MAX_ANSWER.saturating_sub(self.waited());
            if self.shown.fetch_add(1, Ordering::Relaxed) >= FORMS || left.is_zero() {
                return declined;
            }
            let _asking = Asking::begin(self);
            let questions = [question];
            let Ok(answered) = timeout(left, self.respondent.ask(&questions)).await else {
                return json!({"action": "cancel"});
            };
            let answer = answered.ok().and_then(|answers| answers.into_iter().next());
            let [Asked { question, .. }] = &questions;
            answer.filter(|answer| fits(question, answer).is_ok()).unwrap_or(declined)
        })
    }
}

/// Waits for a piece of work, for as long as this and the time in which a person is asked. None: it was not done.
pub(super) async fn within<T>(time: Duration, person: Option<&Person<'_>>, work: impl Future<Output = T>) -> Option<T> {
    within_and(time, || person.map(Person::waited).unwrap_or_default(), work).await
}

async fn within_and<T>(time: Duration, waited: impl Fn() -> Duration, work: impl Future<Output = T>) -> Option<T> {
    let (started, mut work) = (Instant::now(), pin!(work));
    let mut left = time;
    loop {
        if let Ok(done) = timeout(left, &mut work).await {
            return Some(done);
        }
        left = time.saturating_add(waited()).saturating_sub(started.elapsed());
        if left.is_zero() {
            return None;
        }
        left = left.max(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_person_may_take_longer_than_a_call() {
        let asked = Mutex::new(Duration::ZERO);
        let waited = || *asked.lock().unwrap();
        // Two seconds of its own, and ten of a person's.
        let work = async {
            sleep(SECOND).await;
            for _ in 0..10 {
                sleep(SECOND).await;
                *asked.lock().unwrap() += SECOND;
            }
            sleep(SECOND).await;
        };
        assert_eq!(within_and(SECOND * 3, waited, work).await, Some(()));
        *asked.lock().unwrap() = Duration::ZERO;
        assert_eq!(within_and(SECOND, waited, sleep(SECOND * 2)).await, None);
    }
}
