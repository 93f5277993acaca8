//! The keys that make a [`Layer`]: the same below `sandbox`, in an entry of `sandbox.sources`, and in `capabilities`.

mod network;

use std::collections::BTreeMap;

use serde_json::json;

use super::{Network, NetworkKeys};
use crate::decode::{Decoder, Field};
use crate::diagnostic::{Diagnostic, Diagnostics, Position};
use crate::keys::{self, Defaulted, Slot, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Between, Read, Schema, Shape};
use crate::suggest::closest;
use crate::yaml::{self, Value};
use harness_policy::command::{CommandRule, ExecRules, FolderRule};
use harness_policy::layer::{Layer, Origin, Scope, Service};
use harness_policy::limits::{LimitKey, LimitRules};
use harness_policy::network::{HostRule, Method, NetworkRules, Scheme};
use harness_policy::path::protected::rule_against;
use harness_policy::path::{Access, FsRules, PathPattern, WorkspacePath};
use harness_policy::positions::{RulePosition, RulePositions, Spot};
use harness_policy::text::quoted;
use network::NetworkValue;

keys! {
    /// What a layer has as a list and the project's own elsewhere: hosts in `network.allowed_domains`, secrets where they
    /// are defined.
    pub(crate) ListKeys: Unknown::Refuse;
    /// Hosts that may be reached, such as `api.example.org`, `*.example.net`, `127.0.0.1:8080`. An empty list: none.
    given network: Hosts;
    /// Names of secrets that may be used. An empty list: none.
    given secrets: Vec<Located<Variable>>;
}

keys! {
    /// All of a layer but its hosts and its secrets.
    pub(crate) RuleKeys: Unknown::Refuse;
    /// Files of the workspace. Protected and sensitive names are never granted.
    given fs: FsRules;
    /// Commands that may be run.
    given exec: ExecRules;
    /// Variables of the host's environment that may be read, each by its name.
    given env: Vec<Located<Variable>>;
    /// Built-ins that need no further rule.
    given services: Vec<Located<Service>>;
    /// Limits of one call. The smallest limit of all layers applies.
    given limits: LimitRules;
}

keys! {
    /// A side that is not named is not granted.
    FsKeys: Unknown::Refuse;
    /// Patterns of paths that may be read, such as `.`, `docs`, `src/**/*.rs`.
    given read: Vec<Located<PathPattern>>;
    /// Patterns of paths that may be written.
    given write: Vec<Located<PathPattern>>;
    /// Patterns of paths that are neither read nor written, even if another rule grants them.
    given protect: Vec<Located<PathPattern>>;
}

keys! {
    /// What is not named is not granted.
    ExecKeys: Unknown::Refuse;
    /// Commands with patterns of their arguments, such as `git` or `cargo test *`.
    given allow: Vec<Located<CommandRule>>;
    /// Variables that commands get from the host's environment.
    given env: Vec<Located<Variable>>;
    /// Folders outside of the workspace that commands may read and run programs from, such as `/opt/go` or `~/.cargo`.
    given folders: Vec<Located<FolderRule>>;
    /// `true`: commands may use the whole network. A list of hosts: they connect to these alone, as
    /// `network.allowed_domains` has them but without `methods` and `scheme`. Default: false.
    given network: NetworkValue;
    /// Whether commands run without a wall.
    given unconfined: bool = false;
}

keys! {
    /// A host that is more than a text.
    HostKeys: Unknown::Refuse;
    /// Allowed methods. Default: all.
    given methods: Vec<Located<Method>>;
    /// `http` or `https`. Default: both.
    given scheme: Scheme;
    /// Whether the name may resolve to a private address.
    given private: bool = false;
    /// The host, such as `build.example.net`.
    required host: String;
}

keys! {
    /// A command that is more than a line.
    CommandKeys: Unknown::Refuse;
    /// The program and each argument, literally: exactly this command.
    required argv: Vec<String>;
}

