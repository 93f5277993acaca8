//! Asks again what failed for a moment.

use std::time::Duration;

use super::{Abilities, Delta, Pending, Provider, ProviderError, Reply, Request};
use harness_artifact::model::Retry;
use harness_sys as sys;

/// The longest pause that a service is granted. One that asks for more is not asked again: who waits for the reply
/// should know.
pub const LONGEST_ASKED: Duration = Duration::from_secs(120);

/// How much shorter than planned a pause may be, so that what failed together does not come back together.
const SPREAD: f64 = 0.25;

/// The pause after so many failures, before it is spread.
fn planned(retry: &Retry, failures: u32) -> Duration {
    let multiplier = if retry.multiplier >= 1.0 { retry.multiplier } else { 2.0 };
    let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
    let seconds = retry.initial_backoff.as_secs_f64() * multiplier.powi(exponent);
    Duration::try_from_secs_f64(seconds).map_or(retry.max_backoff, |pause| pause.min(retry.max_backoff))
}

/// A provider that asks again.
#[derive(Debug)]
pub struct Retrying<P> {
    inner: P,
    retry: Retry,
    /// From 0 to 1.
    chance: fn() -> f64,
}

impl<P> Retrying<P> {
    /// Asks this provider, again if it has to.
    pub fn new(inner: P, retry: Retry) -> Self {
        Self { inner, retry, chance: ambient_chance }
    }

    /// How long until the next attempt, if there is to be one.
    fn pause(&self, failures: u32, error: &ProviderError) -> Option<Duration> {
        if !error.is_retryable() || failures > self.retry.max_retries {
            return None;
        }
        let asked = match error {
            ProviderError::Refused { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let planned = planned(&self.retry, failures).mul_f64(1.0 - SPREAD * (self.chance)().clamp(0.0, 1.0));
        (asked <= LONGEST_ASKED).then(|| planned.max(asked))
    }
}

fn ambient_chance() -> f64 {
    let mut bytes = [0; 4];
    sys::fill_random(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

impl<P: Provider> Provider for Retrying<P> {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
    ) -> Pending<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let mut failures: u32 = 0;
            loop {
                let error = match self.inner.complete(request, &mut *heard).await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => error,
                };
                failures = failures.saturating_add(1);
                let Some(pause) = self.pause(failures, &error) else { return Err(error) };
                let (attempt, of) = (failures.saturating_add(1), self.retry.max_retries.saturating_add(1));
                heard(Delta::Retry { error: &error, pause, attempt, of });
                tokio::time::sleep(pause).await;
            }
        })
    }

    fn count<'a>(&'a self, request: &'a Request) -> Pending<'a, Option<u64>> {
        self.inner.count(request)
    }

    fn abilities<'a>(&'a self, model: &'a str) -> Pending<'a, Abilities> {
        self.inner.abilities(model)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;
    use crate::Finish;

    /// Answers with these errors in turn, and then with a reply.
    #[derive(Debug)]
    struct Failing(Mutex<Vec<ProviderError>>);

    impl Provider for Failing {
        fn complete<'a>(
            &'a self,
            request: &'a Request,
            heard: &'a mut (dyn FnMut(Delta<'_>) + Send),
        ) -> Pending<'a, Result<Reply, ProviderError>> {
            Box::pin(async move {
                heard(Delta::Text("half"));
                let mut errors = self.0.lock().unwrap();
                if errors.is_empty() {
                    let model = request.model.clone();
                    let (id, text) = (String::new(), "half".to_owned());
                    return Ok(Reply { id, model, text, calls: Vec::new(), usage: None, finish: Finish::Stop });
                }
                Err(errors.remove(0))
            })
        }

        fn abilities<'a>(&'a self, _: &'a str) -> Pending<'a, Abilities> {
            Box::pin(async { Abilities::default() })
        }
    }

    fn refused(status: u16, retry_after: Option<u64>) -> ProviderError {
        let retry_after = retry_after.map(Duration::from_secs);
        ProviderError::Refused { service: "http://x".to_owned(), status, message: "no".to_owned(), retry_after }
    }

    fn cut() -> ProviderError {
        ProviderError::Cut { service: "http://x".to_owned(), reason: "so".to_owned() }
    }

    /// How it ended, the pauses that were reported in milliseconds, and the time that passed.
    async fn run(errors: Vec<ProviderError>, retry: Retry, chance: fn() -> f64) -> (bool, Vec<u128>, u128) {
        let provider = Retrying { chance, ..Retrying::new(Failing(Mutex::new(errors)), retry) };
        let request = Request {
            model: "m".to_owned(),
            messages: Vec::new(),
            tools: Vec::new(),
            max_tokens: None,
            temperature: None,
            agent: String::new(),
        };
        let mut pauses = Vec::new();
        let start = Instant::now();
        let ended = provider
            .complete(&request, &mut |delta| {
                if let Delta::Retry { pause, .. } = delta {
                    pauses.push(pause.as_millis());
                }
            })
            .await;
        (ended.is_ok(), pauses, start.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_the_longest() {
        let errors = vec![refused(500, None), cut(), refused(429, None)];
        let retry = Retry { max_backoff: Duration::from_millis(3000), ..Retry::default() };
        assert_eq!(run(errors, retry, || 0.0).await, (true, vec![1000, 2000, 3000], 6000));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_told_when_all_attempts_failed() {
        let errors = vec![refused(503, None); 9];
        assert_eq!(run(errors.clone(), Retry::default(), || 0.0).await, (false, vec![1000, 2000, 4000], 7000));
        let none = Retry { max_retries: 0, ..Retry::default() };
        assert_eq!(run(errors, none, || 0.0).await, (false, vec![], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_will_not_change_is_not_asked_again() {
        for status in [400, 401, 403, 404, 422] {
            assert_eq!(run(vec![refused(status, None)], Retry::default(), || 0.0).await, (false, vec![], 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_says_how_long_to_wait() {
        let errors = vec![refused(429, Some(17)), refused(503, Some(0)), refused(429, Some(120))];
        assert_eq!(run(errors, Retry::default(), || 0.0).await, (true, vec![17_000, 2000, 120_000], 139_000));
        assert_eq!(run(vec![refused(429, Some(121))], Retry::default(), || 0.0).await, (false, vec![], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_spread_but_never_below_what_was_asked_for() {
        let errors = vec![cut(), refused(429, Some(2)), cut()];
        assert_eq!(run(errors, Retry::default(), || 1.0).await, (true, vec![750, 2000, 3000], 5750));
    }

    #[test]
    fn no_setting_makes_a_pause_that_is_none() {
        for multiplier in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let retry = Retry { multiplier, ..Retry::default() };
            for failures in [1, 2, 3, u32::MAX] {
                assert!(planned(&retry, failures) <= retry.max_backoff);
            }
        }
        let even = Retry { multiplier: 1.0, ..Retry::default() };
        assert_eq!(planned(&even, u32::MAX), Duration::from_secs(1));
    }
}
