//! Runs the cases of artifacts: in the real sandbox, under the project's policy, with fakes behind the imports.
//!
//! The workspace of a case is a folder of its own with the files that the case gives. Hosts answer and commands print
//! what it says, after the policy has decided; the clock stands, the random numbers have a seed. Nothing of the machine
//! is touched or seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use serde_json::{Map, Number, Value as Json, json};

use super::ask::Canned;
use super::blocks;
use super::chain::{CallContext, Dispatch, HookRun, Verdict};
use super::confirm::Granted;
use super::loaded::Loaded;
use super::payload::text_of;
use super::pipeline::{self, Call, CallError, CallReport};
use super::reentry::Nested;
use super::run::Run;
use harness_artifact::agent::{Agent, Use};
use harness_artifact::cases::{Aspect, Case, Expectation, Given};
use harness_artifact::diagnostic::Position;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::tool::Tool;
use harness_capability::clock::{Clock, Moment};
use harness_capability::coverage::Coverage;
use harness_capability::exec::{self, Runner};
use harness_capability::fs::Workspace;
use harness_capability::http::{self, Client};
use harness_capability::log::Log;
use harness_capability::random::Random;
use harness_capability::secrets::Vault;
use harness_capability::turn::{self, Turn};
use harness_policy::shared::{Namespace, SharedKind};
use harness_sandbox::outcome::Outcome;
use harness_sandbox::state::{Overrides, Session};
use harness_sys::Scratch;

/// An artifact that can have cases.
#[derive(Debug, Clone)]
pub struct Subject {
    name: String,
    artifact: Artifact,
    /// The project as this artifact sees it.
    loaded: Arc<Loaded>,
}

#[derive(Debug, Clone)]
enum Artifact {
    Tool(Arc<Tool>),
    Hook(Arc<Hook>),
}

impl Subject {
    fn new(artifact: Artifact, agent: Option<&Agent>, loaded: &Arc<Loaded>) -> Self {
        let own = match &artifact {
            Artifact::Tool(tool) => &tool.name,
            Artifact::Hook(hook) => &hook.name,
        };
        let name = agent.map_or_else(|| own.clone(), |agent| format!("{}/{own}", agent.name));
        Self { name, artifact, loaded: loaded.clone() }
    }

    /// Its name; of one that is an agent's own, `AGENT/NAME`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `tool` or `hook`.
    pub fn kind(&self) -> &'static str {
        match self.artifact {
            Artifact::Tool(_) => "tool",
            Artifact::Hook(_) => "hook",
        }
    }

    /// Its cases.
    pub fn cases(&self) -> &[Case] {
        match &self.artifact {
            Artifact::Tool(tool) => &tool.cases,
            Artifact::Hook(hook) => &hook.cases,
        }
    }

    /// The event that a case of a hook fires; none of a tool.
    pub fn event(&self, case: &Case) -> Option<Event> {
        match &self.artifact {
            Artifact::Tool(_) => None,
            Artifact::Hook(hook) => Some(case.event.clone().unwrap_or_else(|| hook.event.value.clone())),
        }
    }

    /// Where it is.
    pub fn position(&self) -> &Position {
        match &self.artifact {
            Artifact::Tool(tool) => &tool.source,
            Artifact::Hook(hook) => &hook.source,
        }
    }

    /// The name by which a policy knows it.
    fn source_name(&self) -> &str {
        match &self.artifact {
            Artifact::Tool(tool) => &tool.source_name,
            Artifact::Hook(hook) => &hook.source_name,
        }
    }

    /// Whether it has a script.
    pub fn has_script(&self) -> bool {
        match &self.artifact {
            Artifact::Tool(tool) => tool.script.is_some(),
            Artifact::Hook(hook) => hook.script.is_some(),
        }
    }

    /// Loads its script, where it has one.
    ///
    /// # Errors
    ///
    /// Why that cannot be loaded.
    pub fn load(&self) -> Result<(), String> {
        let script = match &self.artifact {
            Artifact::Tool(tool) => self.loaded.tool_script(tool),
            Artifact::Hook(hook) => self.loaded.hook_script(hook),
        };
        match script.map(|script| self.loaded.image_now(script)) {
            Some(Err(unloadable)) => Err(format!("its script cannot be loaded: {}", unloadable.message())),
            _ => Ok(()),
        }
    }
}

