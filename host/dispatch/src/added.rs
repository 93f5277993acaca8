//! Tools and hooks that a script adds to its run.
//!
//! They are for the run only, counted, never instead of an artifact on disk, and have the grant of who added them.

use std::sync::Arc;

use serde_json::Value as Json;

use super::chain::CallContext;
use super::code;
use super::run::{Added, AddedHook, AddedTool};
use harness_artifact::alike;
use harness_artifact::diagnostic::Position;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::located::Located;
use harness_artifact::parameters::Parameters;
use harness_artifact::policy::mcp::ToolExpose;
use harness_artifact::policy::meta::{MAX_HOOKS, MAX_TOOLS};
use harness_artifact::script::Script;
use harness_artifact::tool::{RESERVED, Tool};
use harness_artifact::when::Filter;
use harness_capability::meta::{Error, NewHook, NewTool};
use harness_capability::reentry::Allowance;
use harness_policy::grant::Grant;
use harness_policy::text::quoted;
use harness_sandbox::engine::Image;
use harness_sandbox::outcome::Source;

/// Lowest priority of an added hook: the guards of the project come first.
const FIRST_PRIORITY: i64 = 50;
/// Priority of an added hook that names none.
const DEFAULT_PRIORITY: i64 = 100;
/// Bytes of memory that the images of all that a run has added hold together.
const MAX_KEPT: u64 = 32 << 20;
/// Bytes of a name.
const MAX_NAME: usize = 64;

/// Who adds something: what that may do, and the third party that it is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By<'a> {
    pub grant: &'a Arc<Grant>,
    pub author: Option<&'a str>,
}

impl By<'_> {
    /// The name of what it adds as a source: a third party's stays that.
    fn source_of(&self, name: &str) -> String {
        self.author.map_or_else(|| format!("added/{name}"), |author| format!("{author}/added/{name}"))
    }
}

/// Everything that can be said of a tool before the hooks are asked. Gives back its parameters.
pub(crate) fn check_tool(place: &CallContext, new: &NewTool) -> Result<Json, Error> {
    check_name(&new.name)?;
    let added = &place.added;
    let replaces = added.tool(&new.name).is_some();
    let of_host = RESERVED.contains(&new.name.as_str()) || code::tool(&place.loaded, &new.name).is_some();
    let taken = of_host || place.loaded.parts.registry.tool(&new.name).is_ok();
    if taken || (replaces && !new.replace) {
        return Err(registered("tool", &new.name));
    }
    let names = place.loaded.parts.registry.tools().iter().map(|tool| tool.name.as_str());
    let names = names.chain(added.tools.iter().map(|one| one.tool.name.as_str())).chain(RESERVED);
    let names = names.chain(code::tools(&place.loaded).iter().map(|tool| tool.name.as_str()));
    check_looks("tool", &new.name, names)?;
    let most = place.loaded.parts.policy.meta.max_tools.unwrap_or(MAX_TOOLS);
    if !replaces && added.tools.len() as u64 >= most {
        return Err(too_many(most));
    }
    let given: Json =
        serde_json::from_str(&new.parameters).map_err(|_| Error::Invalid("the parameters are not JSON".to_owned()))?;
    Parameters::from_json(&given).map_err(Error::Invalid)?;
    Ok(given)
}

/// Adds a tool. `payload` is that of its event: hooks may have changed the description.
///
/// Gives back the fuel that loading its script took, which is the same on every run.
pub(crate) async fn add_tool(
    place: &CallContext,
    by: By<'_>,
    new: NewTool,
    payload: &Json,
    left: Allowance,
) -> (Result<(), Error>, u64) {
    let grant = by.grant;
    let tool = match tool(&new, payload, by) {
        Ok(tool) => tool,
        Err(error) => return (Err(error), 0),
    };
    let (image, fuel) = load(place, grant, place.loaded.tool_source(&tool), left).await;
    let added = match image {
        Ok(image) => {
            insert_tool(place, AddedTool { tool: Arc::new(tool), grant: grant.clone(), image }, new.replace).await
        }
        Err(error) => Err(error),
    };
    (added, fuel)
}

