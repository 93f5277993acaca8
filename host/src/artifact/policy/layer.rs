//! The keys that make a [`Layer`]: the same below `sandbox`, in an entry of `sandbox.sources`, and in `capabilities`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::artifact::decode::{Decoder, Field, Fields, Unknown};
use crate::artifact::diagnostic::Diagnostics;
use crate::artifact::suggest::{closest, quoted};
use crate::artifact::yaml::{self, Value};
use crate::policy::command::{CommandRule, ExecRules};
use crate::policy::layer::{Layer, Origin, Scope, Service};
use crate::policy::limits::LimitRules;
use crate::policy::network::{HostRule, NetworkRules};
use crate::policy::path::{FsRules, PathPattern};

/// Fuel: 10^15 is some three weeks of one core.
const FUEL: RangeInclusive<u64> = 1..=1_000_000_000_000_000;
/// Milliseconds: up to a day.
const TIMEOUT_MS: RangeInclusive<u64> = 1..=86_400_000;
/// MiB of memory: from what the interpreter itself needs to all that 32 bits can address.
const MEMORY_MB: RangeInclusive<u64> = 16..=4096;
/// Bytes of a result: at least room for a notice that it was cut, at most 16 MiB.
const OUTPUT_BYTES: RangeInclusive<u64> = 256..=16 << 20;
/// Processes at one time.
const PROCESSES: RangeInclusive<u64> = 1..=4096;
/// Bytes of a file: up to 1 GiB.
const FILE_BYTES: RangeInclusive<u64> = 1..=1 << 30;

/// The keys of `limits` with their bounds.
pub(crate) const LIMITS: [(&str, RangeInclusive<u64>); 6] = [
    ("fuel", FUEL),
    ("timeout_ms", TIMEOUT_MS),
    ("memory_mb", MEMORY_MB),
    ("output_bytes", OUTPUT_BYTES),
    ("processes", PROCESSES),
    ("file_bytes", FILE_BYTES),
];

/// A layer that says nothing.
pub(crate) fn silent(origin: Origin) -> Layer {
    Layer {
        origin,
        fs: None,
        network: None,
        exec: None,
        env: None,
        services: None,
        secrets: None,
        limits: LimitRules::default(),
    }
}

/// A layer from its YAML alone, such as `fs: { read: [docs] }`: what an embedder grants a caller. `name` is what hints
/// and refusals call the place it was written in. It is there only if nothing is wrong with it.
pub fn parse(name: &str, yaml: &str) -> (Option<Layer>, Diagnostics) {
    let mut decoder = Decoder::new(name, format!("parse {name}"));
    let (root, errors) = yaml::parse(yaml, 1);
    decoder.yaml_errors(errors);
    let origin = Origin { file: name.to_owned(), scope: Scope::Artifact };
    let layer = root.as_ref().and_then(|root| {
        let mut fields = decoder.root(root)?;
        let mut layer = silent(origin);
        layer.network = fields.take("network").and_then(|f| network(&mut decoder, &f));
        layer.secrets = fields.take("secrets").and_then(|f| decoder.parsed(&f, variable));
        rules(&mut decoder, &mut fields, &mut layer);
        decoder.finish(fields, Unknown::Refuse);
        Some(layer)
    });
    let diagnostics = decoder.into_diagnostics();
    (layer.filter(|_| !diagnostics.has_errors()), diagnostics)
}

/// A layer that has a mapping of its own, with `network` and `secrets` as lists in it. What is wrong is an error; the layer must
/// not be used then.
pub(crate) fn decode(decoder: &mut Decoder, field: &Field<'_>, origin: Origin) -> Option<Layer> {
    let mut fields = decoder.mapping(field)?;
    let mut layer = silent(origin);
    layer.network = fields.take("network").and_then(|f| network(decoder, &f));
    layer.secrets = fields.take("secrets").and_then(|f| decoder.parsed(&f, variable));
    rules(decoder, &mut fields, &mut layer);
    decoder.finish(fields, Unknown::Refuse);
    Some(layer)
}

/// All of a layer but `network` and `secrets`.
pub(super) fn rules(decoder: &mut Decoder, fields: &mut Fields<'_>, layer: &mut Layer) {
    layer.fs = fields.take("fs").and_then(|f| fs(decoder, &f));
    layer.exec = fields.take("exec").and_then(|f| exec(decoder, &f));
    layer.env = fields.take("env").and_then(|f| decoder.parsed(&f, variable));
    layer.services = fields.take("services").and_then(|f| decoder.parsed(&f, service));
    layer.limits = fields.take("limits").and_then(|f| limits(decoder, &f)).unwrap_or_default();
}

