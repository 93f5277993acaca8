//! The record of a session: what was said, called, decided and answered, as it happened, in a file of JSON Lines.
//!
//! - [`record`]: the lines, typed
//! - [`writer`]: the file of a session, appended to as it goes
//! - [`recorder`]: writes the events of an agent and the answers of its scripts as lines
//! - [`read`]: reads a file back, whole or cut short, and the conversation in it
//! - `interrupted`: how far the turn came that a session ended in
//! - [`timeline`]: the lines as a tree of what began and ended when
//! - [`text`] and [`html`]: that tree for a terminal and as one page
//! - [`replay`]: runs a session again with what was recorded, and shows what is not the same
//!
//! What is said of each kind of line, and what a replay shows, is in `docs/sessions.md`.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::string_slice,
        reason = "tests make files and programs, and cut texts they know"
    )
)]

mod convert;
pub mod html;
mod interrupted;
pub mod read;
pub mod record;
pub mod recorder;
pub mod replay;
pub mod text;
pub mod timeline;
pub mod writer;

use harness_artifact::policy::ProjectPolicy;
use harness_dispatch::{DigestKey, Loaded, Project};
use harness_sandbox::engine::INTERPRETER;
use harness_sys as sys;
use harness_sys::digest::digest;
use record::{Header, VERSION};
use recorder::Recorder;
use time::OffsetDateTime;
use writer::Writer;

use std::path::Path;
use std::sync::Arc;

use harness_agent::Listener;

/// The folder, below the one that holds `.harness/`.
pub const FOLDER: &str = ".harness/sessions";

/// Makes the file of a session with the agent of a project in a folder. It goes away again if nothing happens.
///
/// # Errors
///
/// Why there can be no record, in one line.
pub fn create(root: &Path) -> Result<Writer, String> {
    let now = OffsetDateTime::UNIX_EPOCH + sys::since_epoch();
    let told = |error| format!("this session is not recorded: `{FOLDER}` cannot be written: {error}");
    Writer::create(&root.join(FOLDER), now).map_err(told)
}

/// Begins to record a session. `command` is what it is for, such as `run`, `resumes` the session that it resumes; what
/// is recorded is passed on to `listener` too.
pub fn begin(
    writer: Writer,
    project: &Project,
    command: &str,
    resumes: Option<&str>,
    listener: Arc<dyn Listener>,
) -> Arc<Recorder> {
    let loaded = project.loaded();
    let header = Header {
        id: writer.id().to_owned(),
        started: writer.began().to_owned(),
        command: command.to_owned(),
        resumes: resumes.map(str::to_owned),
        digest_key: Some(DigestKey::random().text().to_owned()),
        ..header(&loaded)
    };
    Arc::new(Recorder::to_file(writer, header, loaded.secrets().clone(), listener))
}

/// The digest of the policy and the artifacts that a project has now.
pub fn digest_of_artifacts(project: &Project) -> String {
    let header = header(&project.loaded());
    digest(&serde_json::json!([header.policy, header.artifacts]).to_string())
}

/// What a record says at its top of a project as it is now.
fn header(loaded: &Loaded) -> Header {
    let policy: &ProjectPolicy = loaded.policy();
    let sources = loaded.registry().sources();
    let main = policy.models.main.as_ref();
    Header {
        version: VERSION,
        id: String::new(),
        started: String::new(),
        harness: env!("CARGO_PKG_VERSION").to_owned(),
        interpreter: INTERPRETER.to_owned(),
        command: String::new(),
        resumes: None,
        model: main.map(|model| model.name.value.clone()),
        provider: main.map(|model| model.provider.value.word().to_owned()),
        policy: sources.get(&*policy.project.origin.file).map(|text| digest(text)),
        digest_key: None,
        artifacts: sources.iter().map(|(file, text)| (file.clone(), digest(text))).collect(),
    }
}
