//! The cases of a plugin, run in the sandbox with fakes: nothing of a project or of this machine has a part in them. The
//! plugin has all that it asks for as its grant.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use harness_artifact::escape;
use harness_artifact::event::Event;
use harness_artifact::plugin::{Rule, layer};
use harness_capability::system::System;
use harness_dispatch::{OpenError, Options, Project};
use harness_policy::grant::Grant;
use harness_policy::watch::Watch;
use harness_registry::Machine;
use harness_sys::Scratch;
use serde_json::{Map, Value as Json, json};

use super::fetched::Fetched;
use super::installed;
use super::review::plural;
use super::state::{State, with_rules};
use crate::args::{Confine, ProjectArgs, Test};
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::test::{self, Results, TestFolder};

/// How long all cases take at most before a person consents.
const MOST: Duration = Duration::from_secs(20);
/// Cases that are named as failed.
const MOST_NAMED: usize = 10;
/// The keys of rules whose use is seen in a case.
const SEEN: [&str; 7] = ["fs.read", "fs.write", "network", "exec.allow", "env", "services", "secrets"];
/// The policy of the project that is made for the cases.
const POLICY: &str = "harness.yaml";

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all passed, 1 a case failed, 2 the plugin cannot be used.")]
pub(crate) struct TestCases {
    /// Folder of the plugin, or the name of a plugin of the lock.
    #[arg(value_name = "FOLDER|NAME", default_value = ".")]
    pub(crate) plugin: String,

    /// Names of its tools and hooks. Default: all that have cases.
    pub(crate) names: Vec<String>,

    /// Run only cases whose names match this pattern, in which each `*` stands for any text. May be repeated.
    #[arg(long = "case", value_name = "PATTERN")]
    pub(crate) cases: Vec<String>,

    /// Leave out cases that passed, and lines that were reached.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Print the results as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the results as JUnit XML to a file, or to standard output with `-`, instead of text.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<std::path::PathBuf>,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

pub(super) fn run(command: &TestCases, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let plugin = &command.plugin;
    let folder = place.project.clone().unwrap_or_else(harness_sys::current_folder).join(plugin);
    let fetched = if harness_sys::is_folder(&folder) || plugin.contains('/') {
        Fetched::at(&folder, plugin, printer)?
    } else {
        let state = State::open(place, printer)?;
        installed::installed(&state, state.locked(plugin)?, printer)?
    };
    let trial = Trial::open(&fetched, Map::new()).map_err(|error| project::unopened(&error, printer))?;
    project::report(trial.project.loaded().registry(), printer);
    let shown = if plugin == "." { String::new() } else { format!("{}/", plugin.trim_end_matches('/')) };
    let place = TestFolder {
        folder: trial.scratch.path(),
        // Files are named as the author knows them.
        renamed: Some((format!(".harness/plugins/{}/", fetched.name()), shown)),
    };
    let (names, junit, confine) = (command.names.clone(), command.junit.clone(), command.confine.clone());
    let (cases, quiet) = (command.cases.clone(), command.quiet);
    let command = Test { names, cases, quiet, json: command.json, junit, watch: false, confine };
    Ok(test::of_project(&command, &place, &trial.project, printer))
}

/// What the cases of a plugin show.
#[derive(Debug, Default)]
pub(super) struct Cases {
    /// Cases that were run.
    count: usize,
    /// Those that failed, by their names.
    failed: Vec<String>,
    /// In how many of them each rule was used; none of one whose use is not seen.
    uses: Vec<(Rule, Option<usize>)>,
    /// Why not all of them were run.
    unrun: Option<String>,
}

impl Cases {
    /// Runs the cases of a plugin that nobody consented to yet. `limits` are those of the host policy: the cases are
    /// third-party, too.
    pub(super) fn of(fetched: &Fetched, limits: Map<String, Json>, printer: Printer) -> Self {
        let unrun = |why: String| Self { unrun: Some(why), ..Self::default() };
        let trial = match Trial::open(fetched, limits) {
            Ok(trial) => trial,
            Err(OpenError::Artifacts(registry)) => {
                let first = registry.diagnostics().iter().next().map(|one| one.message.clone());
                return unrun(first.unwrap_or_default());
            }
            Err(error) => return unrun(error.to_string()),
        };
        let mut results = Results::default();
        let all = run_all(&trial, &mut results, printer);
        Self {
            count: results.cases().count(),
            failed: results.cases().filter(|ran| !ran.passed()).map(test::Ran::shown).collect(),
            uses: fetched.plugin.rules().map(|rule| (rule.clone(), used(rule, &results))).collect(),
            unrun: (!all).then(|| format!("they take more than {} s", MOST.as_secs())),
        }
    }

    /// What they show of a rule, in words.
    pub(super) fn note(&self, rule: &Rule) -> Option<String> {
        let used = self.uses.iter().find(|(one, _)| one == rule)?.1?;
        match (self.count, used) {
            (0, _) => None,
            (_, 0) => Some("no case uses this".to_owned()),
            (count, used) => Some(format!("used by {used} of its {}", plural(count, "case"))),
        }
    }

    /// In how many cases a rule was used, for programs.
    pub(super) fn used(&self, rule: &Rule) -> Option<usize> {
        self.uses.iter().find(|(one, _)| one == rule)?.1
    }

