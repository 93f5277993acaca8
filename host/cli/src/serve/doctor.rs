//! `harness serve doctor`: whether a machine, a data folder and a configuration are ready for a server. Nothing is changed.

use std::path::{Path, PathBuf};

use clap::Args;
use harness_artifact::escape;
use harness_artifact::server::ServerConfig;
use harness_serve::CONNECTIONS;
use harness_serve::seal::{MAX_KEY, Sealer};
use harness_store::{SCHEMA, user_of, version_of};
use harness_sys as sys;
use harness_wall::{Memory, Offers};
use serde_json::json;

use super::{Door, listen, plan};
use crate::doctor::walls;
use crate::exit::Exit;
use crate::printer::Printer;

/// Descriptors of the server beside connections: audit logs, the store, projects and commands.
const OWN_FILES: u64 = 4_096;
/// Mappings of an instance, of which two are there before it is used and five while it runs; and those of everything else.
const MAPPINGS: u64 = 6;
const OTHER_MAPPINGS: u64 = 4_096;
/// Room on the disk below which the server takes no work, and below which the operator should hear of it.
const LITTLE: u64 = 1 << 20;
const LOW: u64 = 1 << 30;
const LOW_FILES: u64 = 10_000;
/// The beginning of 2026: a clock before it was never set.
const YEAR: u64 = 1_767_225_600;
/// Seconds that the clock may be behind the last change of the store.
const BEHIND: u64 = 60;

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 ready, perhaps with notes, 1 a server would not start, or not be safe.")]
pub(crate) struct Doctor {
    /// Data folder to check. Default: only the machine and the configuration are checked.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    #[command(flatten)]
    door: Door,

    /// Print the findings as one JSON object.
    #[arg(long)]
    json: bool,
}

/// How good what was found is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// As it should be.
    Good,
    /// The server starts, with less than there could be.
    Note,
    /// The server does not start, or is not safe.
    Bad,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was checked.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    name: &'static str,
    state: State,
    what: String,
    /// What to do.
    hint: Option<&'static str>,
}

fn good(name: &'static str, what: impl Into<String>) -> Finding {
    Finding { name, state: State::Good, what: what.into(), hint: None }
}

fn note(name: &'static str, what: impl Into<String>, hint: &'static str) -> Finding {
    Finding { name, state: State::Note, what: what.into(), hint: Some(hint) }
}

fn bad(name: &'static str, what: impl Into<String>, hint: &'static str) -> Finding {
    Finding { name, state: State::Bad, what: what.into(), hint: Some(hint) }
}

pub(super) fn run(command: &Doctor, printer: Printer) -> Exit {
    let data = command.data.as_deref();
    let server = data.and_then(|data| user_of(data).ok().flatten());
    let (config, beside, of_config) = configuration(&command.door);
    let instances = config.as_ref().map_or_else(|| ServerConfig::default().instances, |config| config.instances);
    let mut findings = machine();
    findings.push(files(sys::open_files().0));
    findings.push(mappings(sys::read_text_whole(Path::new("/proc/sys/vm/max_map_count")).ok().as_deref(), instances));
    findings.push(of_config);
    if let Some(config) = &config {
        findings.push(confinement(data, config, &beside));
    }
    findings.push(address(&command.door, server.as_deref()));
    if let Some(data) = data {
        findings.extend(folder(data, server.as_deref()));
    } else {
        findings.push(clock(sys::since_epoch().as_secs(), 0));
    }
    let is_ready = findings.iter().all(|finding| finding.state != State::Bad);
    if command.json {
        let rows =
            findings.iter().map(|f| json!({"name": f.name, "state": f.state.name(), "what": f.what, "hint": f.hint}));
        printer.json(&json!({"ready": is_ready, "findings": rows.collect::<Vec<_>>()}));
    } else {
        printer.data(&findings.iter().map(line).collect::<String>());
    }
    if is_ready { Exit::Completed } else { Exit::Failed }
}