keys! {
    /// Each limit within its bounds.
    LimitKeys: Unknown::Refuse;
    /// WebAssembly instructions and host calls, about ten units a nanosecond; at most some three weeks of one core.
    given fuel: Between<1, 1_000_000_000_000_000>;
    /// Wall time of the whole call, in milliseconds; at most a day.
    given timeout_ms: Between<1, 86_400_000>;
    /// Memory of the instance in MiB, from the need of the interpreter to the 32-bit address space.
    given memory_mb: Between<16, 4096>;
    /// Bytes of a result as a model gets it: at least room for a notice that it was cut, at most 16 MiB.
    given output_bytes: Between<256, { 16 << 20 }>;
    /// Bytes of a result as hooks and programs get it; at most 16 MiB.
    given result_bytes: Between<256, { 16 << 20 }>;
    /// Memory of the host for the call, in MiB.
    given host_memory_mb: Between<1, 4096>;
    /// Host calls, including denied ones.
    given host_calls: Between<1, 1_000_000_000>;
    /// Bytes through host calls, in both directions, and bytes that are copied; at most 1 TiB.
    given io_bytes: Between<1, { 1 << 40 }>;
    /// Files and folders that are created, written, copied, moved or removed.
    given files: Between<0, 10_000_000>;
    /// Bytes of each file that is read, written or copied; at most 1 GiB.
    given file_bytes: Between<1, { 1 << 30 }>;
    /// Bytes of an HTTP body, either way; at most 10 MiB.
    given body_bytes: Between<1, { 10 << 20 }>;
    /// Bytes of a compiled pattern of `re`, with the engine's memory while it searches; at most 16 MiB.
    given regex_bytes: Between<1024, { 16 << 20 }>;
    /// Log lines that are kept.
    given log_lines: Between<0, 100_000>;
    /// Processes and threads of a command at one time.
    given processes: Between<1, 4096>;
    /// Memory of a command in MiB: of all its processes in a control group, otherwise of each process.
    given command_memory_mb: Between<16, 1_048_576>;
}

/// A list of hosts, each a text or `{ host: ..., private: true }`.
pub(crate) type Hosts = Vec<Located<HostRule>>;

/// A layer from its YAML alone, such as `fs: { read: [docs] }`: what an embedder grants a caller. `name` is what hints
/// and refusals call the place it was written in. It is there only if nothing is wrong with it.
pub fn parse(name: &str, yaml: &str) -> (Option<Layer>, Diagnostics) {
    let mut decoder = Decoder::new(name, format!("parse {name}"));
    let (root, errors) = yaml::parse(yaml, 1);
    decoder.yaml_errors(errors);
    let keys = root.as_ref().and_then(|root| decoder.root(root));
    let layer = keys.map(|keys| layer(&mut decoder, keys, Origin::new(name, Scope::Call), None));
    let diagnostics = decoder.into_diagnostics();
    (layer.filter(|_| !diagnostics.has_errors()), diagnostics)
}

/// A layer that has a mapping of its own, with `network` and `secrets` as lists in it. What is wrong is an error; the
/// layer must not be used then.
pub fn decode(decoder: &mut Decoder, field: &Field<'_>, origin: Origin) -> Option<Layer> {
    let keys = decoder.keys(field)?;
    let own = own_place(decoder, field);
    Some(layer(decoder, keys, origin, Some(&own)))
}