/// A tool as a file has it.
fn tool(new: &NewTool, payload: &Json, by: By<'_>) -> Result<Tool, Error> {
    let position = position(&new.name);
    let given: Json = serde_json::from_str(&new.parameters).unwrap_or_default();
    let description = payload.get("description").and_then(Json::as_str).unwrap_or(&new.description).trim();
    Ok(Tool {
        description: if description.is_empty() { &new.name } else { description }.to_owned(),
        parameters: Parameters::from_json(&given).map_err(Error::Invalid)?,
        returns: None,
        script: script(&new.script),
        verify: None,
        timeout_ms: None,
        asynchronous: Located::new(false, position.clone()),
        parallel: false,
        effect: harness_artifact::tool::Effect::Once,
        confirm: Located::new(false, position.clone()),
        expose: ToolExpose::Both,
        capabilities: None,
        cases: Vec::new(),
        tags: Vec::new(),
        served: None,
        source: position,
        source_name: by.source_of(&new.name),
        name: new.name.clone(),
    })
}

async fn insert_tool(place: &CallContext, one: AddedTool, replace: bool) -> Result<(), Error> {
    let most = place.loaded.parts.policy.meta.max_tools.unwrap_or(MAX_TOOLS);
    let name = one.tool.name.clone();
    let change = |added: &mut Added| {
        let full = added.tools.len() as u64 >= most;
        match added.tools.iter_mut().find(|old| old.tool.name == one.tool.name) {
            // Another strand may have been faster.
            Some(_) if !replace => return Err(registered("tool", &one.tool.name)),
            Some(old) => *old = one,
            None if full => return Err(too_many(most)),
            None => added.tools.push(one),
        }
        check_bounds(added)
    };
    place.add(&name, change).await
}

/// Loads the script of what is to be added: with what is left of the fuel and time of who adds it, every time again.
async fn load(
    place: &CallContext,
    grant: &Grant,
    source: Option<Source>,
    left: Allowance,
) -> (Result<Image, Error>, u64) {
    let Some(source) = source else { return (Err(Error::Invalid("there is no script".to_owned())), 0) };
    let (image, fuel) = place.loaded.load(source, place.waiter(""), grant, left).await;
    (image.map_err(|unloadable| Error::Invalid(unloadable.message())), fuel)
}

/// Whether a run may hold all of this.
fn check_bounds(added: &Added) -> Result<(), Error> {
    let images = added.tools.iter().map(|one| &one.image).chain(added.hooks.iter().map(|one| &one.image));
    if images.map(Image::size).sum::<u64>() <= MAX_KEPT {
        return Ok(());
    }
    let most = MAX_KEPT >> 20;
    let why = format!("what the run has added holds more than {most} MiB once it is loaded: move work into functions");
    Err(Error::Invalid(why))
}

/// Everything that can be said of a hook before the hooks are asked. Gives back its event and priority.
pub(crate) fn check_hook(place: &CallContext, author: Option<&str>, new: &NewHook) -> Result<(Event, i64), Error> {
    check_name(&new.name)?;
    let event = match Event::parse(&new.event) {
        // Else a script could answer for the hooks that govern it.
        Some(Event::Meta(_)) => {
            return Err(Error::Invalid(format!("a hook on {} cannot be registered", quoted(&new.event))));
        }
        Some(event) => event,
        None => return Err(Error::Invalid(format!("{} is not an event", quoted(&new.event)))),
    };
    let added = &place.added;
    let taken = added.hooks.iter().any(|hook| hook.hook.name == new.name);
    if taken || place.loaded.parts.registry.hook(&new.name).is_some() {
        return Err(registered("hook", &new.name));
    }
    let names = place.loaded.parts.registry.hooks().iter().map(|hook| hook.name.as_str());
    check_looks("hook", &new.name, names.chain(added.hooks.iter().map(|one| one.hook.name.as_str())))?;
    let most = place.loaded.parts.policy.meta.max_hooks.unwrap_or(MAX_HOOKS);
    if event.is_builtin() {
        return Err(Error::Invalid(format!("a hook that a script adds cannot listen to `{event}`")));
    }
    if author.is_some_and(|author| place.loaded.parts.policy.shows(author, &event, true).is_err()) {
        return Err(Error::Invalid(format!("a hook of this plugin may not receive `{event}`")));
    }
    if added.hooks.len() as u64 >= most {
        return Err(too_many(most));
    }
    Ok((event, new.priority.map_or(DEFAULT_PRIORITY, i64::from).max(FIRST_PRIORITY)))
}