fn line(finding: &Finding) -> String {
    let Finding { name, state, what, hint } = finding;
    let hint = hint.map(|hint| format!("      {:<15} {hint}\n", "")).unwrap_or_default();
    format!("{:<4}  {name:<15} {}\n{hint}", state.name(), escape::line(what))
}

/// What the kernel offers for the walls around commands of tenants.
fn machine() -> Vec<Finding> {
    let hint = |name| match name {
        "namespaces" => {
            "let users make namespaces: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, `kernel.unprivileged_userns_clone=1`"
        }
        "landlock" => "use Linux 6.12 or later, with `landlock` in its boot parameter `lsm=`",
        "filters" => "use a kernel with seccomp, and no outer filter that denies `seccomp`",
        _ => "see docs/walls.md; without a wall, commands of tenants are denied",
    };
    let found = walls().into_iter().map(|found| match found.good {
        true => good(found.name, found.what),
        false => note(found.name, found.what, hint(found.name)),
    });
    let groups = match &Offers::get().groups {
        Ok(Memory::Command) => {
            good("control groups", "delegated: processes and memory of a command are limited together")
        }
        Ok(Memory::Process) => note(
            "control groups",
            "delegated without memory: each process of a command is limited by itself",
            "delegate the controller `memory` too: `Delegate=yes` in the unit of the server",
        ),
        Err(why) => note(
            "control groups",
            format!("not delegated: {why}"),
            "run the server as a unit with `Delegate=yes`, such as `harness-serve.service`",
        ),
    };
    found.chain([groups]).collect()
}

fn files(limit: u64) -> Finding {
    let most = u64::try_from(CONNECTIONS).unwrap_or(u64::MAX).saturating_add(OWN_FILES);
    if limit >= most {
        return good("open files", format!("{limit} at one time"));
    }
    let what = format!("{limit} at one time, and {CONNECTIONS} connections need {most}");
    note("open files", what, "raise the limit: `LimitNOFILE=65536` in the unit, or `ulimit -n 65536`")
}

fn mappings(limit: Option<&str>, instances: u32) -> Finding {
    let name = "mappings";
    let most = u64::from(instances).saturating_mul(MAPPINGS).saturating_add(OTHER_MAPPINGS);
    match limit.and_then(|text| text.trim().parse::<u64>().ok()) {
        None => note(name, "the limit of this machine cannot be read", "see that `/proc` is mounted"),
        Some(limit) if limit >= most => {
            good(name, format!("{limit} for each process, {instances} instances need up to {most}"))
        }
        Some(limit) => note(
            name,
            format!("{limit} for each process, and {instances} instances need up to {most}"),
            "raise it with `sysctl vm.max_map_count=262144`, or lower `instances` in the configuration",
        ),
    }
}

/// The configuration, the folder beside it, and what is wrong with it.
fn configuration(door: &Door) -> (Option<ServerConfig>, PathBuf, Finding) {
    let name = "configuration";
    let Some(file) = &door.config else {
        let what = "none: every tenant is of the class `default`";
        return (Some(ServerConfig::default()), PathBuf::new(), good(name, what));
    };
    let beside = file.parent().map(Path::to_owned).unwrap_or_default();
    let text = match sys::read_text(file) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("`{}` cannot be read: {error}", file.display());
            return (None, beside, bad(name, what, "name a file that this user reads with `--config`"));
        }
    };
    let (config, wrong) = ServerConfig::parse(&file.display().to_string(), &text);
    let Some(config) = config else {
        let first = wrong.iter().next();
        let message = first.map(|one| one.message.clone()).unwrap_or_default();
        let line = first.and_then(|one| one.position.as_ref()).map(|at| format!(":{}", at.line)).unwrap_or_default();
        let what = format!("{}{line}: {message}", file.display());
        return (None, beside, bad(name, what, "correct it; the keys are in docs/serve.md"));
    };
    let classes = config.classes.len();
    let what = format!("{classes} classes, {} instances", config.instances);
    (Some(config), beside, good(name, what))
}

