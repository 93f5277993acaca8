//! Sends what is due: some at one time of each tenant, so that a slow receiver delays its own tenant alone.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use harness_store::{Expected, StoreError};

use super::send::{Message, Sender};
use super::{Attempt, BUCKET, DELIVERIES, Delivery, DeliveryState, TIMER, Webhook, address, place, sign};
use crate::problem::Problem;
use crate::record::State;
use crate::server::Server;
use crate::tenants::now;

/// Attempts at one time, of one tenant and of all.
const OF_TENANT: usize = 4;
const OF_ALL: usize = 64;
/// How often it is looked for what is due.
const TICK: Duration = Duration::from_secs(1);
/// Timers that are read at once beyond those that are in turn.
const PAGE: usize = 500;
/// Seconds between attempts: together about a day.
const PAUSES: &[u64] = &[1, 5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 28_800];
/// How long a delivery waits whose tenant is suspended, in milliseconds.
const SUSPENDED: u64 = 60_000;

/// What is due, by tenant, and what is under way.
#[derive(Debug, Default)]
struct Turns {
    /// Keys of deliveries that wait for their turn.
    waiting: HashMap<String, VecDeque<String>>,
    /// All that are in turn or under way.
    known: HashSet<String>,
    /// Attempts under way, by tenant.
    busy: HashMap<String, usize>,
    of_all: usize,
}

impl Turns {
    fn add(&mut self, key: String) {
        let Some((tenant, _)) = key.split_once('/') else { return };
        if self.known.insert(key.clone()) {
            self.waiting.entry(tenant.to_owned()).or_default().push_back(key);
        }
    }

    /// The next that may begin.
    fn take(&mut self) -> Option<(String, String)> {
        if self.of_all >= OF_ALL {
            return None;
        }
        let has_room = |tenant: &&String| self.busy.get(*tenant).is_none_or(|busy| *busy < OF_TENANT);
        // Who has the fewest under way is first.
        let tenant = self.waiting.keys().filter(has_room).min_by_key(|tenant| self.busy.get(*tenant).copied())?.clone();
        let queue = self.waiting.get_mut(&tenant)?;
        let key = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&tenant);
        }
        *self.busy.entry(tenant.clone()).or_default() += 1;
        self.of_all += 1;
        Some((tenant, key))
    }

    fn done(&mut self, tenant: &str, key: &str) {
        self.known.remove(key);
        self.of_all = self.of_all.saturating_sub(1);
        if let Some(busy) = self.busy.get_mut(tenant) {
            *busy = busy.saturating_sub(1);
            if *busy == 0 {
                self.busy.remove(tenant);
            }
        }
    }
}

/// Sends what is due, until it is dropped.
pub(crate) async fn run(server: Arc<Server>) {
    let (turns, sender) = (Arc::new(Mutex::new(Turns::default())), Arc::new(Sender::default()));
    let lock = |turns: &Mutex<Turns>| -> usize { turns.lock().unwrap_or_else(PoisonError::into_inner).known.len() };
    loop {
        let most = lock(&turns).saturating_add(PAGE);
        // What the store does not answer now is asked again.
        let due = server.tenants.store.due(now(), most).await.unwrap_or_default();
        let is_full = due.len() >= most;
        {
            let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
            for timer in due {
                if let Some(key) = timer.name.strip_prefix(TIMER) {
                    turns.add(key.to_owned());
                }
            }
        }
        loop {
            let next = turns.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((tenant, key)) = next else { break };
            let (server, sender, turns) = (server.clone(), sender.clone(), turns.clone());
            tokio::spawn(async move {
                // One that fails here keeps its timer, and is due again: not at once, since the store has failed.
                if attempt(&server, &sender, &tenant, &key).await.is_err() {
                    tokio::time::sleep(TICK).await;
                }
                turns.lock().unwrap_or_else(PoisonError::into_inner).done(&tenant, &key);
                server.webhooks.wake.notify_one();
            });
        }
        if !is_full {
            let _ = tokio::time::timeout(TICK, server.webhooks.wake.notified()).await;
        }
    }
}

