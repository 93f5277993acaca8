//! The step that fetches packages: the registry's own installer behind a wall, in a new folder, with the network to the
//! registry alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::failure::Failure;
use crate::limits::{FETCH, QUOTED};
use crate::process::{self, Host};
use harness_artifact::policy::mcp::{Installer, Packages, ServerCommand};
use harness_artifact::third_party;
use harness_capability::exec::{self, ExecContext, Output};
use harness_capability::secrets::Handles;
use harness_policy::command::{CommandRule, ExecRules};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Scope};
use harness_policy::limits::{LimitKey, LimitRules};
use harness_policy::path::{FsRules, PathPattern};
use harness_sys as sys;
use harness_sys::store::Store;

use super::program::PYTHON;
use super::registry::Registry;

/// In the new folder: what is kept, and what the installer keeps for itself.
const TREE: &str = "tree";
const HOME: &str = "home";

/// Lines of an installer that are quoted.
const MAX_LINES: usize = 4;

/// What installers write about how they got the packages: it differs each time, or by the registry's address.
const NOTES: [&str; 2] = ["node_modules/.package-lock.json", "python/.lock"];

/// Variables of the operator that installers need to trust the registry's certificate.
const CERTIFICATES: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"];

/// Installs packages, and gives the digest of all of it. No script of theirs is run, and nothing that was published later
/// than a moment is taken.
///
/// # Errors
///
/// Where the policy does not cover the server's command or the registry, and what the installer says.
pub(super) async fn install(
    store: &Store,
    (server, packages): (&ServerCommand, &Packages),
    (registry, before): (&Registry, &str),
    host: &Host<'_>,
) -> Result<String, Failure> {
    // Fetching is the first half of what it does.
    host.grant.decide_command(&server.program, &server.args)?;
    let unkept = |error: std::io::Error| {
        Failure::Broken(format!("its packages cannot be kept in `{}`: {error}", store.folder().display()))
    };
    let fresh = store.fresh().map_err(unkept)?;
    let folder = sys::real_path(fresh.path()).map_err(unkept)?;
    let (program, args) = line(server, packages, registry, before);
    let mut env: BTreeMap<String, String> =
        CERTIFICATES.iter().filter_map(|&name| Some((name.to_owned(), host.variables.value(name)?))).collect();
    env.extend(process::search_path(server, host)?.map(|path| ("PATH".to_owned(), path)));
    env.insert("HOME".to_owned(), folder.join(HOME).to_string_lossy().into_owned());
    let grant = grant(host.grant, (&program, &args), registry)?;
    let output = run(&grant, &folder, exec::ServiceCommand { program, args, env, installed: None }, host).await?;
    if output.exit_code != 0 {
        return Err(Failure::Broken(format!("its packages cannot be fetched: {}", why(&output))));
    }
    let store = store.clone();
    // What the installer kept for itself goes with the rest of the folder.
    let kept = tokio::task::spawn_blocking(move || store.keep(&fresh, TREE, &NOTES));
    kept.await.map_err(std::io::Error::other).and_then(|kept| kept).map_err(unkept)
}

/// The command of the installer, which starts in the new folder.
fn line(server: &ServerCommand, packages: &Packages, registry: &Registry, before: &str) -> (String, Vec<String>) {
    let (name, args): (&str, Vec<String>) = match packages.installer {
        Installer::Npm => (
            "npm",
            [
                "install --ignore-scripts --install-links --omit=dev --no-audit --no-fund --no-package-lock --no-save",
                "--no-update-notifier --no-progress --loglevel=error --global=false",
            ]
            .iter()
            .flat_map(|part| part.split(' ').map(str::to_owned))
            .chain([format!("--cache={HOME}/cache"), format!("--prefix={TREE}")])
            .chain([format!("--registry={}", registry.url), format!("--before={before}")])
            .collect(),
        ),
        Installer::Uv => (
            "uv",
            "pip install --no-config --no-build --no-python-downloads --link-mode=copy --no-progress --quiet --system"
                .split(' ')
                .map(str::to_owned)
                .chain([format!("--cache-dir={HOME}/cache"), format!("--target={TREE}/{PYTHON}")])
                .chain([format!("--default-index={}", registry.url), format!("--exclude-newer={before}")])
                .collect(),
        ),
    };
    // Beside the runner, where that is named by its path.
    let program = match server.program.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{name}"),
        None => name.to_owned(),
    };
    (program, args.into_iter().chain(["--".to_owned()]).chain(packages.specs.iter().cloned()).collect())
}