/// How a case went.
#[derive(Debug, Clone)]
pub struct CaseReport {
    /// What is not as expected. Empty: the case passed.
    pub differences: Vec<Difference>,
    /// Why the tool or the hook failed, where it did.
    pub failure: Option<String>,
    /// From its start to its end.
    pub took: Duration,
    /// Lines that were reached, by kind and name of the artifact.
    pub coverage: BTreeMap<(&'static str, String), Coverage>,
}

/// Something that is not as expected.
#[derive(Debug, Clone)]
pub struct Difference {
    /// What was expected, and where that was written.
    pub expected: Expectation,
    /// What there was.
    pub found: Json,
}

/// All artifacts of a project that can have cases: tools, hooks, and those that are agents' own, each in the order of
/// the registry.
pub fn subjects(loaded: &Arc<Loaded>) -> Vec<Subject> {
    let registry = loaded.registry();
    let mut all: Vec<Subject> = Vec::new();
    all.extend(registry.tools().iter().map(|tool| Subject::new(Artifact::Tool(tool.clone()), None, loaded)));
    all.extend(registry.hooks().iter().map(|hook| Subject::new(Artifact::Hook(hook.clone()), None, loaded)));
    for agent in registry.agents() {
        let tools = agent.tools.iter().filter_map(Use::inline).map(|tool| Artifact::Tool(tool.clone()));
        let hooks = agent.hooks.iter().filter_map(Use::inline).map(|hook| Artifact::Hook(hook.clone()));
        let mut own = tools.chain(hooks).peekable();
        if own.peek().is_some() {
            let loaded = Arc::new(loaded.of_agent(agent, None));
            all.extend(own.map(|artifact| Subject::new(artifact, Some(agent), &loaded)));
        }
    }
    all
}

/// Runs one case of an artifact.
///
/// # Errors
///
/// Where its script cannot be loaded, or its world cannot be made: a path that is none, or what the system says.
pub async fn run(subject: &Subject, case: &Case) -> Result<CaseReport, String> {
    let started = Instant::now();
    // Else a case that expects a failure would be content with this one.
    subject.load()?;
    let scratch =
        Scratch::new(&case.given.files).map_err(|error| format!("cannot make the files of the case: {error}"))?;
    let workspace = Workspace::open(scratch.path()).map_err(|error| format!("cannot open its workspace: {error}"))?;
    let own = subject.loaded.namespace(subject.source_name());
    let own = own.as_deref();
    let run = Run::with_session(session(&case.given, own)?);
    // Nothing that it calls is real.
    run.set_confirmer(Arc::new(Granted));
    run.set_respondent(Arc::new(Canned::of(&case.given.answers)));
    run.set_fakes(case.given.mcp.clone());
    let only = (!case.given.hooks).then(|| match &subject.artifact {
        // No hook at all: none has an empty name.
        Artifact::Tool(_) => Arc::from(""),
        Artifact::Hook(hook) => Arc::from(hook.name.as_str()),
    });
    let loaded = match &case.given.granted {
        Some(layer) => Arc::new(subject.loaded.granting(subject.source_name(), layer)),
        None => subject.loaded.clone(),
    };
    let outermost = CallContext::outermost(loaded, run.clone());
    let place =
        CallContext { only, workspace: Arc::new(workspace), turn: Arc::new(turn(&case.given.turn, own)?), ..outermost };
    let mut seen = Seen::default();
    let mut found = match &subject.artifact {
        Artifact::Tool(tool) => {
            let call =
                Call { id: Some("call_test".to_owned()), name: tool.name.clone(), arguments: case.input.clone() };
            of_call(&pipeline::call(&place, call, None).await, &mut seen)
        }
        Artifact::Hook(hook) => {
            let event = case.event.clone().unwrap_or_else(|| hook.event.value.clone());
            // One of the hook's own plugin.
            let place = CallContext { actor: Some(hook.source_name.as_str().into()), ..place.clone() };
            let dispatch = place.fire(&event, filled(&event, case.input.clone())).await;
            of_dispatch(&dispatch, &hook.name, &mut seen)
        }
    };
    found.insert(Aspect::Log.word(), json!(seen.log));
    found.insert(Aspect::Hooks.word(), json!(seen.hooks));
    found.insert(
        Aspect::Files.word(),
        json!(scratch.files().map_err(|error| format!("cannot read its files: {error}"))?),
    );
    let session = run.session();
    let space = own.map(|own| session.plugins.of(&own.plugin));
    let (mut metrics, mut cache) = (session.metrics.snapshot(), session.cache.entries());
    if let Some(space) = &space {
        metrics.extend(space.metrics.snapshot());
        cache.extend(space.cache.entries());
    }
    let metrics = metrics.into_iter().map(|(name, value)| (name, number(value)));
    found.insert(Aspect::Metrics.word(), Json::Object(metrics.collect()));
    let cache = cache.into_iter().map(|(key, value)| (key, serde_json::from_str(&value).unwrap_or_default()));
    found.insert(Aspect::Cache.word(), Json::Object(cache.collect()));
    let mut turn: Map<String, Json> = serde_json::from_str(&place.turn.snapshot()).unwrap_or_default();
    if let Some(own) = own {
        turn.extend(
            serde_json::from_str::<Map<String, Json>>(&place.turn.of(&own.plugin).snapshot()).unwrap_or_default(),
        );
    }
    found.insert(Aspect::Ctx.word(), Json::Object(turn));

    let difference = |expected: &Expectation| {
        let mut found = found.get(expected.aspect.word()).cloned().unwrap_or_default();
        // A whole payload may be written without what a result has only if it is content.
        if expected.aspect == Aspect::Payload
            && let (Json::Object(found), None) = (&mut found, expected.value.get("blocks"))
            && found.get("blocks").is_some_and(Json::is_null)
        {
            found.shift_remove("blocks");
        }
        let fits = if expected.whole { same(&found, &expected.value) } else { holds(&found, &expected.value) };
        (!fits).then(|| Difference { expected: expected.clone(), found })
    };
    let differences = case.expect.iter().filter_map(difference).collect();
    let mut coverage = seen.coverage;
    // In its own project an agent's artifact has a shorter name.
    let own = match &subject.artifact {
        Artifact::Tool(tool) => &tool.name,
        Artifact::Hook(hook) => &hook.name,
    };
    if let Some(reached) = coverage.remove(&(subject.kind(), own.clone())) {
        coverage.insert((subject.kind(), subject.name.clone()), reached);
    }
    Ok(CaseReport { differences, failure: seen.failure, took: started.elapsed(), coverage })
}

/// The host's side of a case.
fn session(given: &Given, own: Option<&Namespace>) -> Result<Session, String> {
    let http = given.http.iter().map(|answer| http::Canned {
        method: answer.method.clone(),
        url: answer.url.clone(),
        response: http::Response {
            status: answer.status,
            url: answer.url.clone(),
            headers: answer.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect(),
            body: answer.body.clone(),
        },
    });
    let commands = given.commands.iter().map(|result| exec::Canned {
        program: result.cmd.clone(),
        args: result.args.clone(),
        output: exec::Output {
            stdout: result.stdout.clone(),
            stderr: result.stderr.clone(),
            exit_code: result.exit_code,
            duration_ms: 0,
            timed_out: result.timed_out,
            truncated: false,
        },
    });
    let (seconds, nanoseconds) = given.now;
    let overrides = Overrides {
        clock: Some(Arc::new(Clock::Fixed(Moment { seconds, nanoseconds }))),
        random: Some(Random::Seeded(AtomicU64::new(given.random))),
        http: Some(Client::answering(http.collect())),
        exec: Runner::Canned(commands.collect()),
        variables: Some(given.env.iter().cloned().collect()),
    };
    let session = Session { overrides, ..Session::default() };
    for (key, value) in &given.cache {
        let own = own.filter(|own| !own.shares(SharedKind::Cache, key)).map(|own| session.plugins.of(&own.plugin));
        let cache = own.as_ref().map_or(&session.cache, |own| &own.cache);
        let set = cache.set(key.clone(), value.to_string());
        set.map_err(|_| format!("the cache does not take `{key}`"))?;
    }
    for (name, value) in &given.metrics {
        let own = own.filter(|own| !own.shares(SharedKind::Metrics, name)).map(|own| session.plugins.of(&own.plugin));
        let metrics = own.as_ref().map_or(&session.metrics, |own| &own.metrics);
        metrics.set(name.clone(), *value).map_err(|_| format!("the metrics do not take `{name}`"))?;
    }
    Ok(session)
}

/// The values of the turn that a case is in: turn 1, unless they say which.
fn turn(given: &[(String, Json)], own: Option<&Namespace>) -> Result<Turn, String> {
    let number = given.iter().find(|(key, _)| key == turn::NUMBER).map(|(_, number)| number.as_u64());
    let number = number.unwrap_or(Some(1)).ok_or("`given.ctx.turn` is not the number of a turn")?;
    let turn = Turn::new(number);
    for (key, value) in given.iter().filter(|(key, _)| key != turn::NUMBER) {
        let own = own.filter(|own| !own.shares(SharedKind::Ctx, key)).map(|own| turn.of(&own.plugin));
        let values = own.as_deref().unwrap_or(&turn);
        values.set(key.clone(), value.to_string()).map_err(|_| format!("`ctx` does not take `{key}`"))?;
    }
    Ok(turn)
}

/// A payload with what its author need not write: identifiers, and the other of two keys that say the same.
fn filled(event: &Event, payload: Json) -> Json {
    let Json::Object(mut payload) = payload else { return payload };
    match event {
        Event::ToolPre => {
            let text = payload.get("arguments").and_then(Json::as_str).and_then(|text| serde_json::from_str(text).ok());
            let args = payload.get("args").cloned().or(text).unwrap_or_else(|| json!({}));
            let text = payload.get("arguments").cloned().unwrap_or_else(|| args.to_string().into());
            let id = payload.remove("id").unwrap_or_else(|| json!("call_test"));
            let name = payload.remove("name").unwrap_or_else(|| json!("test"));
            payload.remove("args");
            payload.remove("arguments");
            ordered([("id", id), ("name", name), ("arguments", text), ("args", args)], payload)
        }
        Event::ToolPost => {
            let blocks = payload.remove("blocks").unwrap_or_default();
            let content = payload.remove("content").or_else(|| text_of_blocks(&blocks));
            let result = payload.remove("result").or_else(|| {
                let content = content.as_ref()?.as_str()?;
                Some(serde_json::from_str(content).unwrap_or_else(|_| json!(content)))
            });
            let result = result.unwrap_or_default();
            let content = content.unwrap_or_else(|| text_of(&result).into());
            let id = payload.remove("call_id").unwrap_or_else(|| json!("call_test"));
            let name = payload.remove("name").unwrap_or_else(|| json!("test"));
            let is_error = payload.remove("is_error").unwrap_or_else(|| json!(false));
            let (call, rest) = ([("call_id", id), ("name", name)], [("is_error", is_error), ("result", result)]);
            let ([id, name], [is_error, result]) = (call, rest);
            ordered([id, name, ("content", content), ("blocks", blocks), is_error, result], payload)
        }
        _ => Json::Object(payload),
    }
}

fn text_of_blocks(given: &Json) -> Option<Json> {
    let given = Some(given).filter(|given| given.is_array())?;
    blocks::read(given, &Vault::default()).ok().map(|blocks| blocks::text_of(&blocks).into())
}

fn ordered<const N: usize>(known: [(&str, Json); N], rest: Map<String, Json>) -> Json {
    known.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(rest).collect()
}

/// What scripts did in a case.
#[derive(Default)]
struct Seen {
    log: Vec<String>,
    hooks: Vec<String>,
    /// Why the subject of the case failed.
    failure: Option<String>,
    coverage: BTreeMap<(&'static str, String), Coverage>,
}

impl Seen {
    fn log(&mut self, log: &Log) {
        self.log.extend(log.lines.iter().map(|line| format!("{}: {}", line.level.name(), line.message)));
    }

