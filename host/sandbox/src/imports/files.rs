//! Files of the workspace.

use wasmtime::Result;

use super::super::price::Import;
use super::super::state::Context;
use super::{Target, cached, misplaced, on_disk};
use harness_capability::fs::{self, Workspace};
use harness_policy::refusal::Refusal;

pub(super) fn define(it: &mut Target<'_>, import: Import) -> Result<()> {
    match import {
        Import::FsRead => cached(it, import, Workspace::read_cached, Workspace::read),
        Import::FsReadBase64 => {
            on_disk(it, import, |c, (path,): (String,), _| c.workspace.read_base64(&c.grant, &path))
        }
        Import::FsWrite => on_disk(it, import, |c, (path, text): (String, String), _| {
            keeps_secrets(c, &path, &text)?;
            c.workspace.write(&c.grant, &path, &text)
        }),
        Import::FsAppend => {
            on_disk(it, import, |c, (path, text): (String, String), _| c.workspace.append(&c.grant, &path, &text))
        }
        Import::FsExists => cached(it, import, Workspace::exists_cached, Workspace::exists),
        Import::FsStat => cached(it, import, Workspace::stat_cached, Workspace::stat),
        Import::FsList => on_disk(it, import, |c, (path,): (String,), _| c.workspace.list(&c.grant, &path)),
        Import::FsGlob => on_disk(it, import, |c, (pattern,): (String,), _| c.workspace.glob(&c.grant, &pattern)),
        Import::FsRemove => on_disk(it, import, |c, (path,): (String,), _| c.workspace.remove(&c.grant, &path)),
        Import::FsMkdir => on_disk(it, import, |c, (path,): (String,), _| c.workspace.mkdir(&c.grant, &path)),
        Import::FsCopy => on_disk(it, import, |c, (from, to): (String, String), room| {
            c.workspace.copy_within(&c.grant, &from, &to, room)
        }),
        Import::FsMove => {
            on_disk(it, import, |c, (from, to): (String, String), _| c.workspace.rename(&c.grant, &from, &to))
        }
        other => misplaced(other),
    }
}

/// Whether a file still holds what a script, which read it, has only seen a note of: written back, it would be lost.
fn keeps_secrets(context: &Context, path: &str, text: &str) -> Result<(), fs::Error> {
    let vault = &context.secrets;
    let Some(name) = vault.noted(text) else { return Ok(()) };
    match context.workspace.read(&context.grant, path) {
        Ok(old) if vault.find(&old).is_some() => {
            let reason = format!("the file holds the secret `{name}`, and the new text a note in its place");
            Err(fs::Error::AccessDenied(Refusal::always(reason).into()))
        }
        _ => Ok(()),
    }
}
