//! Whether one grant allows anything that another one does not.
//!
//! For paths and commands the rules of both are taken as languages, and a word is looked for that the one covers and
//! the other does not; for hosts each kind of host, port and address that the rules distinguish is tried; names and
//! numbers are compared. What is found is an example, and an example is reported only after the functions that enforce the
//! grants have said that the one allows it and the other refuses it.

mod agreed;
mod secrets;

use std::net::IpAddr;

use url::Url;

use super::command::{CommandNetwork, CommandReach, CommandRule, line as line_of};
use super::grant::Grant;
use super::language::{Found, Machine, Parts, Search};
use super::layer::{Layer, Service};
use super::limits::LimitKey;
use super::network::{Method, NetworkRules, Scheme, Target, shown};
use super::path::{Access, PathPattern, WorkspacePath, protected};

pub use agreed::{Agreed, agreed};
pub use secrets::wider_secrets;

/// Something that one grant allows and the other does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wider {
    /// The key that it is about, as below `sandbox`: `fs.read`, `limits.fuel`.
    pub key: String,
    /// What is allowed.
    pub example: Example,
}

/// What one grant allows and the other does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Example {
    /// This, as both grants say.
    Certain {
        /// In words, such as "reading `src/a`".
        what: String,
        /// Why the other one refuses it.
        refused: String,
    },
    /// Whether there is anything could not be found out.
    Perhaps,
}

/// Everything that `new` allows and `old` does not: at most one example for each key. Empty: there is nothing.
pub fn wider(old: &Grant, new: &Grant) -> Vec<Wider> {
    let mut found = Vec::new();
    let mut tell = |key: &str, example: Option<Example>| {
        found.extend(example.map(|example| Wider { key: key.to_owned(), example }));
    };
    for access in [Access::Read, Access::Write] {
        tell(access.key(), path(old, new, access));
    }
    tell("network", host(old, new));
    let command = command(old, new, true);
    tell("exec.allow", command);
    // What commands get matters where there is one.
    if self::command(old, new, false).is_some() {
        for name in new.exec_env() {
            if !old.exec_env().contains(&name) {
                tell("exec.env", certain(format!("the variable `{name}` for commands"), "commands do not get it"));
                break;
            }
        }
        tell("exec.network", network_of_commands(old, new));
        let open = old.exec_folders();
        let folder = new.exec_folders().into_iter().find(|folder| !open.iter().any(|open| open.covers(folder)));
        if let Some(folder) = folder {
            tell("exec.folders", certain(format!("the folder `{folder}` for commands"), "commands do not see it"));
        }
        if new.exec_unconfined() && !old.exec_unconfined() {
            tell("exec.unconfined", certain("commands that nothing confines".to_owned(), "commands are confined"));
        }
    }
    let variables = names(new, |layer| layer.env.as_ref());
    tell(
        "env",
        variables.iter().find_map(|name| {
            new.decide_env(name).ok()?;
            certain(format!("the variable `{name}`"), &old.decide_env(name).err()?.reason)
        }),
    );
    let secrets = names(new, |layer| layer.secrets.as_ref());
    tell(
        "secrets",
        secrets.iter().find_map(|name| {
            new.decide_secret(name).ok()?;
            certain(format!("the secret `{name}`"), &old.decide_secret(name).err()?.reason)
        }),
    );
    tell(
        "services",
        Service::ALL.into_iter().find_map(|service| {
            new.decide_service(service).ok()?;
            certain(format!("`{}`", service.name()), &old.decide_service(service).err()?.reason)
        }),
    );
    for key in LimitKey::ALL {
        let (before, now, facts) = (old.limit(*key).0, new.limit(*key).0, key.facts());
        if now > before {
            let example = certain(format!("{now} {}", facts.unit), &format!("the limit is {before} {}", facts.unit));
            tell(&format!("limits.{}", facts.name), example);
        }
    }
    found
}

fn certain(what: String, refused: &str) -> Option<Example> {
    Some(Example::Certain { what, refused: refused.to_owned() })
}

/// Something that commands reach of the network under `new` and not under `old`.
fn network_of_commands(old: &Grant, new: &Grant) -> Option<Example> {
    match (old.exec_network(), new.exec_network()) {
        (CommandReach::All, _) | (_, CommandReach::None) => None,
        (CommandReach::None, CommandReach::All) => {
            certain("commands that use the network".to_owned(), "commands have no network")
        }
        (CommandReach::Hosts, CommandReach::All) => {
            certain("commands that use the whole network".to_owned(), "commands reach some hosts alone")
        }
        (_, CommandReach::Hosts) => match host(&hosts_of_commands(old), &hosts_of_commands(new)) {
            Some(Example::Certain { what, .. }) => certain(format!("{what} for commands"), "commands do not reach it"),
            other => other,
        },
    }
}

