//! Logins at servers: tokens that the operator has got with `harness mcp login`. They are kept in a file, renewed, sent to
//! the server that they are for, and to nobody else.

pub(crate) mod asker;
pub(crate) mod challenge;
mod discovery;
mod flow;
mod listener;
mod login;
pub(crate) mod store;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value as Json;
use url::Url;

use self::asker::Asker;
use self::challenge::Challenge;
pub use self::login::{LoggedIn, Prompt, login, logout};
pub use self::store::folder;
use self::store::{Kept, Store, Tokens};
use crate::failure::Failure;
use harness_artifact::policy::mcp::{OAuth, Registered};
use harness_capability::secrets::{Given, Vault};
use harness_policy::layer::{Origin, Scope};
use harness_policy::refusal::Refusal;
use harness_policy::secret::{Holder, Secret};

/// Seconds before the end of a token at which it is renewed.
const EARLY: u64 = 30;

/// Tokens and passwords that are looked for in what a server says, the newest.
const SHOWN: usize = 16;

/// The login at one server.
pub(crate) struct Login {
    /// The server's name in the policy.
    pub(crate) server: String,
    pub(crate) url: Url,
    pub(crate) settings: OAuth,
    /// The password of the client that the policy names.
    pub(crate) secret: Option<String>,
    pub(crate) store: Store,
    pub(crate) asker: Asker,
    /// What the file had when it was last read or written. None: it was not read yet.
    kept: tokio::sync::Mutex<Option<Kept>>,
    /// The tokens that were in use, which nothing shows.
    shown: Mutex<(Vec<String>, Arc<Vault>)>,
}

