//! Changes that clients are notified of: which tools, prompts and resources there are, and the content of resources that a
//! client has subscribed to.
//!
//! Nothing is queued: each change raises a number, and a client that was busy sees later that it is another one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_dispatch::Loaded;
use harness_policy::grant::Grant;
use harness_policy::resource::skill_uri;
use harness_sys::digest::digest;
use rmcp::model::{Prompt, Resource, ResourceTemplate, SubscriptionFilter, Tool};
use tokio::sync::watch;

use crate::acts::{PROMPT, READ, is_allowed};
use crate::catalog::Catalog;
use crate::files::Files;
use crate::prompts::Prompts;
use crate::resources::{self, PROSE, Source};

/// Resources that one client is notified of: each listening request, or over standard input each client.
pub(crate) const MAX_SUBSCRIBED: usize = 64;
/// Requests to listen that were accepted and have not begun.
const MAX_PENDING: usize = 64;

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Which tools there are, or a definition.
    Tools,
    /// Which prompts there are, or what is said of one.
    Prompts,
    /// Which resources or templates there are, or what is said of one.
    Resources,
    /// The content of the resource with this URI.
    Updated(String),
}

/// How often each of them has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Counts {
    tools: u64,
    prompts: u64,
    resources: u64,
    /// Of the resources that somebody has subscribed to.
    updated: BTreeMap<String, u64>,
}

/// What clients see of a version of the project.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    tools: BTreeMap<String, Tool>,
    prompts: BTreeMap<String, Prompt>,
    resources: (BTreeMap<String, Resource>, BTreeMap<String, ResourceTemplate>),
    /// Digests of the texts and files of skills, by URI.
    skills: BTreeMap<String, String>,
}

/// Notes what changes, for those who follow it. All clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counts: watch::Sender<Counts>,
    shown: Mutex<Shown>,
    /// How many have subscribed to each resource.
    subscribed: Mutex<BTreeMap<String, usize>>,
    files: Files,
    /// Followers of requests to listen that are being acknowledged.
    pending: Mutex<VecDeque<(SubscriptionFilter, Follower)>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Changes {
    /// Takes note of the version that is in force now. Looks at the workspace.
    pub(crate) fn note(&self, loaded: &Loaded, grant: &Grant) {
        let now = Shown::of(loaded, grant);
        // Of two versions, the later one is noted last.
        let mut shown = lock(&self.inner.shown);
        let before = std::mem::replace(&mut *shown, now);
        let changed_skills: Vec<&String> = shown
            .skills
            .iter()
            .filter(|(uri, digest)| before.skills.get(*uri) != Some(digest))
            .map(|(uri, _)| uri)
            .collect();
        self.inner.counts.send_if_modified(|counts| {
            let was = counts.clone();
            counts.tools += u64::from(before.tools != shown.tools);
            counts.prompts += u64::from(before.prompts != shown.prompts);
            counts.resources += u64::from(before.resources != shown.resources);
            changed_skills.iter().for_each(|uri| counts.raise(uri));
            *counts != was
        });
    }

    /// Follows changes from here on.
    pub(crate) fn follow(&self) -> Follower {
        let mut of = self.inner.counts.subscribe();
        let seen = of.borrow_and_update().clone();
        Follower { of, seen, subscriptions: Vec::new() }
    }

    /// Subscribes to a resource until the value is dropped. None if no resource that can be read is offered under the URI.
    pub(crate) fn subscribe(&self, loaded: &Loaded, grant: &Grant, uri: &str) -> Option<Subscription> {
        let source = resources::find(loaded, uri).filter(|_| is_allowed(loaded, READ))?;
        // One that is missing may come.
        if let Source::File(path, _) = &source {
            resources::may_read(loaded, grant, path).then_some(())?;
        }
        let mut subscribed = lock(&self.inner.subscribed);
        let count = subscribed.entry(uri.to_owned()).or_insert(0);
        if *count == 0 {
            self.inner.counts.send_if_modified(|counts| {
                counts.updated.insert(uri.to_owned(), 0);
                false
            });
            if let Source::File(path, _) = &source {
                let counts = self.inner.counts.clone();
                let raise = move |uri: &str| {
                    counts.send_modify(|counts| counts.raise(uri));
                };
                self.inner.files.watch(loaded.workspace().absolute(), path, uri, raise);
            }
        }
        *count += 1;
        Some(Subscription { of: self.clone(), uri: uri.to_owned() })
    }

    fn unsubscribe(&self, uri: &str) {
        let mut subscribed = lock(&self.inner.subscribed);
        let Some(count) = subscribed.get_mut(uri) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            subscribed.remove(uri);
            self.inner.files.unwatch(uri);
            self.inner.counts.send_if_modified(|counts| {
                counts.updated.remove(uri);
                false
            });
        }
    }

    /// What of a request to listen is accepted. A follower of it waits for [`begin`](Self::begin): what changes while the
    /// request is acknowledged is not lost.
    pub(crate) fn accept(&self, loaded: &Loaded, grant: &Grant, requested: &SubscriptionFilter) -> SubscriptionFilter {
        let mut follower = self.follow();
        let uris = requested.resource_subscriptions.iter().flatten().take(MAX_SUBSCRIBED);
        follower.subscriptions = uris.filter_map(|uri| self.subscribe(loaded, grant, uri)).collect();
        let accepted: Vec<String> = follower.subscriptions.iter().map(|one| one.uri.clone()).collect();
        let mut filter = requested.clone();
        filter.resource_subscriptions = Some(accepted).filter(|uris| !uris.is_empty());
        // What the client asked for is what a filter can be intersected with.
        let filter = requested.intersection(&filter);
        let mut pending = lock(&self.inner.pending);
        pending.push_back((filter.clone(), follower));
        if pending.len() > MAX_PENDING {
            pending.pop_front();
        }
        filter
    }

    /// The follower of a request that was accepted with this filter.
    pub(crate) fn begin(&self, accepted: &SubscriptionFilter) -> Follower {
        let mut pending = lock(&self.inner.pending);
        let at = pending.iter().position(|(filter, _)| filter == accepted);
        at.and_then(|at| pending.remove(at)).map_or_else(|| self.follow(), |(_, follower)| follower)
    }
}