/// What the process would drop, and the policies of classes.
fn confinement(data: Option<&Path>, config: &ServerConfig, beside: &Path) -> Finding {
    let name = "confinement";
    match plan(data.unwrap_or(Path::new("data")), config, beside) {
        Err(why) => bad(name, why, "correct the policy that the class names"),
        Ok(plan) => match plan.whole() {
            Ok(_) => good(name, format!("the server drops {plan}")),
            Err(_) => note(name, format!("the server drops {plan}"), "see docs/walls.md for what the kernel needs"),
        },
    }
}

/// Whether tenants can be let in. An address that a running server has is not tried.
fn address(door: &Door, server: Option<&str>) -> Finding {
    let name = "address";
    let scheme = match () {
        () if door.tls_cert.is_some() => "with TLS",
        () if door.behind_proxy => "without TLS, behind a proxy",
        () => "of the loopback interface",
    };
    match listen(door, None) {
        Ok(_) => good(name, format!("{}, {scheme}", door.listen)),
        Err((why, _)) if server.is_some() && why.contains("in use") => {
            good(name, format!("{}, {scheme}: in use, perhaps by the running server", door.listen))
        }
        Err((why, Some(hint))) => bad(name, why, hint),
        Err((why, None)) => bad(
            name,
            why,
            "choose another address, or correct the files of `--tls-cert`, `--tls-key` and `--tls-client-ca`",
        ),
    }
}

/// The clock, beside the last change of the store.
fn clock(now: u64, changed: u64) -> Finding {
    let hint = "set the clock, and keep it by NTP: budgets, expiry and retention go by it";
    if now < YEAR {
        return bad("clock", "it is before 2026", hint);
    }
    if now.saturating_add(BEHIND) < changed {
        let what = format!("it is {} s behind the last change of the store", changed.saturating_sub(now));
        return bad("clock", what, hint);
    }
    good("clock", "not behind what is stored")
}

/// The data folder, and what is in it.
fn folder(data: &Path, server: Option<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    if !sys::is_folder(data) {
        found.push(match sys::is_gone(data) {
            true => good("data folder", "not there yet: the first start creates it"),
            false => bad("data folder", "it is not a folder", "name a folder with `--data`"),
        });
        found.push(clock(sys::since_epoch().as_secs(), 0));
        return found;
    }
    found.push(owned("data folder", data, 0o700));
    if sys::is_there(&data.join("restoring")) {
        let hint = "empty the folder, and restore the backup again: `harness admin restore`";
        found.push(bad("restore", "a restore to this folder was cut short", hint));
    }
    found.push(disk(sys::room(data).ok()));
    let has_store = !sys::is_gone(&data.join("store.db"));
    found.push(store(data, has_store));
    found.push(sealing_key(data, has_store));
    let admin = data.join("admin.key");
    if !sys::is_gone(&admin) {
        found.push(owned("operator's key", &admin, 0o600));
    }
    let changed = ["store.db", "store.db-wal"].iter().filter_map(|name| sys::changed_at(&data.join(name)).ok());
    found.push(clock(sys::since_epoch().as_secs(), changed.max().unwrap_or_default().as_secs()));
    found.push(match server {
        Some(process) => good("server", format!("process {process} runs with this folder")),
        None => good("server", "none runs with this folder"),
    });
    found
}

/// Whose a file or folder is, and whether it is closed to others.
fn owned(name: &'static str, path: &Path, most: u32) -> Finding {
    let shown = path.display();
    match sys::owner_and_mode(path) {
        Err(error) => bad(name, format!("`{shown}` cannot be read: {error}"), "see that this user may read it"),
        // The unit of the server has a user that nobody else is.
        Ok((owner, _)) if owner != sys::user() && sys::user() != 0 => {
            let what = format!("`{shown}` belongs to user {owner}, and this is user {}", sys::user());
            bad(name, what, "run the server and this command as the user that the folder belongs to")
        }
        Ok((_, mode)) if mode & !most & 0o777 != 0 => {
            let hint =
                if most == 0o700 { "close it to others: `chmod 700`" } else { "close it to others: `chmod 600`" };
            bad(name, format!("`{shown}` has the mode {:04o}: others may read or change it", mode & 0o7777), hint)
        }
        Ok(_) => good(name, format!("`{shown}`, for its owner alone")),
    }
}