/// The same of a mapping that has further keys.
pub(crate) fn decode_with<'n, K: keys::Keys<'n>>(
    decoder: &mut Decoder,
    field: &Field<'n>,
    origin: Origin,
) -> Option<(Layer, K)> {
    let (keys, more): (LayerKeys<'n>, K) = decoder.keys(field)?;
    let own = own_place(decoder, field);
    Some((layer(decoder, keys, origin, Some(&own)), more))
}

/// A layer of limits alone: the mapping is that of `limits`.
pub fn decode_limits(decoder: &mut Decoder, field: &Field<'_>, origin: Origin) -> Option<Layer> {
    let keys: LimitKeys<'_> = decoder.keys(field)?;
    let own = own_place(decoder, field);
    let mut builder = Builder::new(origin);
    builder.layer.limits = builder.limits(decoder, &keys);
    Some(builder.layer(Some(&own)))
}

fn own_place(decoder: &Decoder, field: &Field<'_>) -> Position {
    decoder.position(field.key.map_or(field.node.span, |key| key.span))
}

/// All keys of a layer that has a mapping of its own.
pub(crate) type LayerKeys<'n> = (ListKeys<'n>, RuleKeys<'n>);

fn layer(
    decoder: &mut Decoder,
    (lists, rules): (ListKeys<'_>, RuleKeys<'_>),
    origin: Origin,
    own: Option<&Position>,
) -> Layer {
    let mut builder = Builder::new(origin);
    builder.network(decoder, &lists.network);
    let secrets = builder.spots.list(decoder, "secrets", &lists.secrets);
    builder.layer.secrets = secrets.map(|names| names.into_iter().map(|name| name.0).collect());
    builder.rules(decoder, rules);
    builder.layer(own)
}

impl Shape for Layer {
    fn schema() -> Schema {
        keys::schema::<(ListKeys<'_>, RuleKeys<'_>)>()
    }
}

/// A layer in the making.
pub(super) struct Builder {
    layer: Layer,
    spots: Spots,
}

/// Where each of some rules is.
#[derive(Default)]
pub(super) struct Spots(BTreeMap<&'static str, Spot>);

impl Builder {
    pub(super) fn new(origin: Origin) -> Self {
        Self { layer: Layer::silent(origin), spots: Spots::default() }
    }

    /// The whole of it; `own` is where it is, if that is one place.
    pub(super) fn layer(mut self, own: Option<&Position>) -> Layer {
        self.layer.origin.places = self.spots.places(own);
        self.layer
    }

    pub(super) fn network(&mut self, decoder: &mut Decoder, slot: &Slot<'_, Hosts>) {
        self.layer.network = self.spots.list(decoder, "network", slot).map(|allow| NetworkRules { allow });
    }

    /// The names of the secrets that the project defines.
    pub(super) fn secrets(&mut self, names: Vec<String>) {
        self.layer.secrets = Some(names);
    }

    /// All of a layer but `network` and `secrets`.
    pub(super) fn rules(&mut self, decoder: &mut Decoder, keys: RuleKeys<'_>) {
        self.layer.fs = self.spots.inner(decoder, "fs", &keys.fs).map(|keys| self.fs(decoder, &keys));
        self.layer.exec = self.spots.inner(decoder, "exec", &keys.exec).map(|keys| self.exec(decoder, keys));
        let env = self.spots.list(decoder, "env", &keys.env);
        self.layer.env = env.map(|names| names.into_iter().map(|name| name.0).collect());
        self.layer.services = self.spots.list(decoder, "services", &keys.services);
        let limits = self.spots.inner(decoder, "limits", &keys.limits).map(|keys| self.limits(decoder, &keys));
        self.layer.limits = limits.unwrap_or_default();
    }

    /// What a server has of a layer. What it does not name is not granted.
    pub(super) fn of_server(
        &mut self,
        decoder: &mut Decoder,
        fs: &Slot<'_, FsRules>,
        network: &Slot<'_, Network>,
        limits: &Slot<'_, LimitRules>,
    ) {
        let fs = self.spots.inner(decoder, "fs", fs).map(|keys| self.fs(decoder, &keys));
        self.layer.fs = Some(fs.unwrap_or_default());
        if let Some(keys) = network.field().and_then(|field| decoder.keys::<NetworkKeys<'_>>(field)) {
            self.network(decoder, &keys.allowed_domains);
        }
        self.layer.network = Some(self.layer.network.take().unwrap_or_default());
        let limits = self.spots.inner(decoder, "limits", limits).map(|keys| self.limits(decoder, &keys));
        self.layer.limits = limits.unwrap_or_default();
        (self.layer.env, self.layer.services, self.layer.secrets) =
            (Some(Vec::new()), Some(Vec::new()), Some(Vec::new()));
    }

    /// The folders of a server's programs.
    pub(super) fn folders(
        &mut self,
        decoder: &mut Decoder,
        slot: &Slot<'_, Vec<Located<FolderRule>>>,
    ) -> Vec<FolderRule> {
        self.spots.list(decoder, "exec.folders", slot).unwrap_or_default()
    }

    fn fs(&mut self, decoder: &mut Decoder, keys: &FsKeys<'_>) -> FsRules {
        FsRules {
            read: self.spots.paths(decoder, Access::Read, "fs.read", &keys.read),
            write: self.spots.paths(decoder, Access::Write, "fs.write", &keys.write),
            protect: self.spots.list(decoder, "fs.protect", &keys.protect).unwrap_or_default(),
            repository: Vec::new(),
            home: None,
        }
    }

    fn exec(&mut self, decoder: &mut Decoder, keys: ExecKeys<'_>) -> ExecRules {
        let env = self.spots.list(decoder, "exec.env", &keys.env).unwrap_or_default();
        ExecRules {
            allow: self.spots.list(decoder, "exec.allow", &keys.allow).unwrap_or_default(),
            env: env.into_iter().map(|name| name.0).collect(),
            folders: self.spots.list(decoder, "exec.folders", &keys.folders).unwrap_or_default(),
            network: self.spots.network_of_commands(decoder, &keys.network),
            unconfined: self.spots.flag(decoder, "exec.unconfined", keys.unconfined),
        }
    }

    fn limits(&mut self, decoder: &mut Decoder, keys: &LimitKeys<'_>) -> LimitRules {
        LimitRules::default()
            .with(LimitKey::Fuel, self.spots.limit(decoder, "limits.fuel", &keys.fuel))
            .with(LimitKey::Timeout, self.spots.limit(decoder, "limits.timeout_ms", &keys.timeout_ms))
            .with(LimitKey::Memory, self.spots.limit(decoder, "limits.memory_mb", &keys.memory_mb))
            .with(LimitKey::Output, self.spots.limit(decoder, "limits.output_bytes", &keys.output_bytes))
            .with(LimitKey::Result, self.spots.limit(decoder, "limits.result_bytes", &keys.result_bytes))
            .with(LimitKey::HostMemory, self.spots.limit(decoder, "limits.host_memory_mb", &keys.host_memory_mb))
            .with(LimitKey::HostCalls, self.spots.limit(decoder, "limits.host_calls", &keys.host_calls))
            .with(LimitKey::Io, self.spots.limit(decoder, "limits.io_bytes", &keys.io_bytes))
            .with(LimitKey::Files, self.spots.limit(decoder, "limits.files", &keys.files))
            .with(LimitKey::FileBytes, self.spots.limit(decoder, "limits.file_bytes", &keys.file_bytes))
            .with(LimitKey::Body, self.spots.limit(decoder, "limits.body_bytes", &keys.body_bytes))
            .with(LimitKey::Regex, self.spots.limit(decoder, "limits.regex_bytes", &keys.regex_bytes))
            .with(LimitKey::LogLines, self.spots.limit(decoder, "limits.log_lines", &keys.log_lines))
            .with(LimitKey::Processes, self.spots.limit(decoder, "limits.processes", &keys.processes))
            .with(
                LimitKey::CommandMemory,
                self.spots.limit(decoder, "limits.command_memory_mb", &keys.command_memory_mb),
            )
    }
}

impl Spots {
    /// All of them; `own` is where what holds them is, if that is one place.
    pub(super) fn places(self, own: Option<&Position>) -> RulePositions {
        RulePositions::new(own.map(place), self.0)
    }

    /// The keys of a mapping in the layer.
    fn inner<'n, K: keys::Keys<'n>, T>(
        &mut self,
        decoder: &mut Decoder,
        key: &'static str,
        slot: &Slot<'n, T>,
    ) -> Option<K> {
        let field = slot.field()?;
        self.note(key, &decoder.position(field.span()), Vec::new());
        decoder.keys(field)
    }

    /// A list of rules without their places, which are kept apart: what decides does not ask for them.
    pub(super) fn list<T: Read>(
        &mut self,
        decoder: &mut Decoder,
        key: &'static str,
        slot: &Slot<'_, Vec<Located<T>>>,
    ) -> Option<Vec<T>> {
        slot.located(decoder).map(|list| self.rules(key, list))
    }

    /// A list of paths that are opened. Those that nothing opens are reported: their author thinks that they are open.
    fn paths(
        &mut self,
        decoder: &mut Decoder,
        access: Access,
        key: &'static str,
        slot: &Slot<'_, Vec<Located<PathPattern>>>,
    ) -> Vec<PathPattern> {
        let Some(list) = slot.located(decoder) else { return Vec::new() };
        for pattern in &list.value {
            let (text, at) = (pattern.value.to_string(), pattern.position.clone());
            // What a pattern spells out is in each path that it matches.
            let path = WorkspacePath::parse(&text, "").ok();
            if let Some(rule) = path.and_then(|path| rule_against(&path, access)) {
                let warning = Diagnostic::warning(format!("{} opens nothing: {rule}", quoted(&text))).at(at);
                decoder.diagnostics.push(warning.hint("no policy opens it"));
            }
        }
        self.rules(key, list)
    }

    fn rules<T>(&mut self, key: &'static str, list: Located<Vec<Located<T>>>) -> Vec<T> {
        let rules = list.value.iter().map(|rule| place(&rule.position)).collect();
        self.note(key, &list.position, rules);
        list.value.into_iter().map(|rule| rule.value).collect()
    }

    fn flag(&mut self, decoder: &mut Decoder, key: &'static str, slot: Defaulted<'_, bool>) -> bool {
        if let Some(field) = slot.field() {
            self.note(key, &decoder.position(field.span()), Vec::new());
        }
        slot.read(decoder)
    }

    fn limit<const LEAST: u64, const MOST: u64>(
        &mut self,
        decoder: &mut Decoder,
        key: &'static str,
        slot: &Slot<'_, Between<LEAST, MOST>>,
    ) -> Option<u64> {
        let limit = slot.located(decoder)?;
        self.note(key, &limit.position, Vec::new());
        Some(limit.value.0)
    }

    fn note(&mut self, key: &'static str, value: &Position, rules: Vec<RulePosition>) {
        self.0.insert(key, Spot { value: place(value), rules });
    }
}

fn place(position: &Position) -> RulePosition {
    RulePosition { line: position.line, column: position.column }
}

impl Shape for FsRules {
    fn schema() -> Schema {
        keys::schema::<FsKeys<'_>>()
    }
}

impl Shape for ExecRules {
    fn schema() -> Schema {
        keys::schema::<ExecKeys<'_>>()
    }
}

impl Shape for LimitRules {
    fn schema() -> Schema {
        keys::schema::<LimitKeys<'_>>()
    }
}

impl Shape for PathPattern {
    fn schema() -> Schema {
        String::schema()
    }
}

impl Read for PathPattern {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| Self::parse(text).map_err(|e| e.to_string()))
    }
}