/// Makes one attempt, and keeps what came of it.
async fn attempt(server: &Server, sender: &Sender, tenant: &str, key: &str) -> Result<(), Problem> {
    let store = &*server.tenants.store;
    let timer = format!("{TIMER}{key}");
    // Asked before: what ends to begin meanwhile is found.
    let is_beginning = server.webhooks.is_beginning(key);
    let found = store.get(DELIVERIES, key).await?;
    let found = found.and_then(|found| Some((found.version, serde_json::from_slice::<Delivery>(&found.value).ok()?)));
    if found.is_none() && is_beginning {
        // Its timer stays, and it is looked for again.
        return Ok(());
    }
    let waits = found.filter(|(_, delivery)| delivery.state == DeliveryState::Waiting);
    let Some(((version, mut delivery), of)) = waits.zip(server.tenants.tenant(tenant)) else {
        store.cancel_timer(&timer).await?;
        return Ok(());
    };
    if of.record().state != State::Active {
        store.set_timer(&timer, now().saturating_add(SUSPENDED), Vec::new()).await?;
        return Ok(());
    }
    let id = key.split('/').nth(1).unwrap_or_default();
    let (webhook, _) = match server.webhooks.find(store, tenant, id).await {
        Ok(found) => found,
        Err(_) => {
            store.cancel_timer(&timer).await?;
            store.delete(DELIVERIES, key, Expected::Anything).await?;
            server.webhooks.ended(tenant);
            return Ok(());
        }
    };
    let at = now();
    let came = match &webhook.disabled {
        Some(why) => Err(format!("the webhook is disabled: {why}")),
        None if of.class.webhooks == 0 => Err("the class of the tenant has no webhooks".to_owned()),
        None => send(server, sender, tenant, &of.class, &webhook, &delivery, at).await?,
    };
    let (status, error) = match came {
        Ok(status) => (Some(status), wrong(status)),
        Err(why) => (None, Some(why)),
    };
    delivery.attempts.push(Attempt { at, status, error: error.clone() });
    let is_gone = status == Some(410);
    let next = next(delivery.attempts.len(), webhook.disabled.is_some() || is_gone).filter(|_| error.is_some());
    delivery.next = next.map(|pause| at.saturating_add(with_jitter(pause)));
    delivery.state = match (&error, delivery.next) {
        (None, _) => DeliveryState::Delivered,
        (Some(_), Some(_)) => DeliveryState::Waiting,
        (Some(_), None) => DeliveryState::Failed,
    };
    let first = delivery.attempts.first().map_or(at, |first| first.at);
    // First, so that who sees what became of the attempt sees what it means for the webhook too.
    if webhook.disabled.is_none() {
        mark(server, tenant, id, error.is_none(), at, |failing_since| {
            let has_ended = delivery.state == DeliveryState::Failed;
            match (is_gone, error.as_deref()) {
                (true, _) => Some("its receiver answers that it is gone (410)".to_owned()),
                // Nothing was taken since this one was first sent, about a day ago.
                (false, Some(why)) if has_ended && failing_since <= first => {
                    Some(format!("nothing was delivered for about a day; at last: {why}"))
                }
                _ => None,
            }
        })
        .await?;
    }
    let text = super::bytes(&delivery)?;
    match delivery.next {
        Some(due) => store.set_timer(&timer, due, Vec::new()).await?,
        None => server.webhooks.ended(tenant),
    }
    match store.put(DELIVERIES, key, Expected::Version(version), text).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    if delivery.next.is_none() {
        store.cancel_timer(&timer).await?;
    }
    Ok(())
}