/// Without what is kept.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Login {
    pub(crate) fn new(
        (server, url): (&str, &Url),
        (settings, secret): (&OAuth, Option<String>),
        store: Store,
        asker: Asker,
    ) -> Self {
        let (server, url, settings) = (server.to_owned(), url.clone(), settings.clone());
        let (kept, shown) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { server, url, settings, secret, store, asker, kept, shown }
    }

    /// The token to send; none where nobody is logged in.
    ///
    /// # Errors
    ///
    /// Why the file cannot be used, or the token not be renewed.
    pub(crate) async fn token(&self) -> Result<Option<String>, Failure> {
        let mut kept = self.kept.lock().await;
        let kept = match &mut *kept {
            Some(kept) => kept,
            none => none.insert(self.store.read()?),
        };
        let now = harness_sys::since_epoch().as_secs();
        let is_old = |tokens: &Tokens| tokens.expires.is_some_and(|end| end <= now.saturating_add(EARLY));
        if kept.tokens.as_ref().is_some_and(is_old) {
            self.renew(kept).await?;
        }
        let token = kept.tokens.as_ref().map(|tokens| tokens.access.clone());
        self.hide(kept);
        Ok(token)
    }

    /// Gets another token instead of one that the server does not take. False where there is none to be had.
    ///
    /// # Errors
    ///
    /// As for [`token`](Self::token).
    pub(crate) async fn replace(&self, token: &str) -> Result<bool, Failure> {
        let mut kept = self.kept.lock().await;
        let other = |kept: &Kept| kept.tokens.as_ref().is_some_and(|tokens| tokens.access != token);
        if kept.as_ref().is_some_and(other) {
            return Ok(true);
        }
        // Another process may have renewed it, and with that have ended this one.
        let kept = kept.insert(self.store.read()?);
        if other(kept) {
            return Ok(true);
        }
        self.renew(kept).await?;
        Ok(other(kept))
    }

    /// Keeps what the server wants, for the next login. Returns the failure of the request.
    pub(crate) async fn wanted(&self, status: u16, challenge: Challenge) -> Failure {
        let mut kept = self.kept.lock().await;
        let written = self.store.read().and_then(|mut now| {
            now.challenge = Some(challenge.clone());
            self.store.write(&now)?;
            *kept = Some(now);
            Ok(())
        });
        // Where it cannot be kept, the next login finds out again what is wanted.
        drop(written);
        let what = match (status, challenge.scopes.join(" ")) {
            (401, _) => "wants a login".to_owned(),
            (_, scopes) if scopes.is_empty() => "wants a login that allows more".to_owned(),
            (_, scopes) => format!("wants a login that allows `{scopes}`"),
        };
        let reason = format!("`{}` {what} (HTTP status {status})", self.url);
        Refusal::new(reason, format!("log in with `harness mcp login {}`", self.server)).into()
    }

    /// Replaces tokens in what a server says.
    pub(crate) fn redact(&self, said: &mut Json) {
        self.vault().redact_json(said);
    }

    /// The same in a text.
    pub(crate) fn redact_text(&self, said: &mut String) {
        self.vault().redact(said);
    }

    fn vault(&self) -> Arc<Vault> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Hides the tokens that are kept, beside those that were.
    fn hide(&self, kept: &Kept) {
        let tokens = kept.tokens.iter().flat_map(|tokens| std::iter::once(&tokens.access).chain(&tokens.refresh));
        let clients = kept.clients.values().chain(kept.tokens.iter().map(|tokens| &tokens.client));
        let secrets = clients.filter_map(|client| client.secret.as_ref());
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (values, vault) = &mut *shown;
        // Those in use are the newest, and of them the tokens.
        let used: Vec<String> = secrets.chain(tokens).cloned().collect();
        let has_new = used.iter().any(|value| !values.contains(value));
        values.retain(|value| !used.contains(value));
        values.extend(used);
        // An authorization server may give new ones again and again.
        let old = values.len().saturating_sub(SHOWN);
        values.drain(..old);
        if has_new {
            let secret = |value: &String| {
                let origin = Origin::new("", Scope::Default);
                let holder = Holder::Variable(String::new());
                let (hosts, exec, name) = (Vec::new(), Vec::new(), format!("login of {}", self.server));
                (Secret { name, holder, hosts, exec, origin }, Given::text(value))
            };
            *vault = Arc::new(Vault::of(values.iter().map(secret).collect()));
        }
    }

    /// Renews the tokens, where that can be done. Where the authorization server refuses, there are none any more.
    async fn renew(&self, kept: &mut Kept) -> Result<(), Failure> {
        self.hide(kept);
        // Another process may have renewed them, logged in again, or logged out.
        let now = self.store.read()?;
        if now.tokens != kept.tokens {
            *kept = now;
            return Ok(());
        }
        *kept = now;
        let Some(mut tokens) = kept.tokens.clone() else { return Ok(()) };
        // The password of the policy's client is not kept.
        let is_own = |client: &Registered| client.id == tokens.client.id && client.issuer == tokens.issuer;
        if tokens.client.port == 0 {
            tokens.client.secret = self.secret.clone().filter(|_| self.settings.client.as_ref().is_some_and(is_own));
        }
        let Some(refresh) = &tokens.refresh else { return Ok(()) };
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
            ("resource", tokens.resource.as_str()),
        ];
        let endpoint = asker::safe(&tokens.token_endpoint, "the token endpoint")?;
        let (status, answer) = flow::ask_for_token(&self.asker, &endpoint, &tokens.client, &fields).await?;
        match flow::read_tokens(status, &answer, &tokens) {
            Ok(new) => kept.tokens = Some(Tokens { refresh: new.refresh.or(tokens.refresh), ..new }.to_keep()),
            Err(failure) => {
                // Another process may have renewed them meanwhile, and with that have ended these.
                let now = self.store.read()?;
                if now.tokens != kept.tokens {
                    *kept = now;
                    return Ok(());
                }
                // The server's trouble is no end of a login.
                if !flow::is_over(&answer) {
                    return Err(failure);
                }
                kept.tokens = None;
            }
        }
        self.hide(kept);
        self.store.write(kept)
    }

    /// Replaces tokens in the failure of a request.
    pub(crate) fn redact_failure(&self, mut failure: Failure) -> Failure {
        match &mut failure {
            Failure::Broken(why) | Failure::Said(why) => self.redact_text(why),
            Failure::Refused { refusal, difference } => {
                self.redact_text(&mut refusal.reason);
                self.redact_text(&mut refusal.hint);
                difference.iter_mut().for_each(|text| self.redact_text(text));
            }
        }
        failure
    }
}