/// Adds a hook. Gives back the fuel that loading its script took, as for a tool.
pub(crate) async fn add_hook(
    place: &CallContext,
    by: By<'_>,
    new: NewHook,
    (event, priority): (Event, i64),
    left: Allowance,
) -> (Result<(), Error>, u64) {
    let grant = by.grant;
    let hook = hook(new, event, priority, by);
    let source = hook.script.is_some().then(|| place.loaded.hook_source(&hook)).flatten();
    let (image, fuel) = load(place, grant, source, left).await;
    let added = match image {
        Ok(image) => insert_hook(place, AddedHook { hook: Arc::new(hook), grant: grant.clone(), image }).await,
        Err(error) => Err(error),
    };
    (added, fuel)
}

/// A hook as a file has it.
fn hook(new: NewHook, event: Event, priority: i64, by: By<'_>) -> Hook {
    let position = position(&new.name);
    let when = new.when.as_deref().and_then(script);
    Hook {
        event: Located::new(event, position.clone()),
        filter: when.as_ref().and_then(|when| Filter::parse(&when.text)),
        when,
        script: script(&new.script),
        priority: Located::new(priority, position.clone()),
        capabilities: None,
        cases: Vec::new(),
        tags: Vec::new(),
        prose: String::new(),
        source: position,
        source_name: by.source_of(&new.name),
        name: new.name,
    }
}

async fn insert_hook(place: &CallContext, one: AddedHook) -> Result<(), Error> {
    let most = place.loaded.parts.policy.meta.max_hooks.unwrap_or(MAX_HOOKS);
    let name = one.hook.name.clone();
    let change = |added: &mut Added| {
        if added.hooks.len() as u64 >= most {
            return Err(too_many(most));
        }
        if added.hooks.iter().any(|old| old.hook.name == one.hook.name) {
            return Err(registered("hook", &one.hook.name));
        }
        added.hooks.push(one);
        check_bounds(added)
    };
    place.add(&name, change).await
}

fn registered(what: &str, name: &str) -> Error {
    Error::Invalid(format!("{what} {name:?} already registered"))
}

fn too_many(most: u64) -> Error {
    Error::TooMany(u32::try_from(most).unwrap_or(u32::MAX))
}

/// Nothing is added that could be taken for what is there.
fn check_looks<'a>(kind: &str, name: &str, mut names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    match names.find(|other| alike::is_alike(name, other)) {
        Some(other) => Err(Error::Invalid(format!("{kind} {} looks like the {kind} {}", quoted(name), quoted(other)))),
        None => Ok(()),
    }
}

/// A lower-case letter, then at most 63 lower-case letters, digits, `_` and `-`.
fn check_name(name: &str) -> Result<(), Error> {
    let good = name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'));
    if good {
        return Ok(());
    }
    let rule = "a lower-case letter, then at most 63 lower-case letters, digits, `_` and `-`";
    Err(Error::Invalid(format!("{} is not a valid name: {rule}", quoted(name))))
}

/// The place of something that has no file.
fn position(name: &str) -> Position {
    Position { file: format!("added:{name}").into(), line: 1, column: 1, length: 1 }
}

fn script(text: &str) -> Option<Script> {
    let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX).max(1);
    (!text.trim().is_empty()).then(|| Script { text: text.to_owned(), first_line: 1, indent: 0, last_line: lines })
}