fn disk(room: Option<(u64, u64)>) -> Finding {
    let name = "disk";
    let Some((bytes, files)) = room else {
        return note(name, "what is free cannot be read", "see that this user may read the data folder");
    };
    let what = format!("{} MiB free", bytes >> 20);
    let hint = "make room, or move the data folder to a larger disk: a full disk refuses new work";
    match () {
        () if bytes < LITTLE || files == 0 => bad(name, what, hint),
        () if bytes < LOW => note(name, what, hint),
        () if files < LOW_FILES => note(name, format!("{what}, and room for {files} more files"), hint),
        () => good(name, what),
    }
}

fn store(data: &Path, is_there: bool) -> Finding {
    let name = "store";
    if !is_there {
        return good(name, "none yet: the first start creates it");
    }
    match version_of(data) {
        Ok(SCHEMA) => good(name, format!("version {SCHEMA}")),
        Ok(older) => {
            good(name, format!("version {older}: the next start upgrades it to {SCHEMA}; make a backup before"))
        }
        Err(why) => bad(name, why.to_string(), "use the program that wrote it, or restore a backup"),
    }
}

/// The key that secrets are sealed with.
fn sealing_key(data: &Path, has_store: bool) -> Finding {
    let (name, file) = ("sealing key", data.join("sealing.key"));
    if sys::is_gone(&file) {
        return match has_store {
            false => good(name, "none yet: the first start makes it"),
            true => bad(name, "it is missing: no secret of a tenant opens", "put the server's `sealing.key` back"),
        };
    }
    let found = owned(name, &file, 0o600);
    if found.state != State::Good {
        return found;
    }
    let read = sys::read_secret(&file, MAX_KEY).map_err(|error| error.to_string());
    match read.and_then(|key| Sealer::new(&key).map_err(str::to_owned)) {
        Ok(_) => found,
        Err(why) => bad(name, format!("`{}`: {why}", file.display()), "put the server's `sealing.key` back"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(finding: &Finding) -> (State, &str) {
        (finding.state, finding.what.as_str())
    }

    #[test]
    fn limits_are_compared_with_what_the_server_needs() {
        assert_eq!(shown(&files(14_096)), (State::Good, "14096 at one time"));
        let what = "14095 at one time, and 10000 connections need 14096";
        assert_eq!(shown(&files(14_095)), (State::Note, what));
        let what = "65530 for each process, 10000 instances need up to 64096";
        assert_eq!(shown(&mappings(Some("65530\n"), 10_000)), (State::Good, what));
        let what = "64095 for each process, and 10000 instances need up to 64096";
        assert_eq!(shown(&mappings(Some("64095"), 10_000)), (State::Note, what));
        assert_eq!(mappings(None, 1).state, State::Note);
    }

    #[test]
    fn a_disk_is_full_before_nothing_is_left() {
        for (room, state) in [
            (Some((2 << 30, 1 << 20)), State::Good),
            (Some((LOW - 1, 1 << 20)), State::Note),
            (Some((LITTLE - 1, 1 << 20)), State::Bad),
            (Some((2 << 30, LOW_FILES - 1)), State::Note),
            (Some((2 << 30, 0)), State::Bad),
            (None, State::Note),
        ] {
            assert_eq!(disk(room).state, state, "{room:?}");
        }
    }

    #[test]
    fn a_clock_that_went_back_is_found() {
        assert_eq!(shown(&clock(YEAR - 1, 0)), (State::Bad, "it is before 2026"));
        let what = "it is 61 s behind the last change of the store";
        assert_eq!(shown(&clock(YEAR, YEAR + 61)), (State::Bad, what));
        assert_eq!(clock(YEAR, YEAR + 60).state, State::Good);
    }
}