impl Shape for CommandRule {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [String::schema(), keys::schema::<CommandKeys<'_>>()]}))
    }
}

impl Read for CommandRule {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        if !matches!(field.node.value, Value::Map(_)) {
            return decoder.parse_one(field, Self::parse);
        }
        let keys: CommandKeys<'_> = decoder.keys(field)?;
        let Some(list) = keys.argv.field() else {
            decoder.error(field, format!("{} has no `argv`", quoted(&field.path)));
            return None;
        };
        let argv = Vec::<String>::read(decoder, list)?;
        let Some((program, args)) = argv.split_first() else {
            decoder.error(list, format!("{} is empty: the program comes first", quoted(&list.path)));
            return None;
        };
        match Self::exactly(program, args) {
            Ok(rule) => Some(rule),
            Err(why) => {
                decoder.error(list, format!("{}: {why}", quoted(&list.path)));
                None
            }
        }
    }
}

impl Shape for FolderRule {
    fn schema() -> Schema {
        String::schema()
    }
}

impl Read for FolderRule {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, Self::parse)
    }
}

impl Shape for HostRule {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [String::schema(), keys::schema::<HostKeys<'_>>()]}))
    }
}

impl Read for HostRule {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        if !matches!(field.node.value, Value::Map(_)) {
            return decoder.parse_one(field, Self::parse);
        }
        let keys: HostKeys<'_> = decoder.keys(field)?;
        let private = keys.private.read(decoder);
        let methods = keys.methods.read(decoder).map(|all| all.into_iter().map(|one| one.value).collect::<Vec<_>>());
        let scheme = keys.scheme.read(decoder);
        let Some(host) = keys.host.field() else {
            decoder.error(field, format!("{} has no `host`", quoted(&field.path)));
            return None;
        };
        decoder.parse_one(host, |text| Ok(Self::parse(text)?.private(private)?.only(methods.clone(), scheme)))
    }
}

