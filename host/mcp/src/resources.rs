//! Resources: skills with the files beside them, and files that the policy names for clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness_artifact::skill::{Skill, SkillFile};
use harness_artifact::third_party;
use harness_capability::fs;
use harness_dispatch::Loaded;
use harness_policy::grant::Grant;
use harness_policy::layer::Service;
use harness_policy::path::WorkspacePath;
use harness_policy::refusal::Refusal;
use harness_policy::resource::{self, Label, Resource as Rule};
use harness_sandbox::outcome::{Failure, FailureKind, Outcome};
use harness_sys::digest::digest_of;
use harness_sys::tree;
use rmcp::model::{Resource, ResourceTemplate};
use serde_json::{Value as Json, json};

use crate::mime;

/// Bytes of a resource.
const MAX_RESOURCE: u64 = 4 << 20;
/// The file of a skill that is its prose.
pub(crate) const PROSE: &str = "SKILL.md";

/// What is behind a URI.
#[derive(Debug)]
pub(crate) enum Source {
    /// The prose of a skill.
    Skill(Arc<Skill>),
    /// A file beside one.
    Beside(Arc<Skill>, SkillFile),
    /// A file of the workspace, with the media type that the policy says.
    File(WorkspacePath, Option<String>),
}

/// What was read.
pub(crate) struct Content {
    /// Its media type.
    pub(crate) mime_type: String,
    pub(crate) data: Data,
}

pub(crate) enum Data {
    Text(String),
    /// In Base64.
    Blob(String),
}

/// Skills whose source may speak to a model.
pub(crate) fn skills(loaded: &Loaded) -> impl Iterator<Item = &Arc<Skill>> {
    loaded.registry().skills().iter().filter(|skill| speaks(loaded, &skill.source_name))
}

/// Whether the prose of a source may reach a model.
pub(crate) fn speaks(loaded: &Loaded, source: &str) -> bool {
    loaded.policy().grant_for(source, None).decide_service(Service::Prompt).is_ok()
}

/// All resources by their URIs, of files those that may be read. Looks at the workspace.
///
/// # Errors
///
/// Why the files of a pattern cannot be listed.
pub(crate) fn list(loaded: &Loaded, grant: &Grant) -> Result<BTreeMap<String, Resource>, String> {
    let mut all = BTreeMap::new();
    let mut add = |resource: Resource| all.insert(resource.uri.clone(), resource);
    for skill in skills(loaded) {
        let uri = resource::skill_uri(&skill.name, PROSE);
        let description = third_party::line(&skill.description);
        add(Resource::new(uri, &skill.name).with_description(description).with_mime_type("text/markdown"));
        for file in &skill.files {
            let uri = resource::skill_uri(&skill.name, &file.path);
            let name = format!("{}/{}", skill.name, file.path);
            add(typed(Resource::new(uri, name).with_size(file.bytes), mime::by_name(&file.path)));
        }
    }
    for rule in &loaded.policy().mcp.resources {
        match &rule.value {
            Rule::Files(pattern) => {
                let found = match loaded.workspace().files(grant, pattern) {
                    // Nothing can be read, so nothing is offered.
                    Err(fs::Error::AccessDenied(_)) => Vec::new(),
                    found => {
                        found.map_err(|error| format!("the files of `{pattern}` cannot be listed: {}", why(&error)))?
                    }
                };
                for path in found {
                    add(typed(Resource::new(resource::file_uri(&path), &path), mime::by_name(&path)));
                }
            }
            Rule::File { uri, path, label } => {
                let text = path.to_string();
                // A denied one would be listed and could never be read.
                if grant.decide_path(path, harness_policy::path::Access::Read).is_ok() {
                    let name = label.name.as_deref().or(path.name()).unwrap_or(&text);
                    add(labelled(Resource::new(uri, name), label, mime::by_name(&text)));
                }
            }
        }
    }
    Ok(all)
}

fn typed(mut resource: Resource, mime_type: Option<&str>) -> Resource {
    resource.mime_type = mime_type.map(str::to_owned);
    resource
}

fn labelled(mut resource: Resource, label: &Label, mime_type: Option<&str>) -> Resource {
    resource.description.clone_from(&label.description);
    typed(resource, label.mime_type.as_deref().or(mime_type))
}

