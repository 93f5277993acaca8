//! What the layers of a grant agree on, in the words of their own rules.

use super::{Access, Example, Grant, path};
use crate::command::{CommandReach, ExecRules};
use crate::layer::{Layer, Service};
use crate::network::NetworkRules;
use crate::path::FsRules;

/// What a grant comes to for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The key, as below `sandbox`.
    pub key: &'static str,
    /// Rules that are granted whole: those that every layer covers. Empty: nothing is granted.
    pub rules: Vec<String>,
    /// Whether these are all. Else layers overlap in part, as `a*` and `*b` do, and the grant is what all of them cover.
    pub whole: bool,
}

/// What a grant comes to, for each key of a capability.
pub fn agreed(grant: &Grant) -> Vec<Agreed> {
    let patterns = |access: Access| {
        let rules = |layer: &Layer| layer.fs.as_ref().map(|fs| fs.patterns(access).to_vec());
        let with = move |rules: Vec<_>| {
            let (read, write) = if access == Access::Read { (rules, Vec::new()) } else { (Vec::new(), rules) };
            Layer { fs: Some(FsRules { read, write, ..FsRules::default() }), ..Layer::silent(grant.nearest_origin()) }
        };
        of(access.key(), grant, rules, with, move |old, new| path(old, new, access))
    };
    let hosts = of_hosts("network", grant);
    let commands = of(
        "exec.allow",
        grant,
        |layer| layer.exec.as_ref().map(|exec| exec.allow.clone()),
        |allow| Layer {
            exec: Some(ExecRules { allow, ..ExecRules::default() }),
            ..Layer::silent(grant.nearest_origin())
        },
        |old, new| super::command(old, new, true),
    );
    let plain = |key, rules| Agreed { key, rules, whole: true };
    let network = match grant.exec_network() {
        CommandReach::None => plain("exec.network", vec!["false".to_owned()]),
        CommandReach::All => plain("exec.network", vec!["true".to_owned()]),
        CommandReach::Hosts => of_hosts("exec.network", &super::hosts_of_commands(grant)),
    };
    let protect = grant.layers().iter().filter_map(|layer| layer.fs.as_ref()).flat_map(|fs| &fs.protect);
    let variables = super::names(grant, |layer| layer.env.as_ref());
    let mut variables: Vec<String> =
        variables.into_iter().filter(|name| grant.decide_env(name).is_ok()).map(str::to_owned).collect();
    variables.sort_unstable();
    variables.dedup();
    let secrets = super::names(grant, |layer| layer.secrets.as_ref());
    let mut secrets: Vec<String> =
        secrets.into_iter().filter(|name| grant.decide_secret(name).is_ok()).map(str::to_owned).collect();
    secrets.sort_unstable();
    secrets.dedup();
    let services = Service::ALL.into_iter().filter(|service| grant.decide_service(*service).is_ok());
    vec![
        patterns(Access::Read),
        patterns(Access::Write),
        plain("fs.protect", protect.map(ToString::to_string).collect()),
        hosts,
        commands,
        plain("exec.env", grant.exec_env()),
        plain("exec.folders", grant.exec_folders().iter().map(ToString::to_string).collect()),
        network,
        plain("exec.unconfined", vec![grant.exec_unconfined().to_string()]),
        plain("env", variables),
        plain("secrets", secrets),
        plain("services", services.map(|service| service.name().to_owned()).collect()),
    ]
}

fn of_hosts(key: &'static str, grant: &Grant) -> Agreed {
    of(
        key,
        grant,
        |layer| layer.network.as_ref().map(|network| network.allow.clone()),
        |allow| Layer { network: Some(NetworkRules { allow }), ..Layer::silent(grant.nearest_origin()) },
        super::host,
    )
}

fn of<R: Clone + PartialEq + ToString>(
    key: &'static str,
    grant: &Grant,
    rules: impl Fn(&Layer) -> Option<Vec<R>>,
    layer: impl Fn(Vec<R>) -> Layer,
    wider: impl Fn(&Grant, &Grant) -> Option<Example>,
) -> Agreed {
    // What layers protect is listed separately.
    let lists: Vec<Vec<R>> = grant.layers().iter().filter_map(|layer| rules(layer)).collect();
    let all = Grant::new(lists.iter().cloned().map(&layer).collect());
    let mut kept: Vec<R> = Vec::new();
    for rule in lists.into_iter().flatten() {
        let covered = |by: &Grant| wider(by, &Grant::new(vec![layer(vec![rule.clone()])])).is_none();
        if covered(&all) && !covered(&Grant::new(vec![layer(kept.clone())])) {
            kept.push(rule);
        }
    }
    let whole = wider(&Grant::new(vec![layer(kept.clone())]), &all).is_none();
    Agreed { key, rules: kept.iter().map(ToString::to_string).collect(), whole }
}
