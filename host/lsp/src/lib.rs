//! The language server: what an editor shows of the artifacts of a project, over the Language Server Protocol.
//!
//! [`serve`] reads messages from a client, usually standard input, until it ends. It does what [`Checks`] does and
//! nothing else: it loads projects with the texts that the client has not saved, and runs test cases in the sandbox. A
//! project that was opened in an editor gets no more than `harness validate` gives it.
//!
//! Nothing that a client or a project sends is trusted: messages, documents and their number have bounds.
//!
//! - `frame`, `message`: bytes from and for the client, and the envelopes in them
//! - `server`: the messages in their order, from the first to the last
//! - `session`: documents and projects of a client, and what it gets to see of them
//! - `answers`: the answers to requests
//! - `check`: problems of projects, found in the background
//! - `document`, `uri`: texts of the client, positions in them, and their paths
//! - `cursor`: where in an artifact a position is
//! - `shapes`: the part of a schema that is about a path of keys
//! - `script`: what is before a position in a script
//! - `complete`, `hover`, `define`, `lens`, `fix`: one feature each
//! - [`hint`]: rules of a policy that hints ask for

mod answers;
mod check;
mod complete;
mod cursor;
mod define;
mod document;
mod fix;
mod frame;
pub mod hint;
mod hover;
mod lens;
mod message;
mod script;
mod server;
mod session;
mod shapes;
mod uri;

use std::io::{BufRead, Write};
use std::path::Path;

use harness_artifact::diagnostic::Diagnostics;
use harness_registry::{Registry, Unsaved};
use serde::{Deserialize, Serialize};

/// What the server asks of the program that it is a part of.
pub trait Checks: Sync {
    /// Loads the project in a folder.
    fn load(&self, root: &Path, unsaved: &Unsaved) -> Registry;

    /// Everything that is wrong with a project, what loading found too.
    ///
    /// # Errors
    ///
    /// Why it could not be checked.
    fn problems(&self, root: &Path, registry: &Registry) -> Result<Diagnostics, String>;

    /// Runs cases of an artifact in the sandbox.
    ///
    /// # Errors
    ///
    /// Why they could not be run.
    fn run_cases(&self, root: &Path, unsaved: &Unsaved, wanted: &Cases) -> Result<Vec<CaseResult>, String>;
}

/// Cases of one artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// `tool` or `hook`.
    pub kind: String,
    /// Its name; of one that is an agent's own, `AGENT/NAME`.
    pub name: String,
    /// The name of the one case; all of them if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub case: String,
    /// What is not as expected, lines of text. A case without any has passed.
    pub differences: Vec<String>,
}

/// How a session with a client ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The client asked for it, as the protocol says.
    Asked,
    /// The client went away.
    Gone,
    /// What it sent cannot be followed.
    Broken(String),
}

/// Serves a client until it ends the session.
pub fn serve(input: impl BufRead + Send + 'static, output: impl Write, checks: &dyn Checks) -> Ended {
    server::run(input, output, checks)
}