impl Counts {
    /// The content of a resource changed. Nothing if nobody has subscribed to it.
    fn raise(&mut self, uri: &str) {
        if let Some(count) = self.updated.get_mut(uri) {
            *count += 1;
        }
    }

    /// What has changed since then.
    fn since(&self, before: &Self) -> Vec<Change> {
        let lists = [
            (self.tools != before.tools, Change::Tools),
            (self.prompts != before.prompts, Change::Prompts),
            (self.resources != before.resources, Change::Resources),
        ];
        let lists = lists.into_iter().filter(|(changed, _)| *changed).map(|(_, change)| change);
        let is_new = |(uri, count): &(&String, &u64)| **count > before.updated.get(*uri).copied().unwrap_or(0);
        let updated = self.updated.iter().filter(is_new).map(|(uri, _)| Change::Updated(uri.clone()));
        lists.chain(updated).collect()
    }
}

impl Shown {
    fn of(loaded: &Loaded, grant: &Grant) -> Self {
        let prompts = is_allowed(loaded, PROMPT).then(|| Prompts::of(loaded).listed());
        let found = is_allowed(loaded, READ)
            .then(|| (resources::list(loaded, grant).unwrap_or_default(), resources::templates(loaded)));
        let skills = resources::skills(loaded).flat_map(|skill| {
            let files = skill.files.iter().map(|file| (skill_uri(&skill.name, &file.path), file.sha256.clone()));
            files.chain([(skill_uri(&skill.name, PROSE), digest(&skill.body))])
        });
        Self {
            tools: Catalog::of(loaded).definitions().clone(),
            prompts: prompts.unwrap_or_default(),
            resources: found.unwrap_or_default(),
            skills: skills.collect(),
        }
    }
}

/// A resource that a client has subscribed to.
#[derive(Debug)]
pub(crate) struct Subscription {
    of: Changes,
    uri: String,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.of.unsubscribe(&self.uri);
    }
}

/// Sees each change once, or several of one thing as one.
#[derive(Debug)]
pub(crate) struct Follower {
    of: watch::Receiver<Counts>,
    seen: Counts,
    /// The resources that it is for.
    subscriptions: Vec<Subscription>,
}

impl Follower {
    /// Waits for the next changes. None if there will be none.
    pub(crate) async fn next(&mut self) -> Option<Vec<Change>> {
        loop {
            self.of.changed().await.ok()?;
            let now = self.of.borrow_and_update().clone();
            let changes = now.since(&self.seen);
            self.seen = now;
            if !changes.is_empty() {
                return Some(changes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_since_then() {
        let before = Counts::default();
        let mut now = Counts { tools: 1, updated: BTreeMap::from([("a:b".to_owned(), 0)]), ..Counts::default() };
        assert_eq!(now.since(&before), [Change::Tools]);
        now.raise("a:b");
        now.raise("a:c");
        assert_eq!(now.since(&before), [Change::Tools, Change::Updated("a:b".to_owned())]);
        assert_eq!(now.since(&now.clone()), []);
        // One that was subscribed to anew counts from the beginning.
        let anew = Counts { updated: BTreeMap::from([("a:b".to_owned(), 0)]), ..now.clone() };
        assert_eq!(anew.since(&now), []);
    }
}
