//! The answers to requests about a document.

use std::io::Write;
use std::path::{Path, PathBuf};

use lsp_types::{
    CodeActionParams, CodeLensParams, CompletionParams, GotoDefinitionParams, HoverParams, TextDocumentIdentifier,
    TextDocumentPositionParams,
};
use serde_json::{Value as Json, json};

use crate::complete::{self, Asked};
use crate::message::{self, Code, Failure};
use crate::session::{self, Document, Session};
use crate::{define, document, fix, hover, lens};

/// The answer to a request of this method.
///
/// # Errors
///
/// There is no such method, or its parameters are wrong.
pub(crate) fn of<W: Write>(session: &mut Session<'_, W>, method: &str, params: Json) -> Result<Json, Failure> {
    let found = match method {
        "textDocument/completion" => {
            let params: CompletionParams = message::params(params)?;
            asked(session, &params.text_document_position, false, |asked, _| {
                let items = complete::at(asked);
                Some(json!({"isIncomplete": items.len() >= complete::MOST, "items": items}))
            })
        }
        "textDocument/hover" => {
            let params: HoverParams = message::params(params)?;
            asked(session, &params.text_document_position_params, false, |asked, _| Some(json!(hover::at(asked)?)))
        }
        "textDocument/definition" => {
            let params: GotoDefinitionParams = message::params(params)?;
            asked(session, &params.text_document_position_params, true, definition)
        }
        "textDocument/codeLens" => {
            let params: CodeLensParams = message::params(params)?;
            lenses(session, &params.text_document)
        }
        "textDocument/codeAction" => {
            let params: CodeActionParams = message::params(params)?;
            fixes(session, &params)
        }
        _ => return Err(Failure::new(Code::MethodNotFound, format!("there is no method {method:?}"))),
    };
    Ok(found.unwrap_or_default())
}

/// Where an answer looks for what it needs.
struct Around<'s> {
    root: &'s Path,
    uri_of: &'s dyn Fn(&Path) -> Option<lsp_types::Uri>,
}

/// Answers about a position in an open document.
fn asked<W: Write>(
    session: &mut Session<'_, W>,
    at: &TextDocumentPositionParams,
    must_be_fresh: bool,
    answer: impl Fn(&Asked<'_>, &Around<'_>) -> Option<Json>,
) -> Option<Json> {
    let (path, open) = found(session, &at.text_document)?;
    let registry = open.root.as_ref().map(|root| session.registry(root, must_be_fresh));
    let offset = document::offset(&open.text, at.position);
    let asked = Asked { path: &path, text: &open.text, offset, registry: registry.as_deref() };
    let around = Around { root: open.root.as_deref().unwrap_or(&path), uri_of: &|path| session.uri_of(path) };
    answer(&asked, &around)
}

fn found<W: Write>(session: &Session<'_, W>, of: &TextDocumentIdentifier) -> Option<(PathBuf, Document)> {
    let (path, document) = session.document(&of.uri)?;
    Some((path, document.clone()))
}

/// Where the artifacts are that are named at a position.
fn definition(asked: &Asked<'_>, around: &Around<'_>) -> Option<Json> {
    let registry = asked.registry?;
    let locations = define::at(asked)?.found.into_iter().filter_map(|artifact| {
        let path = around.root.join(&*artifact.at.file);
        let uri = (around.uri_of)(&path)?;
        let text = registry.sources().get(&*artifact.at.file)?;
        Some(json!({"uri": uri, "range": document::range_of(text, &artifact.at)}))
    });
    Some(locations.collect())
}

fn lenses<W: Write>(session: &mut Session<'_, W>, of: &TextDocumentIdentifier) -> Option<Json> {
    let (path, open) = found(session, of)?;
    let root = open.root?;
    let registry = session.registry(&root, true);
    let file = path.strip_prefix(&root).ok()?.to_str()?;
    Some(json!(lens::of(&registry, file, &open.uri, &open.text)))
}

/// Quick fixes of the problems in a range.
fn fixes<W: Write>(session: &mut Session<'_, W>, params: &CodeActionParams) -> Option<Json> {
    let (path, open) = found(session, &params.text_document)?;
    let root = open.root?;
    let registry = session.registry(&root, false);
    let file = path.strip_prefix(&root).ok()?.to_str()?;
    let project = session.project(&root)?;
    // What was found in another text may be elsewhere by now.
    if project.versions.get(&path) != Some(&open.version) {
        return Some(json!([]));
    }
    let mut actions: Vec<Json> = Vec::new();
    for problem in &project.problems {
        let Some(at) = problem.position.as_ref().filter(|at| &*at.file == file) else { continue };
        let range = document::range_of(&open.text, at);
        if range.end < params.range.start || range.start > params.range.end {
            continue;
        }
        let Some(fix) = fix::of(problem, &open.text, |other| session.text_of(&root, other, &registry)) else {
            continue;
        };
        let (uri, text) = match &fix.file {
            None => (open.uri.clone(), &*open.text),
            Some(other) => {
                let (Some(uri), Some(text)) =
                    (session.uri_of(&root.join(other)), session.text_of(&root, other, &registry))
                else {
                    continue;
                };
                (uri, text)
            }
        };
        let edit = json!({"range": document::range(text, fix.range), "newText": fix.text});
        actions.push(json!({
            "title": fix.title,
            "kind": "quickfix",
            "isPreferred": true,
            "diagnostics": [session::shown(problem, range)],
            "edit": {"changes": {uri.as_str(): [edit]}},
        }));
    }
    Some(Json::Array(actions))
}