/// What the installer may do: what the machine's layers allow of it, in the new folder, and of the network the registry.
fn grant(of_server: &Grant, (program, args): (&str, &[String]), registry: &Registry) -> Result<Grant, Failure> {
    let rule = CommandRule::exactly(program, args).map_err(Failure::Broken)?;
    let machine = of_server.layers().iter().filter(|layer| layer.origin.scope == Scope::Machine).map(|layer| {
        let mut layer = Layer::clone(layer);
        // They speak of the workspace, which it does not see.
        layer.fs = None;
        // Of the commands that they allow, the server's is this one's reason.
        layer.exec.iter_mut().for_each(|exec| exec.allow = vec![rule.clone()]);
        layer
    });
    let whole = || PathPattern::parse(".").map(|pattern| vec![pattern]).unwrap_or_default();
    let own = Layer {
        fs: Some(FsRules { read: whole(), write: whole(), ..FsRules::default() }),
        exec: Some(ExecRules {
            allow: vec![rule.clone()],
            env: Vec::new(),
            folders: of_server.exec_folders(),
            network: registry.network.clone(),
            unconfined: false,
        }),
        limits: LimitRules::default().with(LimitKey::FileBytes, Some(*LimitKey::FileBytes.facts().bounds.end())),
        ..Layer::silent(of_server.nearest_origin())
    };
    Ok(Grant::new(machine.chain([own]).collect()))
}

async fn run(grant: &Grant, folder: &Path, command: exec::ServiceCommand, host: &Host<'_>) -> Result<Output, Failure> {
    let unopened = |error: std::io::Error| Failure::Broken(format!("`{}`: {error}", folder.display()));
    let dir = Dir::open_ambient_dir(folder, ambient_authority()).map_err(unopened)?;
    let handles = Handles::new(host.vault.clone());
    let (variables, http, listings) = (host.variables, host.http, &Arc::default());
    let place = ExecContext { dir: &dir, workspace: folder, listings, handles: &handles, variables, http };
    let program = command.program.clone();
    exec::run_service(grant, place, command, FETCH).await.map_err(|error| match error {
        exec::Error::AccessDenied(denial) => Failure::Refused { refusal: denial.into(), difference: None },
        exec::Error::InvalidCommand(why) | exec::Error::Start(why) => {
            Failure::Broken(format!("`{program}` cannot fetch its packages: {why}"))
        }
        exec::Error::NotFound(_) => Failure::Broken(format!("there is no program `{program}` to fetch its packages")),
    })
}