async fn send(
    server: &Server,
    sender: &Sender,
    tenant: &str,
    class: &crate::class::Class,
    webhook: &Webhook,
    delivery: &Delivery,
    at: u64,
) -> Result<Result<u16, String>, Problem> {
    // What the class allows may be less than when the webhook was made.
    let url = match address::checked(&webhook.url, class) {
        Ok(url) => url,
        Err(why) => return Ok(Err(why)),
    };
    let secrets = server.webhooks.secrets(server, tenant, webhook).await?;
    let at = at / 1000;
    let signature = sign::header(&secrets, &delivery.id, at, &delivery.body).ok_or_else(Problem::fault)?;
    let message = Message { id: &delivery.id, at, signature: &signature, body: &delivery.body };
    Ok(sender.send(&url, address::is_named(&url, class), &message).await.map_err(str::to_owned))
}

/// Keeps since when nothing succeeds, and why the webhook is disabled, if it is from now on.
async fn mark(
    server: &Server,
    tenant: &str,
    id: &str,
    is_success: bool,
    at: u64,
    disabled: impl Fn(u64) -> Option<String>,
) -> Result<(), Problem> {
    let store = &*server.tenants.store;
    loop {
        let Ok((mut webhook, version)) = server.webhooks.find(store, tenant, id).await else { return Ok(()) };
        let before = webhook.clone();
        if is_success {
            webhook.failing_since = None;
        } else {
            let since = *webhook.failing_since.get_or_insert(at);
            webhook.disabled = webhook.disabled.or_else(|| disabled(since));
        }
        if webhook == before {
            return Ok(());
        }
        let put = store.put(BUCKET, &place(tenant, id), Expected::Version(version), super::bytes(&webhook)?).await;
        match put {
            Err(StoreError::Conflict { .. }) => {}
            other => return Ok(other.map(|_| ())?),
        }
    }
}

/// Why a status is no success.
fn wrong(status: u16) -> Option<String> {
    match status {
        200..300 => None,
        300..400 => Some(format!("it answers {status}, and redirects are not followed")),
        _ => Some(format!("it answers {status}")),
    }
}

/// The seconds until the next attempt after so many. None: there is no other.
fn next(attempts: usize, is_over: bool) -> Option<u64> {
    PAUSES.get(attempts.checked_sub(1)?).copied().filter(|_| !is_over)
}

/// Milliseconds of a pause, and up to a tenth more: not all of what failed together is sent together.
fn with_jitter(seconds: u64) -> u64 {
    let mut random = [0; 2];
    harness_sys::fill_random(&mut random);
    let pause = seconds.saturating_mul(1_000);
    pause.saturating_add(pause.saturating_mul(u64::from(u16::from_le_bytes(random))) / 655_360)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_made_for_about_a_day() {
        let mut seconds = 0;
        let mut attempts = 1;
        while let Some(pause) = next(attempts, false) {
            (seconds, attempts) = (seconds + pause, attempts + 1);
        }
        assert_eq!((attempts, seconds), (12, 85_356));
        assert_eq!(next(1, true), None);
        assert!((0..100).map(|_| with_jitter(10)).all(|pause| (10_000..11_001).contains(&pause)));
    }

    #[test]
    fn a_tenant_has_its_part_of_the_attempts_and_no_more() {
        let mut turns = Turns::default();
        (0..10).for_each(|n| turns.add(format!("slow/wh/{n}")));
        turns.add("slow/wh/0".to_owned());
        turns.add("quick/wh/0".to_owned());
        let mut began = Vec::new();
        while let Some((tenant, _)) = turns.take() {
            began.push(tenant);
        }
        assert_eq!(began.iter().filter(|tenant| *tenant == "slow").count(), OF_TENANT);
        assert_eq!(began.len(), OF_TENANT + 1);
        turns.done("slow", "slow/wh/0");
        assert_eq!(turns.take().map(|(tenant, _)| tenant).as_deref(), Some("slow"));
        assert_eq!(turns.take(), None);
        // All tenants together have a bound too.
        (0..100).for_each(|n| turns.add(format!("t{n}/wh/0")));
        while turns.take().is_some() {}
        assert_eq!(turns.of_all, OF_ALL);
    }
}
