//! `harness doctor`: what this machine offers, and what would be refused on it.

use std::path::Path;

use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_capability::env::Variables;
use harness_capability::secrets::Vault;
use harness_dispatch::confinement;
use harness_policy::command::ExecRules;
use harness_registry::Registry;
use harness_sandbox::engine::{INTERPRETER, Sandbox, Settings, WASMTIME};
use harness_sys as sys;
use harness_wall::confine;
use harness_wall::{Count, Memory, Namespaces, Offers, Tier};
use serde_json::json;

use super::args::{Doctor, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

/// One thing that was checked.
pub(crate) struct Finding {
    pub(crate) name: &'static str,
    pub(crate) good: bool,
    pub(crate) what: String,
}

pub(crate) fn run(command: &Doctor, place: &ProjectArgs, printer: &Printer) -> Exit {
    let mut findings = vec![
        Finding { name: "engine", good: true, what: format!("wasmtime {WASMTIME}") },
        Finding { name: "interpreter", good: true, what: INTERPRETER.get(..16).unwrap_or(INTERPRETER).to_owned() },
        Finding { name: "system", good: true, what: sys::system() },
    ];
    let works = match Sandbox::new(Settings::default()) {
        Ok(sandbox) => {
            let (good, what) = match sandbox.pooling() {
                Ok(()) => (true, "instances come from pools".to_owned()),
                Err(why) => (false, format!("no pools, each instance is mapped separately: {why}")),
            };
            findings.push(Finding { name: "pooling", good, what });
            true
        }
        Err(error) => {
            findings.push(Finding { name: "sandbox", good: false, what: format!("does not start: {error:#}") });
            false
        }
    };
    let scan = Sandbox::pagemap_scan();
    let what = if scan {
        "PAGEMAP_SCAN: memory is reset page by page"
    } else {
        "no PAGEMAP_SCAN (Linux 6.7): memory is reset whole"
    };
    findings.push(Finding { name: "memory reset", good: scan, what: what.to_owned() });
    findings.extend(walls());
    let root = project::root(place);
    let registry = project::registry(place);
    findings.push(host(&registry, &root));
    if let Some(policy) = registry.policy() {
        findings.push(commands(policy.project.exec.as_ref(), Offers::get().wall().is_ok()));
        findings.extend(secrets(policy, &root));
    }
    if command.json {
        let rows = findings.iter().map(|f| json!({"name": f.name, "ok": f.good, "what": f.what}));
        printer.json(&json!({"works": works, "findings": rows.collect::<Vec<_>>()}));
    } else {
        let lines = findings.iter().map(|finding| {
            let mark = if finding.good { "ok  " } else { "note" };
            format!("{mark}  {:<13} {}\n", finding.name, escape::line(&finding.what))
        });
        printer.data(&lines.collect::<String>());
    }
    if works { Exit::Completed } else { Exit::Fault }
}

/// Whether the project's tools may run commands, and whether they can.
fn commands(exec: Option<&ExecRules>, wall: bool) -> Finding {
    let (good, what) = match exec.filter(|exec| !exec.allow.is_empty()) {
        None => (true, "not granted: nothing runs"),
        Some(exec) if exec.unconfined => (false, "granted to the project's own tools, unconfined: without a wall"),
        Some(_) if !wall => {
            (false, "granted to the project's own tools, but none can run: this machine has no wall for them")
        }
        Some(_) => (true, "granted to the project's own tools"),
    };
    Finding { name: "commands", good, what: what.to_owned() }
}

/// Whether the secrets of the policy have values. Nothing where it names none.
fn secrets(policy: &ProjectPolicy, root: &Path) -> Vec<Finding> {
    let name = "secrets";
    let vault = Vault::open(policy.secrets.iter().map(|secret| &secret.value), [], root, &Variables::Host);
    let missing: Vec<_> = vault.missing().map(|(secret, why)| format!("{secret} has no value: {why}")).collect();
    if missing.is_empty() {
        let what = format!("{} with a value", policy.secrets.len());
        return (!policy.secrets.is_empty()).then_some(Finding { name, good: true, what }).into_iter().collect();
    }
    missing.into_iter().map(|what| Finding { name, good: false, what }).collect()
}

/// What the kernel offers to hold commands with, and the wall that stands.
pub(crate) fn walls() -> Vec<Finding> {
    let offers = Offers::get();
    let (good, what) = match &offers.namespaces {
        Ok(Namespaces::Own) => (true, "a command gets its own view of files and processes".to_owned()),
        Ok(Namespaces::User) => {
            (true, "a command gets its own view of files and processes, in a user namespace".to_owned())
        }
        Err(why) => (false, format!("a command sees the names of all files and processes: {why}")),
    };
    let what = match (good, offers.network) {
        (true, false) => format!("{what}, and sees the machine's connections: there are no namespaces for networks"),
        _ => what,
    };
    let namespaces = Finding { name: "namespaces", good, what };
    let (good, what) = match offers.landlock {
        Some(version) => (true, format!("version {version}: the kernel confines the files of commands")),
        None => (false, "not available: only namespaces confine files".to_owned()),
    };
    let landlock = Finding { name: "landlock", good, what };
    let (good, what) = match &offers.filters {
        Ok(()) => (true, "seccomp filters the system calls of commands".to_owned()),
        Err(why) => (false, format!("no filters of system calls: {why}")),
    };
    let filters = Finding { name: "filters", good, what };
    let (good, what) = match offers.wall() {
        Ok(wall) => {
            let count = match wall.count {
                Count::Group => "counted in a control group",
                Count::Namespace => "counted in their namespace",
                Count::User => "counted with all processes of this user, so the limit is approximate",
            };
            let memory = match wall.memory {
                Memory::Command => "all processes of a command together",
                Memory::Process => "each process of a command",
            };
            let tier = Tier::Confined(wall.files);
            (true, format!("commands run behind {tier}; their processes are {count}; the memory limit covers {memory}"))
        }
        Err(missing) => {
            let missing = missing.join(", and ");
            (false, format!("no command runs, unless `exec.unconfined` is true: the kernel lacks {missing}"))
        }
    };
    vec![namespaces, landlock, filters, Finding { name: "second wall", good, what }]
}

/// What of itself this process gives up before it runs a script of the project's.
fn host(registry: &Registry, root: &Path) -> Finding {
    if let Err(why) = &Offers::get().filters {
        return Finding { name: "host", good: false, what: format!("keeps its system calls: {why}") };
    }
    let plan = confine::Plan::of(&confinement::needs(registry, root, None, None, &Variables::Host));
    Finding { name: "host", good: plan.whole().is_ok(), what: format!("drops before it runs scripts: {plan}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_artifact::policy::layer;

    #[test]
    fn commands_that_cannot_run_are_told() {
        let told = |rules: &str, wall| {
            let (layer, _) = layer::parse("caller", rules);
            let found = commands(layer.unwrap().exec.as_ref(), wall);
            (found.good, found.what)
        };
        for (rules, wall, good, what) in [
            ("{}", true, true, "not granted: nothing runs"),
            ("exec: { allow: [] }", false, true, "not granted: nothing runs"),
            ("exec: { allow: [sh] }", true, true, "granted to the project's own tools"),
            (
                "exec: { allow: [sh] }",
                false,
                false,
                "granted to the project's own tools, but none can run: this machine has no wall for them",
            ),
            (
                "exec: { allow: [sh], unconfined: true }",
                false,
                false,
                "granted to the project's own tools, unconfined: without a wall",
            ),
        ] {
            assert_eq!(told(rules, wall), (good, what.to_owned()), "{rules} {wall}");
        }
    }
}