    fn coverage(&mut self, kind: &'static str, name: &str, coverage: Option<&Coverage>) {
        if let Some(coverage) = coverage {
            self.coverage.entry((kind, name.to_owned())).or_default().add(coverage.clone());
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) {
        for hook in &dispatch.hooks {
            if hook.verdict.ran() {
                self.hooks.push(hook.name.clone());
            }
            self.log(&hook.log);
            self.coverage("hook", &hook.name, hook.coverage.as_ref());
            self.nested(&hook.nested);
        }
    }

    fn report(&mut self, report: &CallReport) {
        report.pre.iter().for_each(|dispatch| self.dispatch(dispatch));
        self.log(&report.log);
        self.coverage("tool", &report.tool, report.coverage.as_ref());
        self.nested(&report.nested);
        if let Some(judged) = &report.verify {
            self.log(&judged.log);
            self.nested(&judged.nested);
        }
        report.post.iter().for_each(|dispatch| self.dispatch(dispatch));
    }

    fn nested(&mut self, nested: &[Nested]) {
        for one in nested {
            match one {
                Nested::Event(dispatch) => self.dispatch(dispatch),
                Nested::Call(report) => self.report(report),
                Nested::Agent { nested, .. } => self.nested(nested),
                Nested::Rest { .. } => {}
            }
        }
    }
}

type Found = BTreeMap<&'static str, Json>;

fn of_call(called: &Result<CallReport, CallError>, seen: &mut Seen) -> Found {
    let mut found = Found::new();
    match called {
        Ok(report) => {
            seen.report(report);
            found.insert(Aspect::Outcome.word(), json!(report.outcome.name()));
            found.insert(Aspect::Result.word(), report.result.clone());
            found.insert(Aspect::Content.word(), json!(report.content));
            let blocks = report.rich.as_ref().map(|rich| blocks::as_json(&rich.blocks));
            found.insert(Aspect::Blocks.word(), json!(blocks));
            found.insert(Aspect::IsError.word(), json!(report.is_error));
            let error = match &report.outcome {
                Outcome::Completed(_) => None,
                Outcome::Failed(failure) | Outcome::Denied { failure, .. } => Some(failure.message.clone()),
                Outcome::Limited(limit) => Some(limit.to_string()),
                Outcome::Busy(busy) => Some(busy.to_string()),
                Outcome::Fault(message) => Some(message.clone()),
            };
            seen.failure.clone_from(&error);
            found.insert(Aspect::Error.word(), json!(error));
            let reason = report.dispatches().flat_map(|dispatch| &dispatch.hooks).find_map(|hook| hook.reason.clone());
            found.insert(Aspect::Reason.word(), json!(reason));
        }
        Err(error) => {
            let outcome = if matches!(error, CallError::NotAllowed(_)) { "denied" } else { "rejected" };
            let errors = match error {
                CallError::Arguments { errors, .. } => errors.iter().map(ToString::to_string).collect(),
                other => vec![other.to_string()],
            };
            found.insert(Aspect::Outcome.word(), json!(outcome));
            let errors = errors.join("; ");
            seen.failure = Some(errors.clone());
            found.insert(Aspect::Error.word(), json!(errors));
            found.insert(Aspect::IsError.word(), json!(true));
        }
    }
    found
}

fn of_dispatch(dispatch: &Dispatch, hook: &str, seen: &mut Seen) -> Found {
    seen.dispatch(dispatch);
    let own: Option<&HookRun> = dispatch.hooks.iter().find(|run| run.name == hook);
    let verdict = own.map_or(Verdict::Skip, |run| run.verdict);
    let mut found = Found::new();
    found.insert(Aspect::Decision.word(), json!(verdict.name()));
    let why =
        own.and_then(|run| run.reason.clone().or_else(|| (verdict == Verdict::Error).then(|| run.warnings.join("; "))));
    seen.failure = why.clone().filter(|_| verdict == Verdict::Error);
    found.insert(Aspect::Reason.word(), json!(why));
    found.insert(Aspect::Payload.word(), dispatch.payload.clone());
    found
}

fn number(value: f64) -> Json {
    /// Whole numbers up to here are exact: 2^53.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return serde_json::from_str(&format!("{value:.0}")).unwrap_or_default();
    }
    Number::from_f64(value).map(Json::Number).unwrap_or_default()
}

/// Whether two values are the same. Numbers are where they are equal, however they were written.
fn same(found: &Json, wanted: &Json) -> bool {
    match (found, wanted) {
        (Json::Number(a), Json::Number(b)) => a == b || (a.as_f64().is_some() && a.as_f64() == b.as_f64()),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Whether a value holds another: a text as a part of it, a dict with at least these keys, a list with at least these
/// items in this order.
fn holds(found: &Json, wanted: &Json) -> bool {
    match (found, wanted) {
        (Json::String(found), Json::String(wanted)) => found.contains(wanted.as_str()),
        (Json::Object(found), Json::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| found.get(key).is_some_and(|found| holds(found, wanted)))
        }
        (Json::Array(found), Json::Array(wanted)) => {
            let mut rest = found.iter();
            wanted.iter().all(|wanted| rest.any(|found| holds(found, wanted)))
        }
        (found, wanted) => same(found, wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_full() {
        assert!(same(&json!({"a": [1, 2.0], "b": null}), &json!({"b": null, "a": [1.0, 2]})));
        for (found, wanted) in [
            (json!({"a": 1}), json!({})),
            (json!({}), json!({"a": 1})),
            (json!([1, 2]), json!([2, 1])),
            (json!("1"), json!(1)),
            (json!("abc"), json!("b")),
            (json!(null), json!(false)),
        ] {
            assert!(!same(&found, &wanted), "{found} {wanted}");
        }
    }

    #[test]
    fn in_part() {
        for (found, wanted) in [
            (json!("abc"), json!("b")),
            (json!({"a": {"b": "xyz"}, "c": 1}), json!({"a": {"b": "y"}})),
            (json!(["info: one", "warn: two", "info: three"]), json!(["one", "three"])),
            (json!([]), json!([])),
        ] {
            assert!(holds(&found, &wanted), "{found} {wanted}");
        }
        for (found, wanted) in [
            (json!("abc"), json!("d")),
            (json!({"a": 1}), json!({"a": 2})),
            (json!(["one", "two"]), json!(["two", "one"])),
            (json!(["one"]), json!(["one", "one"])),
            (json!(12), json!(1)),
        ] {
            assert!(!holds(&found, &wanted), "{found} {wanted}");
        }
    }

    #[test]
    fn what_an_author_leaves_out() {
        let pre = filled(&Event::ToolPre, json!({"name": "run", "args": {"a": 1}}));
        assert_eq!(pre.to_string(), r#"{"id":"call_test","name":"run","arguments":"{\"a\":1}","args":{"a":1}}"#);
        let pre = filled(&Event::ToolPre, json!({"arguments": "{\"a\":2}"}));
        assert_eq!(pre["args"], json!({"a": 2}));
        let post = filled(&Event::ToolPost, json!({"result": {"a": 1}, "is_error": true}));
        assert_eq!(
            post.to_string(),
            r#"{"call_id":"call_test","name":"test","content":"{\"a\":1}","blocks":null,"is_error":true,"result":{"a":1}}"#
        );
        assert_eq!(filled(&Event::ToolPost, json!({"content": "text"}))["result"], json!("text"));
        assert_eq!(filled(&Event::TurnStart, json!("hi")), json!("hi"));
    }
}
