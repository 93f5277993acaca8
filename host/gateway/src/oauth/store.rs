//! The file of a login: one for each server of a project, outside of the workspace, that only its owner reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::challenge::Challenge;
use crate::failure::Failure;
use crate::own;
use harness_capability::env::Variables;
use harness_sys as sys;

/// Bytes of a file.
const MAX_BYTES: usize = 256 << 10;

/// What is kept of the logins at a server.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    /// The server.
    pub(crate) url: String,
    /// Clients that were registered, by the authorization server that knows each.
    pub(crate) clients: BTreeMap<String, Identity>,
    pub(crate) tokens: Option<Tokens>,
    /// All scopes that were asked for so far.
    pub(crate) asked: Vec<String>,
    /// What the server wants that it has not got.
    pub(crate) challenge: Option<Challenge>,
}

/// A client, as an authorization server knows it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Identity {
    pub(crate) id: String,
    pub(crate) secret: Option<String>,
    /// How it shows that it is the client: `none`, `client_secret_basic` or `client_secret_post`.
    pub(crate) method: String,
    /// The port that its listener was registered with.
    pub(crate) port: u16,
}

/// The tokens of a login.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Tokens {
    pub(crate) issuer: String,
    pub(crate) token_endpoint: String,
    pub(crate) client: Identity,
    /// What the tokens are for, as the server names itself.
    pub(crate) resource: String,
    pub(crate) access: String,
    pub(crate) refresh: Option<String>,
    /// Seconds since 1970.
    pub(crate) expires: Option<u64>,
}

impl Tokens {
    /// The same without what the policy has: the password of a client that was not registered here.
    pub(crate) fn to_keep(mut self) -> Self {
        if self.client.port == 0 {
            self.client.secret = None;
        }
        self
    }
}

/// Where the file is.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    path: PathBuf,
    url: String,
}

/// Where logins are.
const LOGINS: own::Kind =
    own::Kind { variable: "XDG_STATE_HOME", below_home: ".local/state", path: "harness/mcp", what: "logins" };

/// The folder of all of them, where the host's variables name one.
pub fn folder(variables: &Variables) -> Option<PathBuf> {
    LOGINS.folder(variables)
}

impl Store {
    /// That of a server of a project.
    ///
    /// # Errors
    ///
    /// Where there is no place for it.
    pub(crate) fn of(server: &str, url: &str, workspace: &Path, variables: &Variables) -> Result<Self, Failure> {
        let folder = LOGINS.outside(workspace, variables)?;
        let digest = sys::digest::digest(&format!("{}\n{server}\n{url}", workspace.display()));
        let name: String = digest.trim_start_matches("sha256:").chars().take(32).collect();
        Ok(Self { path: folder.join(format!("{name}.json")), url: url.to_owned() })
    }

    /// What is kept, nothing where there is no file.
    ///
    /// # Errors
    ///
    /// Why the file cannot be used.
    pub(crate) fn read(&self) -> Result<Kept, Failure> {
        let empty = || Kept { url: self.url.clone(), ..Kept::default() };
        let wrong =
            |why: String| Failure::Broken(format!("the login in `{}` cannot be used: {why}", self.path.display()));
        let text = match sys::read_secret(&self.path, MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(empty()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        // What serde says may show a value.
        let kept: Kept = serde_json::from_str(&text).map_err(|_| wrong("it is not what was written".to_owned()))?;
        if kept.url == self.url { Ok(kept) } else { Err(wrong("it is of another server".to_owned())) }
    }

    /// # Errors
    ///
    /// Why it cannot be written.
    pub(crate) fn write(&self, kept: &Kept) -> Result<(), Failure> {
        let text = serde_json::to_string(kept).unwrap_or_default();
        if text.len() > MAX_BYTES {
            return Err(Failure::Broken(format!("the login cannot be kept: it has more than {MAX_BYTES} bytes")));
        }
        let wrong = |error| Failure::Broken(format!("the login cannot be kept in `{}`: {error}", self.path.display()));
        sys::private::write(&self.path, &text).map_err(wrong)
    }

    /// Removes it. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// Why it cannot be removed.
    pub(crate) fn remove(&self) -> Result<bool, Failure> {
        let wrong = |error| Failure::Broken(format!("`{}` cannot be removed: {error}", self.path.display()));
        sys::private::remove(&self.path).map_err(wrong)
    }
}