/// The hosts of commands as if they were those of requests: one way to compare them. A layer that holds commands to none
/// is left out.
fn hosts_of_commands(grant: &Grant) -> Grant {
    let layers = grant.layers().iter().filter_map(|layer| {
        let allow = match &layer.exec.as_ref()?.network {
            CommandNetwork::All => return None,
            CommandNetwork::None => Vec::new(),
            CommandNetwork::Hosts(rules) => rules.clone(),
        };
        Some(Layer { network: Some(NetworkRules { allow }), ..Layer::silent(layer.origin.clone()) })
    });
    Grant::new(layers.collect())
}

/// All names that any layer lists, in order.
fn names<'a>(grant: &'a Grant, list: impl Fn(&'a Layer) -> Option<&'a Vec<String>>) -> Vec<&'a str> {
    grant.layers().iter().filter_map(|layer| list(layer)).flatten().map(String::as_str).collect()
}

/// What a search for one kind of word came to.
enum Tried<T> {
    Example(T),
    Nothing,
    Perhaps,
}

/// Tries searches one after another; the first example counts.
fn first<T>(tries: impl Iterator<Item = Tried<T>>) -> Tried<T> {
    let mut unknown = false;
    for one in tries {
        match one {
            Tried::Example(example) => return Tried::Example(example),
            Tried::Perhaps => unknown = true,
            Tried::Nothing => {}
        }
    }
    if unknown { Tried::Perhaps } else { Tried::Nothing }
}

fn into_example(tried: Tried<Example>) -> Option<Example> {
    match tried {
        Tried::Example(example) => Some(example),
        Tried::Perhaps => Some(Example::Perhaps),
        Tried::Nothing => None,
    }
}

/// The patterns of a grant for one kind of access, as machines.
struct Paths {
    /// A list for each layer that speaks of files.
    layers: Vec<Vec<Machine>>,
    /// Two for each pattern that protects.
    protect: Vec<[Machine; 2]>,
}

impl Paths {
    fn of(grant: &Grant, access: Access) -> Self {
        let rules = || grant.layers().iter().filter_map(|layer| layer.fs.as_ref());
        let machines = |patterns: &[PathPattern]| patterns.iter().map(PathPattern::machine).collect();
        Self {
            layers: rules().map(|fs| machines(fs.patterns(access))).collect(),
            protect: rules().flat_map(|fs| &fs.protect).map(PathPattern::machines_in_any_case).collect(),
        }
    }
}

/// A path that `new` lets be read or written and `old` does not.
fn path(old: &Grant, new: &Grant, access: Access) -> Option<Example> {
    let (before, now) = (Paths::of(old, access), Paths::of(new, access));
    if now.layers.is_empty() {
        return None;
    }
    let example = |parts: &[String]| {
        let text = if parts.is_empty() { ".".to_owned() } else { parts.join("/") };
        let path = WorkspacePath::parse(&text, "").ok()?;
        new.decide_path(&path, access).ok()?;
        let doing = access.doing();
        certain(format!("{doing} `{path}`"), &old.decide_path(&path, access).err()?.reason)
    };
    let built_in: Vec<[Machine; 2]> =
        protected::patterns(access).iter().map(PathPattern::machines_in_any_case).collect();
    // What `old` has to cover it with, one question for each list; then what it protects.
    let refused: Vec<(&[Machine], Option<&[Machine; 2]>)> = match before.layers.as_slice() {
        [] => vec![(&[], None)],
        layers => layers.iter().map(|list| (list.as_slice(), None)).collect(),
    };
    let protected = before.protect.iter().map(|pair| (&[][..], Some(pair)));
    into_example(first(refused.into_iter().chain(protected).map(|(uncovered, protecting)| {
        let mut within: Vec<Vec<&Machine>> = now.layers.iter().map(|list| list.iter().collect()).collect();
        within.extend(protecting.map(|pair| pair.iter().collect()));
        let mut without: Vec<&Machine> = uncovered.iter().chain(now.protect.iter().flatten()).collect();
        let mut search = Search { parts: Parts::Names, within, without: without.clone() };
        match search.find() {
            Found::Nothing => return Tried::Nothing,
            Found::Word(parts) => {
                if let Some(example) = example(&parts) {
                    return Tried::Example(example);
                }
            }
            Found::Unknown => {}
        }
        // Perhaps only because of the names that nothing opens: around those.
        without.extend(built_in.iter().flatten());
        search.without = without;
        match search.find() {
            Found::Nothing => Tried::Nothing,
            Found::Word(parts) => example(&parts).map_or(Tried::Perhaps, Tried::Example),
            Found::Unknown => Tried::Perhaps,
        }
    })))
}

