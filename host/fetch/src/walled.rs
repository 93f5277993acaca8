//! A command that fetches or unpacks: behind a wall, in the new folder, with what the host policy lets every command have
//! and no more.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use harness_artifact::third_party;
use harness_capability::exec::{self, ExecContext, Output, ServiceCommand};
use harness_capability::secrets::{Handles, Vault};
use harness_policy::command::{CommandNetwork, CommandReach, CommandRule, ExecRules, FolderRule};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::{LimitKey, LimitRules};
use harness_policy::path::{FsRules, PathPattern};

use crate::{Failure, FetchContext, STEP, late};

/// Bytes of each file that a step writes: a pack of git, or what is in it.
const MAX_FILE: u64 = 64 << 20;
/// MiB of memory of a step.
const MAX_MEMORY_MB: u64 = 512;
/// Processes and threads of a step: git starts one for each core and some more.
const MAX_PROCESSES: u64 = 64;
/// Lines and characters of what a command said that are quoted.
const MAX_LINES: usize = 3;
const MAX_QUOTED: usize = 400;

/// What runs in one step.
pub(crate) struct Step {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) network: CommandNetwork,
    /// A folder of this machine that it reads.
    pub(crate) folder: Option<FolderRule>,
    pub(crate) installed: Option<exec::Installed>,
}

impl Step {
    /// A command without variables, without a network, and with nothing but the new folder.
    pub(crate) fn new(program: &str, args: Vec<String>) -> Self {
        let (env, network) = (BTreeMap::new(), CommandNetwork::None);
        Self { program: program.to_owned(), args, env, network, folder: None, installed: None }
    }
}

/// Runs a step to its end.
pub(crate) async fn run(folder: &Path, step: Step, place: FetchContext<'_>) -> Result<Output, Failure> {
    let grant = grant(&step, place.machine)?;
    if step.network.is_some() && grant.exec_network() == CommandReach::None {
        return Err(Failure {
            why: "the host policy gives commands no network".to_owned(),
            hint: Some("`sandbox.exec.network` of the host policy opens it".to_owned()),
        });
    }
    let unopened = |error: std::io::Error| Failure::new(format!("`{}`: {error}", folder.display()));
    let dir = Dir::open_ambient_dir(folder, ambient_authority()).map_err(unopened)?;
    // None: what is fetched has no part in the project's secrets.
    let handles = Handles::new(Arc::new(Vault::default()));
    let (variables, http, listings) = (place.variables, place.http, &Arc::default());
    let context = ExecContext { dir: &dir, workspace: folder, listings, handles: &handles, variables, http };
    let Step { program, args, env, installed, .. } = step;
    let shown = program.clone();
    let command = ServiceCommand { program, args, env, installed };
    let output = exec::run_service(&grant, context, command, STEP).await.map_err(|error| match error {
        exec::Error::AccessDenied(denial) => {
            Failure { why: denial.reason, hint: Some(denial.hint).filter(|hint| !hint.is_empty()) }
        }
        exec::Error::InvalidCommand(why) | exec::Error::Start(why) => {
            Failure::new(format!("`{shown}` cannot be run: {why}"))
        }
        exec::Error::NotFound(_) => Failure {
            why: format!("there is no program `{shown}` on this machine"),
            hint: Some(format!("install `{shown}`")),
        },
    })?;
    if output.timed_out {
        return Err(late());
    }
    Ok(output)
}

/// The layers of the host policy, as far as they are about commands, and a layer with what the step needs.
fn grant(step: &Step, machine: &[Arc<Layer>]) -> Result<Grant, Failure> {
    let rule = CommandRule::exactly(&step.program, &step.args).map_err(Failure::new)?;
    let machine = machine.iter().filter(|layer| layer.origin.scope == Scope::Machine).map(|layer| {
        let mut layer = Layer::clone(layer);
        // They speak of the workspace, which it does not see.
        layer.fs = None;
        if let Some(exec) = &mut layer.exec {
            // It is no command of a tool: a person asked for the plugin.
            exec.allow = vec![rule.clone()];
            exec.folders.extend(step.folder.clone());
        }
        layer
    });
    let whole = || PathPattern::parse(".").map(|pattern| vec![pattern]).unwrap_or_default();
    let limits = [
        (LimitKey::FileBytes, MAX_FILE),
        (LimitKey::CommandMemory, MAX_MEMORY_MB),
        (LimitKey::Processes, MAX_PROCESSES),
    ];
    let limits = limits.into_iter().fold(LimitRules::default(), |rules, (key, most)| rules.with(key, Some(most)));
    let own = Layer {
        fs: Some(FsRules { read: whole(), write: whole(), ..FsRules::default() }),
        exec: Some(ExecRules {
            allow: vec![rule.clone()],
            folders: step.folder.iter().cloned().collect(),
            network: step.network.clone(),
            ..ExecRules::default()
        }),
        limits,
        ..Layer::silent(Origin::new("harness plugin", Scope::Default))
    };
    Ok(Grant::new(machine.chain([own]).collect()))
}

/// What a command said of its failure, in one line that does nothing to a terminal.
pub(crate) fn said(output: &Output, otherwise: &str) -> String {
    let (own, others): (Vec<&str>, Vec<&str>) = output.stderr.lines().partition(|line| line.starts_with("harness: "));
    // What the wall says is the reason; a line for the policy would not help, because the host has made the grant.
    let own = own.into_iter().filter_map(|line| line.trim_start_matches("harness: ").split("; add `").next());
    let others = others.into_iter().map(|line| line.trim_start_matches("error: ").trim_start_matches("fatal: ").trim());
    let lines: Vec<&str> = own.chain(others).filter(|line| !line.is_empty()).take(MAX_LINES).collect();
    match lines.is_empty() {
        true if output.exit_code < 0 => format!("{otherwise}: it was ended by a signal, perhaps at a limit"),
        true => otherwise.to_owned(),
        false => third_party::line(&lines.join("; ").chars().take(MAX_QUOTED).collect::<String>()),
    }
}
