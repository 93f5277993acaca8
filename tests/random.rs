//! Random layers and requests, the same for the same seed. Tests of several crates include this file.

use std::net::IpAddr;

use url::Url;

use harness_artifact::policy::layer;
use harness_policy::command::CommandReach;
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Service};
use harness_policy::limits::LimitKey;
use harness_policy::network::{Method, Target};
use harness_policy::path::{Access, WorkspacePath};

/// Numbers that look random: xorshift64* (Vigna, 2016).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % most
    }

    pub(crate) fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A grant from layers as `capabilities:` has them.
#[track_caller]
pub(crate) fn grant(layers: &[&str]) -> Grant {
    Grant::new(layers.iter().map(|yaml| parsed(yaml)).collect())
}

#[track_caller]
fn parsed(yaml: &str) -> Layer {
    let (layer, diagnostics) = layer::parse("test", yaml);
    layer.unwrap_or_else(|| panic!("{yaml}: {diagnostics:?}"))
}

const PATTERNS: [&str; 20] = [
    ".", "**", "a", "b", "A", "a/b", "a/*", "*", "?", "a*", "*b", "a?b", "**/b", "a/**/b", "a/**", "**/a*", "B.", "ab",
    ".env", "*/a",
];
const NAMES: [&str; 11] = ["a", "b", "ab", "A", "B", "a.", "ba", "axb", "c", ".env", "B. "];
const COMMANDS: [&str; 16] = [
    "p", "q", "p a", "p *", "p a *", "p a*", "p *a", "p ?", "p -a", "p -*", "p \"\"", "p a b", "p * b", "q a",
    "p a? *", "p \"*\"",
];
const ARGUMENTS: [&str; 8] = ["a", "b", "ab", "-a", "", "*", "ba", "c"];
const HOSTS: [&str; 17] = [
    "'*'",
    "a.x",
    "'*.x'",
    "'*.a.x'",
    "x",
    "'a.x:81'",
    "'*:81'",
    "{ host: a.x, private: true }",
    "{ host: '*.x', private: true }",
    "{ host: a.x, methods: [GET, PUT] }",
    "{ host: '*.x', methods: [POST], scheme: https }",
    "{ host: '*', methods: [], private: false }",
    "127.0.0.1",
    "'127.0.0.1:81'",
    "'[::1]'",
    "b.a.x",
    "'x:80'",
];
const URLS: [&str; 14] = [
    "http://a.x/",
    "http://x/",
    "http://b.a.x/",
    "http://c.b.a.x/",
    "https://a.x/",
    "http://a.x:81/",
    "http://y:81/",
    "http://127.0.0.1/",
    "http://127.0.0.1:81/",
    "http://[::1]/",
    "http://y/",
    "http://ba.x/",
    "http://x:81/",
    "http://c.x:82/",
];
const VARIABLES: [&str; 4] = ["U", "V", "W", "HOME"];

/// One random layer, which speaks of each thing or does not.
pub(crate) fn layer(dice: &mut Dice) -> Layer {
    let list = |dice: &mut Dice, all: &[&str], quote: bool, most: usize| {
        let items: Vec<String> = (0..dice.below(most))
            .map(|_| if quote { format!("'{}'", dice.one(all)) } else { (*dice.one(all)).to_owned() })
            .collect();
        format!("[{}]", items.join(", "))
    };
    let mut yaml = String::from("limits: {}\n");
    if dice.below(4) > 0 {
        let (read, write) = (list(dice, &PATTERNS, true, 4), list(dice, &PATTERNS, true, 4));
        let protect = list(dice, &PATTERNS[2..], true, 3);
        yaml += &format!("fs: {{ read: {read}, write: {write}, protect: {protect} }}\n");
    }
    if dice.below(4) > 0 {
        yaml += &format!("network: {}\n", list(dice, &HOSTS, false, 5));
    }
    if dice.below(4) > 0 {
        let (allow, env) = (list(dice, &COMMANDS, true, 5), list(dice, &VARIABLES, true, 3));
        let (network, unconfined) = (dice.below(2) == 0, dice.below(4) == 0);
        yaml += &format!("exec: {{ allow: {allow}, env: {env}, network: {network}, unconfined: {unconfined} }}\n");
    }
    if dice.below(4) > 0 {
        yaml += &format!("env: {}\n", list(dice, &VARIABLES, true, 4));
    }
    if dice.below(4) > 0 {
        let names = Service::ALL.map(Service::name);
        yaml += &format!("services: {}\n", list(dice, &names, true, 6));
    }
    if dice.below(2) > 0 {
        let limit = |dice: &mut Dice| {
            let facts = dice.one(LimitKey::ALL).facts();
            let values = [*facts.bounds.start(), facts.default, facts.default + 1, facts.default / 2];
            let value = *dice.one(&values);
            format!("{}: {}", facts.name, value.clamp(*facts.bounds.start(), *facts.bounds.end()))
        };
        yaml = yaml.replace("{}", &format!("{{ {} }}", limit(dice)));
    }
    parsed(&yaml)
}