impl Shape for Method {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::name))
    }
}

impl Read for Method {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| Self::of(text).ok_or_else(|| none_of(text, &Self::ALL.map(Self::name))))
    }
}

impl Shape for Scheme {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::name))
    }
}

impl Read for Scheme {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, |text| Self::of(text).ok_or_else(|| none_of(text, &Self::ALL.map(Self::name))))
    }
}

/// Says which words there are.
fn none_of(text: &str, words: &[&str]) -> String {
    format!("{} is none of {}", quoted(text), words.join(", "))
}

/// The name of a variable of the environment. There are no patterns: each is named.
#[derive(Debug)]
pub struct Variable(pub(crate) String);

impl Shape for Variable {
    fn schema() -> Schema {
        shape::schema(json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": 256}))
    }
}

impl Read for Variable {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, variable).map(Self)
    }
}

/// The text, if it can be the name of a variable.
pub fn variable(text: &str) -> Result<String, String> {
    let mut characters = text.chars();
    let first = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if first && text.len() <= 256 && characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(text.to_owned());
    }
    Err(format!("{} is not the name of a variable", quoted(text)))
}

impl Shape for Service {
    fn schema() -> Schema {
        shape::words(Self::ALL.map(Self::name))
    }
}

impl Read for Service {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.parse_one(field, service)
    }
}

fn service(text: &str) -> Result<Service, String> {
    if let Some(service) = Service::ALL.into_iter().find(|service| service.name() == text) {
        return Ok(service);
    }
    let names = Service::ALL.map(Service::name);
    Err(match closest(text, names) {
        Some(word) => format!("{} is not a built-in that needs a grant, did you mean `{word}`?", quoted(text)),
        None => format!("{} is not a built-in that needs a grant, those are {}", quoted(text), names.join(", ")),
    })
}