    /// How they went, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match (self.count, self.failed.len()) {
            (0, _) if self.unrun.is_some() => {}
            (0, _) => lines.push("it has no cases: nothing shows what it uses".to_owned()),
            (count, 0) => lines.push(format!("{} passed", plural(count, "case"))),
            (count, failed) => lines.push(format!("{}, {failed} failed:", plural(count, "case"))),
        }
        lines.extend(self.failed.iter().take(MOST_NAMED).map(|name| format!("  failed: {name}")));
        let more = self.failed.len().saturating_sub(MOST_NAMED);
        lines.extend((more > 0).then(|| format!("  and {more} more")));
        lines.extend(self.unrun.iter().map(|why| format!("its cases cannot be run: {why}")));
        lines.iter().map(|line| escape::line(line).into_owned()).collect()
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Json {
        json!({"count": self.count, "failed": self.failed, "unrun": self.unrun})
    }
}

/// Runs all cases; whether the time was enough for that.
fn run_all(trial: &Trial, results: &mut Results, printer: Printer) -> bool {
    let subjects = test::subjects(&trial.project);
    let all = test::all(&subjects, test::Filter::ALL, results, Some(trial.watch.as_ref()));
    let work = async { tokio::time::timeout(MOST, all).await.is_ok() };
    project::block_on(work, printer).unwrap_or(false)
}

/// In how many cases a rule was used; none where that is not seen.
fn used(rule: &Rule, results: &Results) -> Option<usize> {
    if rule.key == "events" {
        let name = rule.item.as_str().or_else(|| rule.item.get("event")?.as_str())?;
        let event = Event::parse(name)?;
        return Some(results.cases().filter(|ran| ran.event() == Some(&event)).count());
    }
    if !SEEN.contains(&rule.key) {
        return None;
    }
    // A layer of asks speaks of everything: what this one allows is what the rule allows.
    let alone = Grant::new(vec![layer([rule], "")?]);
    let uses = |ran: &&test::Ran| ran.requests().iter().any(|(_, request)| request.allowed(&alone));
    Some(results.cases().filter(uses).count())
}

/// A project with nothing but a plugin.
struct Trial {
    scratch: Scratch,
    project: Project,
    watch: Arc<Watch>,
}

impl Trial {
    /// Makes and opens it.
    fn open(fetched: &Fetched, limits: Map<String, Json>) -> Result<Self, OpenError> {
        let outside = |source: std::io::Error| OpenError::Workspace { path: "plugin".into(), source };
        let scratch = Scratch::new(&[(POLICY.to_owned(), policy(fetched, limits).to_string())]).map_err(outside)?;
        let plugins = scratch.path().join(".harness/plugins");
        harness_sys::tree::create(&plugins).map_err(outside)?;
        fetched.content.write(&plugins.join(fetched.name())).map_err(outside)?;
        let watch = Arc::new(Watch::default());
        let system =
            System::default().with_variables(secrets(fetched).map(|name| (name.clone(), fake(&name))).collect());
        // Of the host policy, its limits alone have a part: nothing of this machine is touched.
        let options = Options {
            coverage: true,
            audit: false,
            machine: Machine::None,
            system,
            watch: Some(watch.clone()),
            ..Options::default()
        };
        let project = Project::open(scratch.path(), options)?;
        Ok(Self { scratch, project, watch })
    }
}

/// The names of the secrets that a plugin asks for.
fn secrets(fetched: &Fetched) -> impl Iterator<Item = String> {
    let rules = fetched.plugin.rules().filter(|rule| rule.key == "secrets");
    rules.filter_map(|rule| rule.item.as_str().map(str::to_owned))
}

/// The value of a secret in cases.
fn fake(name: &str) -> String {
    format!("the value of {name} in cases")
}

/// A policy that grants all that a plugin asks for.
fn policy(fetched: &Fetched, limits: Map<String, Json>) -> Json {
    let mut entry = with_rules(None, &fetched.plugin.rules().cloned().collect::<Vec<_>>());
    // There are no servers.
    entry.as_object_mut().map(|entry| entry.shift_remove("mcp"));
    let hosts = entry.get("network").cloned().unwrap_or_else(|| json!([]));
    let names = |hosts: &Json| -> Vec<Json> {
        let name = |item: &Json| item.get("host").cloned().unwrap_or_else(|| item.clone());
        hosts.as_array().into_iter().flatten().map(name).collect()
    };
    let sent_to = match names(&hosts) {
        none if none.is_empty() => json!(["localhost"]),
        names => json!(names),
    };
    let secrets: Map<String, Json> =
        secrets(fetched).map(|name| (name.clone(), json!({"env": name, "hosts": sent_to}))).collect();
    let mut sandbox = json!({"fs": {"read": ["."], "write": ["."]}});
    if let Some(sandbox) = sandbox.as_object_mut() {
        sandbox.insert("limits".to_owned(), Json::Object(limits));
        for key in ["exec", "env", "services"] {
            sandbox.extend(entry.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        if !secrets.is_empty() {
            sandbox.insert("secrets".to_owned(), Json::Object(secrets));
        }
        sandbox.insert("sources".to_owned(), json!({fetched.source_name(): entry}));
    }
    json!({"network": {"allowed_domains": hosts}, "sandbox": sandbox})
}