/// A list of hosts, each a text or `{ host: ..., private: true }`.
pub(super) fn network(decoder: &mut Decoder, field: &Field<'_>) -> Option<NetworkRules> {
    let items = decoder.list(field)?;
    let rules: Vec<Option<HostRule>> = items.iter().map(|item| host(decoder, item)).collect();
    Some(NetworkRules { allow: rules.into_iter().collect::<Option<_>>()? })
}

fn host(decoder: &mut Decoder, item: &Field<'_>) -> Option<HostRule> {
    if !matches!(item.node.value, Value::Map(_)) {
        return decoder.parse_one(item, HostRule::parse);
    }
    let mut fields = decoder.mapping(item)?;
    let private = fields.take("private").map(|f| decoder.boolean(&f));
    let rule = match fields.take("host") {
        Some(host) => decoder.parse_one(&host, |text| {
            // One that could not be read is an error of its own already.
            HostRule::parse(text)?.private(private.flatten().unwrap_or(false))
        }),
        None => {
            decoder.error(item, format!("{} has no `host`", quoted(&item.path)));
            None
        }
    };
    decoder.finish(fields, Unknown::Refuse);
    rule
}

fn fs(decoder: &mut Decoder, field: &Field<'_>) -> Option<FsRules> {
    let mut fields = decoder.mapping(field)?;
    let mut patterns = |decoder: &mut Decoder, key| match fields.take(key) {
        Some(list) => decoder.parsed(&list, |text| PathPattern::parse(text).map_err(|e| e.to_string())),
        // A side that is not named is not granted.
        None => Some(Vec::new()),
    };
    let (read, write) = (patterns(decoder, "read"), patterns(decoder, "write"));
    let protect = patterns(decoder, "protect");
    decoder.finish(fields, Unknown::Refuse);
    Some(FsRules { read: read?, write: write?, protect: protect? })
}

fn exec(decoder: &mut Decoder, field: &Field<'_>) -> Option<ExecRules> {
    let mut fields = decoder.mapping(field)?;
    let allow = fields.take("allow").map(|f| decoder.parsed(&f, CommandRule::parse));
    let env = fields.take("env").map(|f| decoder.parsed(&f, variable));
    let network = fields.take("network").map(|f| decoder.boolean(&f));
    let unconfined = fields.take("unconfined").map(|f| decoder.boolean(&f));
    decoder.finish(fields, Unknown::Refuse);
    Some(ExecRules {
        allow: allow.unwrap_or_else(|| Some(Vec::new()))?,
        env: env.unwrap_or_else(|| Some(Vec::new()))?,
        network: network.unwrap_or(Some(false))?,
        unconfined: unconfined.unwrap_or(Some(false))?,
    })
}

fn limits(decoder: &mut Decoder, field: &Field<'_>) -> Option<LimitRules> {
    let mut fields = decoder.mapping(field)?;
    let mut take = |decoder: &mut Decoder, key, bounds| fields.take(key).and_then(|f| decoder.integer_in(&f, bounds));
    let limits = LimitRules {
        fuel: take(decoder, "fuel", FUEL),
        timeout: take(decoder, "timeout_ms", TIMEOUT_MS).map(Duration::from_millis),
        memory_bytes: take(decoder, "memory_mb", MEMORY_MB).map(|mb| mb.saturating_mul(1 << 20)),
        output_bytes: take(decoder, "output_bytes", OUTPUT_BYTES),
        processes: take(decoder, "processes", PROCESSES),
        file_bytes: take(decoder, "file_bytes", FILE_BYTES),
    };
    decoder.finish(fields, Unknown::Refuse);
    Some(limits)
}

/// The name of a variable of the environment. There are no patterns: each is named.
pub(in crate::artifact) fn variable(text: &str) -> Result<String, String> {
    let mut characters = text.chars();
    let first = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if first && text.len() <= 256 && characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(text.to_owned());
    }
    Err(format!("{} is not the name of a variable", quoted(text)))
}

fn service(text: &str) -> Result<Service, String> {
    if let Some(service) = Service::ALL.into_iter().find(|service| service.name() == text) {
        return Ok(service);
    }
    let names = Service::ALL.map(Service::name);
    Err(match closest(text, names) {
        Some(word) => format!("{} is no built-in that needs granting, did you mean `{word}`?", quoted(text)),
        None => format!("{} is no built-in that needs granting, those are {}", quoted(text), names.join(", ")),
    })
}