/// All templates by the forms of their URIs.
pub(crate) fn templates(loaded: &Loaded) -> BTreeMap<String, ResourceTemplate> {
    let described = loaded.policy().mcp.templates.iter().map(|template| {
        let (uri, path) = (template.uri.to_string(), template.path.to_string());
        let Label { name, description, mime_type } = template.label.clone();
        let mut shown = ResourceTemplate::new(&uri, name.unwrap_or_else(|| path.clone()));
        shown.mime_type = mime_type.or_else(|| mime::by_name(&path).map(str::to_owned));
        shown.description = description;
        (uri, shown)
    });
    described.collect()
}

/// What is behind a URI. None if nothing is offered under it.
pub(crate) fn find(loaded: &Loaded, uri: &str) -> Option<Source> {
    if let Some((name, file)) = resource::skill_path(uri) {
        let skill = skills(loaded).find(|skill| skill.name == name)?;
        return match file.as_str() {
            PROSE => Some(Source::Skill(skill.clone())),
            _ => beside(skill, &file),
        };
    }
    let mcp = &loaded.policy().mcp;
    let own = mcp.resources.iter().find_map(|rule| match &rule.value {
        Rule::File { uri: own, path, label } if own == uri => Some(Source::File(path.clone(), label.mime_type.clone())),
        _ => None,
    });
    let by_pattern = || {
        let path = resource::file_path(uri)?;
        let finds = |rule: &Rule| matches!(rule, Rule::Files(pattern) if pattern.finds(&path));
        mcp.resources.iter().any(|rule| finds(&rule.value)).then_some(Source::File(path, None))
    };
    let by_template = || {
        mcp.templates
            .iter()
            .find_map(|template| Some(Source::File(template.path_of(uri)?, template.label.mime_type.clone())))
    };
    own.or_else(by_pattern).or_else(by_template)
}

/// A file beside a skill.
pub(crate) fn beside(skill: &Arc<Skill>, path: &str) -> Option<Source> {
    let file = skill.files.iter().find(|file| file.path == path)?;
    Some(Source::Beside(skill.clone(), file.clone()))
}

/// Whether a file of the workspace may be read, or is missing and might be. Looks at the workspace.
pub(crate) fn may_read(loaded: &Loaded, grant: &Grant, path: &WorkspacePath) -> bool {
    matches!(loaded.workspace().stat(grant, &path.to_string()), Ok(_) | Err(fs::Error::NotFound(_)))
}

/// Why nothing is offered under a URI, and what would offer it.
pub(crate) fn not_offered(loaded: &Loaded, uri: &str) -> Refusal {
    let place = match loaded.policy().mcp.place.as_str() {
        "" => format!("`{}`", loaded.policy().project.origin.file),
        place => format!("`{place}`"),
    };
    let hint = match resource::file_path(uri) {
        Some(path) => format!("add `{path}` to `mcp.resources` in {place}"),
        None => format!("`mcp.resources` in {place} names what is offered; `resources/list` lists it"),
    };
    Refusal::new("no resource is offered under this URI", hint)
}

/// How an act ends that comes to no result.
pub(crate) type Ended = Box<Outcome<String>>;

/// Reads a source. Waits for the disk.
///
/// # Errors
///
/// How the act ends instead.
pub(crate) fn read(loaded: &Loaded, grant: &Grant, source: &Source) -> Result<Content, Ended> {
    match source {
        Source::Skill(skill) => {
            Ok(Content { mime_type: "text/markdown".to_owned(), data: Data::Text(framed(skill, &skill.body)) })
        }
        Source::Beside(skill, file) => {
            let content = content(loaded, unchanged(skill, file)?, &file.path, None)?;
            Ok(match content.data {
                Data::Text(text) => Content { data: Data::Text(framed(skill, &text)), ..content },
                Data::Blob(_) => content,
            })
        }
        Source::File(path, mime_type) => {
            let path = path.to_string();
            let bytes = loaded.workspace().read_bytes(grant, &path, MAX_RESOURCE).map_err(ended)?;
            content(loaded, bytes, &path, mime_type.as_deref())
        }
    }
}