/// A command that `new` allows and, where it is to be `refused`, `old` does not.
fn command(old: &Grant, new: &Grant, refused: bool) -> Option<Example> {
    let rules = |grant: &Grant| -> Vec<Vec<CommandRule>> {
        grant.layers().iter().filter_map(|layer| layer.exec.as_ref()).map(|exec| exec.allow.clone()).collect()
    };
    let (before, now) = (rules(old), rules(new));
    let of = |lists: &[Vec<CommandRule>], program: &str| -> Vec<Vec<Machine>> {
        let about = |list: &Vec<CommandRule>| {
            list.iter().filter(|rule| rule.program() == program).map(CommandRule::machine).collect()
        };
        lists.iter().map(about).collect()
    };
    // A program that some layer does not name is not allowed.
    let programs = now.first().into_iter().flatten().map(CommandRule::program);
    into_example(first(programs.flat_map(|program| {
        let (before, now) = (of(&before, program), of(&now, program));
        let questions = match before.len() {
            _ if !refused => vec![Vec::new()],
            0 => vec![Vec::new()],
            _ => before,
        };
        let example = move |args: &[String]| {
            new.decide_command(program, args).ok()?;
            let refusal = if refused { old.decide_command(program, args).err()?.reason } else { String::new() };
            let line = CommandRule::spelled(program, args).filter(|line| line.len() <= 200);
            certain(format!("the command `{}`", line.unwrap_or_else(|| shown(&line_of(program, args)))), &refusal)
        };
        questions.into_iter().map(move |uncovered| {
            let within = now.iter().map(|list| list.iter().collect()).collect();
            let search = Search { parts: Parts::Any, within, without: uncovered.iter().collect() };
            match search.find() {
                Found::Nothing => Tried::Nothing,
                Found::Word(args) => example(&args).map_or(Tried::Perhaps, Tried::Example),
                Found::Unknown => Tried::Perhaps,
            }
        })
    })))
}

/// A host, port and address that `new` lets be reached and `old` does not.
fn host(old: &Grant, new: &Grant) -> Option<Example> {
    let rules = || [old, new].into_iter().flat_map(Grant::layers).filter_map(|layer| layer.network.as_ref());
    let rules: Vec<_> = rules().flat_map(|network| &network.allow).collect();
    // One of each kind that the rules distinguish: what they name, what is below it, and what they do not name.
    let taken: Vec<String> = rules.iter().filter_map(|rule| rule.name()).collect();
    let label = |name: &str| {
        let labels = ('a'..='z').chain('0'..='9').map(String::from).chain((0..).map(|n| format!("x{n}")));
        let free = labels.take(10_000).map(|label| format!("{label}.{name}"));
        free.into_iter().find(|name| !taken.iter().any(|taken| taken == name || taken.ends_with(&format!(".{name}"))))
    };
    let below = taken.iter().filter_map(|name| label(name));
    let hosts: Vec<String> = taken
        .iter()
        .cloned()
        .chain(below)
        .chain(label("example"))
        .chain(rules.iter().filter_map(|rule| rule.address()))
        .collect();
    let ports = rules.iter().filter_map(|rule| rule.port()).chain([443, 80]);
    let mut ports: Vec<u16> = ports.collect();
    ports.sort_unstable_by_key(|port| (!matches!(port, 80 | 443), *port));
    ports.dedup();
    // Each way to ask, where a rule distinguishes them.
    let apart = rules.iter().any(|rule| rule.is_only_for_some());
    let methods: &[Method] = if apart { &Method::ALL } else { &[Method::Get] };
    let public = IpAddr::from([93, 184, 216, 34]);
    let private = IpAddr::from([10, 0, 0, 1]);
    for host in &hosts {
        for port in &ports {
            let usual = if *port == 443 { Scheme::Https } else { Scheme::Http };
            let schemes = Scheme::ALL.into_iter().filter(|scheme| apart || *scheme == usual);
            let ways = schemes.flat_map(|scheme| methods.iter().map(move |method| (scheme, *method)));
            for (scheme, method) in ways {
                let url = Url::parse(&format!("{}://{host}:{port}/", scheme.name())).ok();
                let Some(target) = url.and_then(|url| Target::of(&url).ok()) else { continue };
                let target = target.by(method);
                let own: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
                let addresses =
                    own.map_or_else(|| vec![(public, ""), (private, " at a private address")], |own| vec![(own, "")]);
                let way = if apart { format!(", {} over {}", method.name(), scheme.name()) } else { String::new() };
                for (address, where_) in addresses {
                    if let (Ok(()), Err(refusal)) =
                        (new.decide_address(&target, address), old.decide_address(&target, address))
                    {
                        return certain(format!("the host `{target}`{where_}{way}"), &refusal.reason);
                    }
                }
            }
        }
    }
    None
}
