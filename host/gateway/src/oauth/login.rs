//! `harness mcp login` and `logout`.

use std::time::Duration;

use super::Login;
use super::asker::shown;
use super::challenge::{Challenge, MAX_SCOPES};
use super::discovery::{self, Issuer, Resource};
use super::flow;
use super::listener::Listener;
use super::store::{Identity, Tokens};
use crate::failure::Failure;
use crate::packages::Fetch;
use crate::process::{self, Host};
use harness_artifact::policy::mcp::McpServer;

/// How long a login may take.
const TIME: Duration = Duration::from_secs(600);
/// How often a server may want more at one login.
const ROUNDS: u32 = 3;

/// Shows the address to open in a browser.
pub trait Prompt: Sync + std::fmt::Debug {
    /// `url` leads to the authorization server `issuer`.
    fn open(&self, issuer: &str, url: &str);
}

/// What a login came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedIn {
    /// There is a new login.
    Now,
    /// The server takes what it is sent already.
    Already,
}

/// Logs in at a server, as often as it wants more. `port` is that of the listener that the browser comes back to; 0 is any.
///
/// # Errors
///
/// Why nobody is logged in.
pub async fn login(server: &McpServer, host: Host<'_>, port: u16, prompt: &dyn Prompt) -> Result<LoggedIn, Failure> {
    let login = process::login_of(server, &host)?.ok_or_else(|| no_login(server))?;
    let mut done = LoggedIn::Already;
    for _ in 0..=ROUNDS {
        if login.store.read()?.challenge.is_none() {
            match process::read(server, None, Fetch::Missing, host).await {
                Ok(_) => return Ok(done),
                Err(failure) if login.store.read()?.challenge.is_none() => return Err(failure),
                Err(_) => {}
            }
        }
        let before = login.store.read()?;
        let challenge = before.challenge.unwrap_or_default();
        let has_all = challenge.scopes.iter().all(|scope| before.asked.contains(scope));
        if done == LoggedIn::Now && has_all {
            let what = "the server does not take the token that its authorization server has issued";
            return Err(Failure::Broken(what.to_owned()));
        }
        tokio::time::timeout(TIME, login.once(&challenge, port, prompt)).await.unwrap_or_else(|_| {
            Err(Failure::Broken(format!("nobody has logged in within {} seconds", TIME.as_secs())))
        })?;
        done = LoggedIn::Now;
    }
    Err(Failure::Broken(format!("the server wants more after {ROUNDS} logins")))
}

/// Forgets a login. Returns whether there was one.
///
/// # Errors
///
/// Why it cannot be forgotten.
pub fn logout(server: &McpServer, host: Host<'_>) -> Result<bool, Failure> {
    process::login_of(server, &host)?.ok_or_else(|| no_login(server))?.store.remove()
}

fn no_login(server: &McpServer) -> Failure {
    Failure::Broken(format!("nobody logs in there: `mcp.servers.{}` has no `oauth`", server.name))
}

impl Login {
    /// Logs in once, for what the server wants.
    async fn once(&self, challenge: &Challenge, port: u16, prompt: &dyn Prompt) -> Result<(), Failure> {
        let resource = discovery::resource(&self.asker, &self.url, challenge).await?;
        let name = self.issuer_of(&resource)?;
        let issuer = discovery::issuer(&self.asker, &name, resource.is_described).await?;
        let mut kept = self.store.read()?;
        let known = kept.clients.get(&issuer.name).cloned();
        let listener = match &known {
            Some(known) if port == 0 => match Listener::bind(known.port).await {
                Ok(listener) => listener,
                Err(_) => Listener::bind(0).await?,
            },
            _ => Listener::bind(port).await?,
        };
        let client = self.client(&issuer, known, listener.port).await?;
        let scopes = self.scopes(challenge, &resource, &issuer, &kept.asked);
        let (state, verifier) = (flow::random(), flow::random());
        let redirect = flow::redirect(listener.port);
        let mut address = issuer.authorization.clone();
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", &redirect)
            .append_pair("code_challenge", &flow::code_challenge(&verifier))
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", &state)
            .append_pair("resource", &resource.name);
        if !scopes.is_empty() {
            address.query_pairs_mut().append_pair("scope", &scopes.join(" "));
        }
        // The browser goes where requests of the host may go.
        self.asker.may_open(&issuer.authorization)?;
        prompt.open(&issuer.name, address.as_str());
        let code = listener.returned(&state).await.code(&issuer)?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", redirect.as_str()),
            ("code_verifier", verifier.as_str()),
            ("resource", resource.name.as_str()),
        ];
        let (status, answer) = flow::ask_for_token(&self.asker, &issuer.token, &client, &fields).await?;
        let about = Tokens {
            issuer: issuer.name.clone(),
            token_endpoint: issuer.token.to_string(),
            client: client.clone(),
            resource: resource.name,
            ..Tokens::default()
        };
        kept.tokens = Some(flow::read_tokens(status, &answer, &about)?.to_keep());
        if client.port != 0 {
            kept.clients.insert(issuer.name, client);
        }
        (kept.asked, kept.challenge) = (scopes, None);
        self.store.write(&kept)
    }

    /// The authorization server to ask: that which knows the client of the policy, else the first.
    fn issuer_of(&self, resource: &Resource) -> Result<String, Failure> {
        let first = resource.issuers.first().cloned().unwrap_or_default();
        let Some(client) = &self.settings.client else { return Ok(first) };
        let is_own = |name: &&String| **name == client.issuer;
        resource.issuers.iter().find(is_own).cloned().ok_or_else(|| {
            let (named, own) = (shown(&first), shown(&client.issuer));
            Failure::Broken(format!("the authorization server is {named}, and `oauth.client_id` is of {own}"))
        })
    }

    /// The client: that of the policy, a document, one that was registered, or a new one.
    async fn client(&self, issuer: &Issuer, known: Option<Identity>, port: u16) -> Result<Identity, Failure> {
        if let Some(client) = &self.settings.client {
            let (id, secret) = (client.id.clone(), self.secret.clone());
            let method = flow::method(issuer, secret.is_some());
            return Ok(Identity { id, secret, method, port: 0 });
        }
        if let (Some(document), true) = (&self.settings.client_metadata, issuer.reads_documents) {
            return Ok(Identity { id: document.clone(), secret: None, method: "none".to_owned(), port: 0 });
        }
        if let Some(known) = known.filter(|known| known.port == port) {
            return Ok(known);
        }
        match &issuer.registration {
            Some(at) => flow::register(&self.asker, issuer, at, port).await,
            None => {
                let what = format!("{} registers no clients", shown(&issuer.name));
                Err(Failure::Broken(format!("{what}: name one in `oauth.client_id` and `oauth.issuer`")))
            }
        }
    }

    /// The scopes to ask for: what is wanted now, what was asked for before, and what the policy names.
    fn scopes(&self, challenge: &Challenge, resource: &Resource, issuer: &Issuer, asked: &[String]) -> Vec<String> {
        let wanted = if challenge.scopes.is_empty() { &resource.scopes } else { &challenge.scopes };
        let offline = "offline_access".to_owned();
        let offline = issuer.scopes.contains(&offline).then_some(&offline);
        let mut scopes: Vec<String> = Vec::new();
        for scope in wanted.iter().chain(asked).chain(&self.settings.scopes).chain(offline) {
            if !scopes.contains(scope) && scopes.len() < MAX_SCOPES {
                scopes.push(scope.clone());
            }
        }
        scopes
    }
}