/// The text of a skill: that of a third party shows whose it is.
pub(crate) fn framed(skill: &Skill, text: &str) -> String {
    match third_party::author(&skill.source_name) {
        Some(author) => third_party::quoted(author, text, text.len()),
        None => text.to_owned(),
    }
}

/// A file beside a skill, as it was when the project was loaded.
fn unchanged(skill: &Skill, file: &SkillFile) -> Result<Vec<u8>, Ended> {
    let path = &file.path;
    if file.bytes > MAX_RESOURCE {
        return Err(failed(format!("`{path}` has more than {MAX_RESOURCE} bytes")));
    }
    let folder = skill.folder.as_ref().ok_or_else(|| failed(format!("`{path}` is not there")))?;
    let bytes =
        tree::read_file(folder, path, file.bytes).map_err(|error| failed(format!("cannot read `{path}`: {error}")))?;
    match digest_of(&bytes) == file.sha256 {
        true => Ok(bytes),
        false => Err(failed(format!("`{path}` has changed since the project was loaded"))),
    }
}

fn content(loaded: &Loaded, bytes: Vec<u8>, path: &str, mime_type: Option<&str>) -> Result<Content, Ended> {
    let known = mime_type.or_else(|| mime::by_name(path));
    let (data, is_text) = match String::from_utf8(bytes) {
        // A text with such characters is one for nobody.
        Ok(text) if !text.contains('\0') => (Data::Text(text), true),
        other => {
            let bytes = other.map_or_else(|error| error.into_bytes(), String::into_bytes);
            if holds_secret(loaded, &bytes) {
                let reason = format!("reading `{path}` is not allowed: it holds the value of a secret");
                return Err(denied(Refusal::always(reason)));
            }
            (Data::Blob(STANDARD.encode(&bytes)), false)
        }
    };
    let mime_type = known.unwrap_or_else(|| mime::of_content(is_text)).to_owned();
    Ok(Content { mime_type, data })
}

/// Whether bytes that are no text hold the value of a secret, which nothing could take out of them: as it is, or with
/// zeros between its bytes, as UTF-16 has it.
fn holds_secret(loaded: &Loaded, bytes: &[u8]) -> bool {
    let narrow: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    [bytes, &narrow].into_iter().any(|bytes| loaded.secrets().find(&String::from_utf8_lossy(bytes)).is_some())
}

/// The result of a read, as hooks see it and a client gets it.
pub(crate) fn shown(uri: &str, content: Content) -> Json {
    let Content { mime_type, data } = content;
    match data {
        Data::Text(text) => json!({"uri": uri, "mimeType": mime_type, "text": text}),
        Data::Blob(blob) => json!({"uri": uri, "mimeType": mime_type, "blob": blob}),
    }
}

fn ended(error: fs::Error) -> Ended {
    match error {
        fs::Error::AccessDenied(denial) => denied(Refusal::new(denial.reason, denial.hint)),
        other => failed(why(&other)),
    }
}

pub(crate) fn denied(refusal: Refusal) -> Ended {
    let failure = Failure::without_place(FailureKind::Denied, "", refusal.reason.clone());
    Box::new(Outcome::Denied { failure, refusal })
}

pub(crate) fn failed(why: String) -> Ended {
    Box::new(Outcome::Failed(Failure::without_place(FailureKind::Script, "", why)))
}

fn why(error: &fs::Error) -> String {
    match error {
        fs::Error::AccessDenied(denial) => denial.reason.clone(),
        fs::Error::NotFound(path) => format!("`{path}` is not there"),
        fs::Error::AlreadyExists(path) => format!("`{path}` is there already"),
        fs::Error::NotAFile(what) => format!("this is a {what}, not a file"),
        fs::Error::NotADirectory(path) => format!("`{path}` is not a folder"),
        fs::Error::NotEmpty(path) => format!("`{path}` is not empty"),
        fs::Error::TooLarge(most) => format!("there is more than {most}"),
        fs::Error::NotText(path) => format!("`{path}` is not UTF-8 text"),
        fs::Error::Invalid(why) => why.clone(),
        fs::Error::Io(kind) => format!("the system refused: {kind}"),
    }
}