/// At least one and at most so many.
pub(crate) fn stack(dice: &mut Dice, most: usize) -> Vec<Layer> {
    (0..=dice.below(most)).map(|_| layer(dice)).collect()
}

/// Something that a script asks for.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Path(WorkspacePath, Access),
    Host(Target, IpAddr),
    Command(String, Vec<String>),
    ChildVariable(String),
    Variable(String),
    Service(Service),
    Network,
    Unconfined,
    Limit(LimitKey, u64),
}

/// A random one.
pub(crate) fn request(dice: &mut Dice) -> Request {
    match dice.below(12) {
        0..=3 => {
            let names: Vec<&str> = (0..dice.below(4)).map(|_| *dice.one(&NAMES)).collect();
            let text = if names.is_empty() { ".".to_owned() } else { names.join("/") };
            let access = if dice.below(2) == 0 { Access::Read } else { Access::Write };
            Request::Path(WorkspacePath::parse(&text, "/w").unwrap(), access)
        }
        4 | 5 => {
            let target = Target::of(&Url::parse(dice.one::<&str>(&URLS)).unwrap()).unwrap().by(*dice.one(&Method::ALL));
            let address = match target.host() {
                url::Host::Ipv4(address) => (*address).into(),
                url::Host::Ipv6(address) => (*address).into(),
                url::Host::Domain(_) => *dice.one(&[IpAddr::from([1, 1, 1, 1]), IpAddr::from([10, 0, 0, 1])]),
            };
            Request::Host(target, address)
        }
        6 | 7 => {
            let args = (0..dice.below(4)).map(|_| (*dice.one(&ARGUMENTS)).to_owned()).collect();
            Request::Command((*dice.one(&["p", "q"])).to_owned(), args)
        }
        8 => Request::Variable((*dice.one(&VARIABLES)).to_owned()),
        9 => Request::Service(*dice.one(&Service::ALL)),
        10 => {
            let key = *dice.one(LimitKey::ALL);
            Request::Limit(key, key.facts().default - u64::try_from(dice.below(2)).unwrap())
        }
        _ => match dice.below(3) {
            0 => Request::ChildVariable((*dice.one(&VARIABLES)).to_owned()),
            1 => Request::Network,
            _ => Request::Unconfined,
        },
    }
}

impl Request {
    /// What the functions that enforce say.
    pub(crate) fn allowed(&self, grant: &Grant) -> bool {
        match self {
            Self::Path(path, access) => grant.decide_path(path, *access).is_ok(),
            Self::Host(target, address) => grant.decide_address(target, *address).is_ok(),
            Self::Command(program, args) => grant.decide_command(program, args).is_ok(),
            // Of commands that there are.
            Self::ChildVariable(name) => commands(grant) && grant.decide_child_env(name).is_ok(),
            Self::Network => commands(grant) && grant.exec_network() == CommandReach::All,
            Self::Unconfined => commands(grant) && grant.exec_unconfined(),
            Self::Variable(name) => grant.decide_env(name).is_ok(),
            Self::Service(service) => grant.decide_service(*service).is_ok(),
            Self::Limit(key, amount) => grant.limit(*key).0 >= *amount,
        }
    }

    /// The key that grants it.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Path(_, access) => access.key().to_owned(),
            Self::Host(..) => "network".to_owned(),
            Self::Command(..) => "exec.allow".to_owned(),
            Self::ChildVariable(_) => "exec.env".to_owned(),
            Self::Network => "exec.network".to_owned(),
            Self::Unconfined => "exec.unconfined".to_owned(),
            Self::Variable(_) => "env".to_owned(),
            Self::Service(_) => "services".to_owned(),
            Self::Limit(key, _) => format!("limits.{}", key.facts().name),
        }
    }
}

/// Whether any of the commands that are asked for is allowed.
fn commands(grant: &Grant) -> bool {
    let one = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        ["p", "q"].iter().any(|program| grant.decide_command(program, &args).is_ok())
    };
    one(&[]) || ARGUMENTS.iter().any(|a| one(&[a]) || ARGUMENTS.iter().any(|b| one(&[a, b])))
}