/// What an installer says of its failure, in one line.
fn why(output: &Output) -> String {
    if output.timed_out {
        return format!("it took more than {} seconds", FETCH.as_secs());
    }
    let said = if output.stderr.trim().is_empty() { &output.stdout } else { &output.stderr };
    // What the host says of it comes last, and is the reason.
    let (own, others): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("harness: "));
    // A line for the policy would not help: the host has made this grant.
    let lines = own.into_iter().filter_map(|line| line.split("; add `").next()).chain(others);
    let lines = lines.map(|line| line.trim().trim_start_matches("npm error").trim_start_matches("harness: ").trim());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).take(MAX_LINES).collect();
    match lines.is_empty() {
        true if output.exit_code < 0 => "the installer was ended by a signal".to_owned(),
        true => format!("the installer ended with the code {}", output.exit_code),
        false => third_party::line(&lines.join("; ").chars().take(QUOTED).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use harness_artifact::policy::mcp::PackageProgram;
    use harness_capability::env::Variables;
    use harness_policy::command::{CommandNetwork, CommandReach, FolderRule};
    use harness_policy::layer::Origin;

    use super::*;

    fn command(program: &str) -> ServerCommand {
        ServerCommand { program: program.to_owned(), args: Vec::new(), env: Vec::new() }
    }

    #[test]
    fn an_installer_takes_nothing_that_was_published_later() {
        let told = |installer, program: &str| {
            let registry = Registry::of(installer, &Variables::default()).unwrap();
            let specs = vec!["a".to_owned(), "b".to_owned()];
            let program_of = PackageProgram::Named("a".to_owned());
            let packages = Packages { installer, specs, program: program_of, args: vec!["-x".to_owned()] };
            let (program, args) = line(&command(program), &packages, &registry, "2026-07-28T12:00:00Z");
            format!("{program} {}", args.join(" "))
        };
        assert_eq!(
            told(Installer::Npm, "npx"),
            "npm install --ignore-scripts --install-links --omit=dev --no-audit --no-fund --no-package-lock --no-save \
             --no-update-notifier --no-progress --loglevel=error --global=false --cache=home/cache --prefix=tree \
             --registry=https://registry.npmjs.org/ --before=2026-07-28T12:00:00Z -- a b"
        );
        assert_eq!(
            told(Installer::Uv, "/opt/uv/uvx"),
            "/opt/uv/uv pip install --no-config --no-build --no-python-downloads --link-mode=copy --no-progress --quiet \
             --system --cache-dir=home/cache --target=tree/python --default-index=https://pypi.org/simple \
             --exclude-newer=2026-07-28T12:00:00Z -- a b"
        );
    }

    #[test]
    fn the_machine_narrows_what_an_installer_may_do() {
        let registry = Registry::of(Installer::Npm, &Variables::default()).unwrap();
        let rules = |allow: &str, network| {
            let allow = vec![CommandRule::parse(allow).unwrap()];
            let folders = vec![FolderRule::parse("/opt/node").unwrap()];
            Some(ExecRules { allow, folders, network, ..ExecRules::default() })
        };
        let layer = |scope, exec| Layer { exec, ..Layer::silent(Origin::new("policy.md", scope)) };
        let machine = |network| layer(Scope::Machine, rules("npx *", network));
        let server = || layer(Scope::Server("s".to_owned()), rules("npx a", CommandNetwork::None));
        let args = vec!["install".to_owned()];
        let of = |layers: Vec<Layer>| grant(&Grant::new(layers), ("npm", &args), &registry).unwrap();
        let alone = of(vec![server()]);
        assert!(alone.decide_command("npm", &args).is_ok() && alone.decide_command("npm", &[]).is_err());
        assert!(alone.decide_command("npx", &["a".to_owned()]).is_err());
        let folders = |grant: &Grant| grant.exec_folders().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(folders(&alone), ["/opt/node"]);
        let hosts = |grant: &Grant| {
            grant.command_hosts().iter().map(|host| format!("{}:{}", host.host(), host.port())).collect::<Vec<_>>()
        };
        assert_eq!(hosts(&alone), ["registry.npmjs.org:443"]);
        // A machine without a network for commands has none for this one.
        assert_eq!(of(vec![machine(CommandNetwork::None), server()]).exec_network(), CommandReach::None);
        let wide = of(vec![machine(CommandNetwork::All), server()]);
        assert_eq!(
            (wide.exec_network(), hosts(&wide)),
            (CommandReach::Hosts, vec!["registry.npmjs.org:443".to_owned()])
        );
        assert!(wide.decide_command("npm", &args).is_ok() && wide.decide_command("npx", &args).is_err());
        // No layer opens anything that it could write to but the new folder.
        assert!(wide.decide_service(harness_policy::layer::Service::Cache).is_err());
    }

    #[test]
    fn a_failure_is_one_line() {
        let of = |stderr: &str, timed_out| {
            why(&Output {
                stdout: String::new(),
                stderr: stderr.to_owned(),
                exit_code: 1,
                duration_ms: 0,
                timed_out,
                truncated: false,
            })
        };
        let npm = "npm error code E404\nnpm error 404 Not Found - GET x\nnpm error\nnpm error 404\nnpm error more\nnpm error a\n";
        assert_eq!(of(npm, false), "code E404; 404 Not Found - GET x; 404; more");
        let refused = format!("{npm}harness: the host `a.example:443` is not allowed; add `a.example` to `x`\n");
        assert_eq!(
            of(&refused, false),
            "the host `a.example:443` is not allowed; code E404; 404 Not Found - GET x; 404"
        );
        assert_eq!(of("\n", false), "the installer ended with the code 1");
        assert_eq!(of("a\u{1b}[31mb\n", false), r"a\u{1b}[31mb");
        assert_eq!(of(npm, true), "it took more than 300 seconds");
    }
}
