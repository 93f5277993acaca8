//! `serve.yaml`: what a server gives to its tenants, by their class.
//!
//! ```yaml
//! instances: 64
//! classes:
//!   default:
//!     policy: classes/default.yaml
//!     weight: 100
//!     concurrent_calls: 16
//!     requests: { per_minute: 600, burst: 60 }
//!     budgets: { fuel_per_day: 1000000000, cost_per_month: 20 }
//! prices:
//!   - { model: "gpt-4o-mini*", input: 0.15, output: 0.6 }
//! ```

use crate::decode::{Decoder, Field};
use crate::diagnostic::Diagnostics;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use serde_json::json;

use crate::shape::{Between, Name, Named, Read, Schema, Shape, schema};
use crate::yaml;

/// The class of tenants that name no other.
pub const DEFAULT_CLASS: &str = "default";

/// Whole numbers of any use.
type Count = Between<1, 1_000_000>;
/// Amounts that add up over a day or a month.
type Amount = Between<1, 1_000_000_000_000_000>;

/// What a server is given to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Instances at one time for all tenants, 1 to 10,000. 64 where the file says nothing.
    pub instances: u32,
    /// Classes of tenants by name; [`DEFAULT_CLASS`] is always there.
    pub classes: Vec<(String, TenantClass)>,
    /// What services of models charge. Of several that fit a model, the first counts.
    pub prices: Vec<ModelPrice>,
}

/// What the service of a model charges for a million tokens, in microdollars; so much for one in picodollars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrice {
    /// The name of the model, as a project names it. A `*` stands for any characters.
    pub model: String,
    /// Of the tokens that it reads.
    pub input: u64,
    /// Of those that it writes.
    pub output: u64,
}

/// What each tenant of a class may have at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantClass {
    /// The file of the host policy that their projects are within, relative to the configuration. None: one that lets
    /// scripts use the files of their workspace, and no network, command, variable or secret.
    pub policy: Option<Located<String>>,
    /// Its share of the processor beside other tenants, 1 to 10,000; 100 where nothing is said.
    pub weight: Option<u32>,
    /// Calls at one time.
    pub concurrent_calls: Option<u32>,
    /// Calls that wait for one of those to end.
    pub queued_calls: Option<u32>,
    /// Runs of agents at one time.
    pub concurrent_runs: Option<u32>,
    /// Bytes of linear memory of all its instances.
    pub memory_bytes: Option<u64>,
    /// Bytes of the files of one workspace.
    pub workspace_bytes: Option<u64>,
    /// Files of one workspace.
    pub workspace_files: Option<u64>,
    /// Workspaces of a tenant, `default` included.
    pub workspaces: Option<u32>,
    /// Requests to the interface of the server.
    pub requests: Option<Rate>,
    /// What it may use in a day and in a month.
    pub budgets: Budgets,
    /// How long what has ended is kept.
    pub retention: Retention,
    /// Webhooks of one tenant; none where nothing is said.
    pub webhooks: Option<u32>,
    /// Receivers of webhooks, as `HOST:PORT`, that need not be at a public address.
    pub webhooks_inside: Vec<String>,
}

/// How long what has ended is kept. What is not there has its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Days that a run and its events are kept after its end; 0: until the next removal, which is once in an hour.
    pub runs_days: Option<u64>,
    /// Days that a question about a call is kept after it was asked, if it was answered; else after its time was over.
    pub approvals_days: Option<u64>,
    /// Hours that the answer to a request with an `Idempotency-Key` is kept.
    pub idempotency_hours: Option<u64>,
    /// Days that a session is kept after its last line; without it, for ever.
    pub sessions_days: Option<u64>,
    /// Days that lines of the audit log are kept at least; without it, for ever.
    pub audit_days: Option<u64>,
}

/// So many requests in a minute, and so many at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests in a minute, 1 to 1,000,000.
    pub per_minute: u32,
    /// Requests at once, 1 to 1,000,000; a tenth of those in a minute where nothing is said.
    pub burst: u32,
}

/// What a tenant may use of something in a day or a month of UTC. What is not there is not bounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Calls of tools.
    pub calls_per_day: Option<u64>,
    /// Units of fuel of its calls, those of hooks included.
    pub fuel_per_day: Option<u64>,
    /// The same in a month.
    pub fuel_per_month: Option<u64>,
    /// Tokens that the services of models count.
    pub tokens_per_day: Option<u64>,
    /// The same in a month.
    pub tokens_per_month: Option<u64>,
    /// What its models cost by the prices of the server, in microdollars.
    pub cost_per_day: Option<u64>,
    /// The same in a month.
    pub cost_per_month: Option<u64>,
    /// Bytes that leave the machine for it.
    pub egress_per_day: Option<u64>,
    /// The same in a month.
    pub egress_per_month: Option<u64>,
}

keys! {
    /// The keys of the configuration of a server.
    ServerKeys: Unknown::Refuse;
    /// Instances of scripts at one time for all tenants.
    given instances: Between<1, 10_000>;
    /// What tenants of a class may have at most, by the name of the class. Tenants that name none are of `default`.
    given classes: Named<TenantClass>;
    /// What services of models charge, for budgets of cost. Of several that fit a model, the first counts.
    given prices: Vec<ModelPrice>;
}

keys! {
    /// The keys of a price.
    PriceKeys: Unknown::Refuse;
    /// The name of the model. A `*` stands for any characters.
    required model: Name;
    /// US dollars for a million tokens that it reads, of at most 6 decimal places.
    required input: Dollars;
    /// The same of tokens that it writes.
    required output: Dollars;
}

keys! {
    /// The keys of a class of tenants.
    ClassKeys: Unknown::Refuse;
    /// The file of the host policy that their projects are within, relative to this file. Default: one that lets scripts
    /// use the files of their workspace, and no network, command, variable or secret.
    given policy: Name;
    /// The share of the processor beside other tenants. Default: 100.
    given weight: Between<1, 10_000>;
    /// Calls at one time. Default: 64.
    given concurrent_calls: Between<1, 10_000>;
    /// Calls that wait for one of those to end. Default: 1,000.
    given queued_calls: Between<0, 1_000_000>;
    /// Runs of agents at one time. Default: 8.
    given concurrent_runs: Between<1, 10_000>;
    /// Bytes of memory of all instances. Default: 1 GiB.
    given memory_bytes: Amount;
    /// Bytes of the files of one workspace. Default: 256 MiB.
    given workspace_bytes: Amount;
    /// Files, folders and links of one workspace. Default: 10,000.
    given workspace_files: Count;
    /// Workspaces of a tenant, `default` included. Default: 1.
    given workspaces: Between<1, 1_000>;
    /// Requests to the server. Default: 6,000 in a minute.
    given requests: Rate;
    /// What a tenant may use in a day and in a month. Default: no bound.
    given budgets: Budgets;
    /// How long what has ended is kept.
    given retention: Retention;
    /// Webhooks of one tenant. Default: 0.
    given webhooks: Between<0, 100>;
    /// Receivers of webhooks, as `HOST:PORT`, that need not be at a public address. Default: none.
    given webhooks_inside: Vec<String>;
}

keys! {
    /// The keys of a retention.
    RetentionKeys: Unknown::Refuse;
    /// Days that a run and its events are kept after its end. Default: 30.
    given runs_days: Between<0, 36_500>;
    /// Days that a question about a call is kept after it was asked, if it was answered; else after its time was over. Default: 30.
    given approvals_days: Between<0, 36_500>;
    /// Hours that the answer to a request with an `Idempotency-Key` is kept. Default: 24.
    given idempotency_hours: Between<1, 720>;
    /// Days that a session is kept after its last line. Default: for ever, because a conversation can be resumed at any time.
    given sessions_days: Between<0, 36_500>;
    /// Days that lines of the audit log are kept at least. Default: for ever.
    given audit_days: Between<1, 36_500>;
}

keys! {
    /// The keys of a rate.
    RateKeys: Unknown::Refuse;
    /// Requests in a minute.
    required per_minute: Count;
    /// Requests at once after a pause. Default: a tenth of those in a minute.
    given burst: Count;
}

keys! {
    /// The keys of budgets.
    BudgetKeys: Unknown::Refuse;
    /// Calls of tools in a day.
    given calls_per_day: Amount;
    /// Units of fuel in a day, those of hooks included.
    given fuel_per_day: Amount;
    /// Units of fuel in a month.
    given fuel_per_month: Amount;
    /// Tokens of models in a day.
    given tokens_per_day: Amount;
    /// Tokens of models in a month.
    given tokens_per_month: Amount;
    /// US dollars that models cost in a day by `prices`, of at most 6 decimal places.
    given cost_per_day: Dollars;
    /// The same in a month.
    given cost_per_month: Dollars;
    /// Bytes in a day that leave the machine: requests of scripts and to models, and what commands send.
    given egress_per_day: Amount;
    /// The same in a month.
    given egress_per_month: Amount;
}

impl Default for ServerConfig {
    /// 64 instances, and one class.
    fn default() -> Self {
        Self { instances: 64, classes: vec![(DEFAULT_CLASS.to_owned(), TenantClass::default())], prices: Vec::new() }
    }
}

impl ServerConfig {
    /// Reads the file. `file` is for messages. The configuration is there only if nothing is wrong with it.
    pub fn parse(file: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let name = file.rsplit('/').next().unwrap_or(file);
        let mut decoder = Decoder::new(file, format!("parse {name}"));
        let (root, errors) = yaml::parse(text, 1);
        decoder.yaml_errors(errors);
        let root = root.filter(|root| root.value != yaml::Value::Null);
        let config = match &root {
            Some(root) => Self::decode(&mut decoder, root),
            None => Some(Self::default()),
        };
        let diagnostics = decoder.into_diagnostics();
        (config.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<&TenantClass> {
        self.classes.iter().find(|(class, _)| class == name).map(|(_, class)| class)
    }

    fn decode(decoder: &mut Decoder, root: &yaml::Node) -> Option<Self> {
        let keys: ServerKeys<'_> = decoder.root(root)?;
        let instances = keys.instances.read(decoder).and_then(|n| u32::try_from(n.0).ok());
        let mut classes = keys.classes.read(decoder).unwrap_or_default().pairs();
        if !classes.iter().any(|(name, _)| name == DEFAULT_CLASS) {
            classes.push((DEFAULT_CLASS.to_owned(), TenantClass::default()));
        }
        let prices = keys.prices.read(decoder).unwrap_or_default();
        Some(Self { instances: instances.unwrap_or(Self::default().instances), classes, prices })
    }
}

impl Shape for ServerConfig {
    fn schema() -> Schema {
        keys::schema::<ServerKeys<'_>>()
    }
}

impl Shape for TenantClass {
    fn schema() -> Schema {
        keys::schema::<ClassKeys<'_>>()
    }
}

impl Read for TenantClass {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: ClassKeys<'_> = decoder.keys(field)?;
        let small = |n: u64| u32::try_from(n).ok();
        let webhooks_inside: Vec<String> = keys.webhooks_inside.read(decoder).unwrap_or_default();
        let is_place = |one: &String| {
            one.rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if let Some(wrong) = webhooks_inside.iter().find(|one| !is_place(one)) {
            decoder.error(field, format!("`{wrong}` in `webhooks_inside` is not `HOST:PORT`"));
        }
        Some(Self {
            webhooks: keys.webhooks.read(decoder).and_then(|n| small(n.0)),
            webhooks_inside,
            policy: keys.policy.located(decoder).map(|policy| policy.map(|policy| policy.0)),
            weight: keys.weight.read(decoder).and_then(|n| small(n.0)),
            concurrent_calls: keys.concurrent_calls.read(decoder).and_then(|n| small(n.0)),
            queued_calls: keys.queued_calls.read(decoder).and_then(|n| small(n.0)),
            concurrent_runs: keys.concurrent_runs.read(decoder).and_then(|n| small(n.0)),
            memory_bytes: keys.memory_bytes.read(decoder).map(|n| n.0),
            workspace_bytes: keys.workspace_bytes.read(decoder).map(|n| n.0),
            workspace_files: keys.workspace_files.read(decoder).map(|n| n.0),
            workspaces: keys.workspaces.read(decoder).and_then(|n| small(n.0)),
            requests: keys.requests.read(decoder),
            budgets: keys.budgets.read(decoder).unwrap_or_default(),
            retention: keys.retention.read(decoder).unwrap_or_default(),
        })
    }
}

impl Shape for Rate {
    fn schema() -> Schema {
        keys::schema::<RateKeys<'_>>()
    }
}

impl Read for Rate {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: RateKeys<'_> = decoder.keys(field)?;
        if keys.per_minute.field().is_none() {
            decoder.error(field, format!("`{}` has no `per_minute`", field.path));
        }
        let per_minute = keys.per_minute.read(decoder).and_then(|n| u32::try_from(n.0).ok())?;
        let burst = keys.burst.read(decoder).and_then(|n| u32::try_from(n.0).ok());
        Some(Self { per_minute, burst: burst.unwrap_or_else(|| per_minute.div_ceil(10)) })
    }
}

impl Shape for Retention {
    fn schema() -> Schema {
        keys::schema::<RetentionKeys<'_>>()
    }
}

impl Read for Retention {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: RetentionKeys<'_> = decoder.keys(field)?;
        Some(Self {
            runs_days: keys.runs_days.read(decoder).map(|n| n.0),
            approvals_days: keys.approvals_days.read(decoder).map(|n| n.0),
            idempotency_hours: keys.idempotency_hours.read(decoder).map(|n| n.0),
            sessions_days: keys.sessions_days.read(decoder).map(|n| n.0),
            audit_days: keys.audit_days.read(decoder).map(|n| n.0),
        })
    }
}

impl Shape for Budgets {
    fn schema() -> Schema {
        keys::schema::<BudgetKeys<'_>>()
    }
}

impl Read for Budgets {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: BudgetKeys<'_> = decoder.keys(field)?;
        Some(Self {
            calls_per_day: keys.calls_per_day.read(decoder).map(|n| n.0),
            fuel_per_day: keys.fuel_per_day.read(decoder).map(|n| n.0),
            fuel_per_month: keys.fuel_per_month.read(decoder).map(|n| n.0),
            tokens_per_day: keys.tokens_per_day.read(decoder).map(|n| n.0),
            tokens_per_month: keys.tokens_per_month.read(decoder).map(|n| n.0),
            cost_per_day: keys.cost_per_day.read(decoder).map(|n| n.0),
            cost_per_month: keys.cost_per_month.read(decoder).map(|n| n.0),
            egress_per_day: keys.egress_per_day.read(decoder).map(|n| n.0),
            egress_per_month: keys.egress_per_month.read(decoder).map(|n| n.0),
        })
    }
}

/// US dollars, in microdollars.
struct Dollars(u64);

/// Dollars of a price or a budget, at most.
const MAX_DOLLARS: f64 = 1_000_000.0;

impl Shape for Dollars {
    fn schema() -> Schema {
        schema(json!({"type": "number", "minimum": 0, "maximum": MAX_DOLLARS}))
    }
}

impl Read for Dollars {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let value = decoder.number_in(field, 0.0..=MAX_DOLLARS)?;
        let micro = micro(value);
        if micro.is_none() {
            decoder.error(field, format!("`{}` has more than 6 decimal places", field.path));
        }
        micro.map(Self)
    }
}

/// A number with at most 6 decimal places, in millionths. Of the shortest text of a number, as people write it: no digit of that
/// is lost below a million.
fn micro(value: f64) -> Option<u64> {
    let text = value.to_string();
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    if rest.len() > 6 {
        return None;
    }
    let rest: u64 = format!("{rest:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(rest)
}

impl Shape for ModelPrice {
    fn schema() -> Schema {
        keys::schema::<PriceKeys<'_>>()
    }
}

impl Read for ModelPrice {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: PriceKeys<'_> = decoder.keys(field)?;
        for (name, is_there) in [
            ("model", keys.model.field().is_some()),
            ("input", keys.input.field().is_some()),
            ("output", keys.output.field().is_some()),
        ] {
            if !is_there {
                decoder.error(field, format!("`{}` has no `{name}`", field.path));
            }
        }
        let (model, input, output) = (keys.model.read(decoder), keys.input.read(decoder), keys.output.read(decoder));
        Some(Self { model: model?.0, input: input?.0, output: output?.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_gives() {
        let text = "instances: 8\nclasses:\n  default: { requests: { per_minute: 55 } }\n  large:\n    policy: large.yaml\n    \
                    weight: 400\n    budgets: { fuel_per_day: 7, tokens_per_month: 9 }\n    retention: { runs_days: 0 }\n";
        let (config, wrong) = ServerConfig::parse("serve.yaml", text);
        let config = config.unwrap_or_else(|| panic!("{wrong:?}"));
        let rate = Rate { per_minute: 55, burst: 6 };
        assert_eq!((config.instances, config.class(DEFAULT_CLASS).unwrap().requests), (8, Some(rate)));
        let large = config.class("large").unwrap();
        assert_eq!(
            (large.policy.as_ref().map(|file| file.value.as_str()), large.weight),
            (Some("large.yaml"), Some(400))
        );
        let budgets = Budgets { fuel_per_day: Some(7), tokens_per_month: Some(9), ..Budgets::default() };
        assert_eq!((large.budgets, config.class("none")), (budgets, None));
        assert_eq!(large.retention, Retention { runs_days: Some(0), ..Retention::default() });
        let text = "prices:\n  - { model: gpt-4o-mini*, input: 0.15, output: 0.6 }\n  - { model: '*', input: 1, output: 0.000001 }\n\
                    classes: { a: { budgets: { cost_per_day: 12.5, cost_per_month: 100 } } }\n";
        let config = ServerConfig::parse("serve.yaml", text).0.unwrap();
        let price = |model: &str, input, output| ModelPrice { model: model.to_owned(), input, output };
        assert_eq!(config.prices, [price("gpt-4o-mini*", 150_000, 600_000), price("*", 1_000_000, 1)]);
        let budgets = config.class("a").unwrap().budgets;
        assert_eq!((budgets.cost_per_day, budgets.cost_per_month), (Some(12_500_000), Some(100_000_000)));
        // An empty file is one that says nothing.
        assert_eq!(ServerConfig::parse("serve.yaml", "").0, Some(ServerConfig::default()));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for (text, why) in [
            ("sizes: {}", "unknown key `sizes`"),
            ("instances: 0", "parse serve.yaml: yaml: line 1: `instances` must be between 1 and 10000"),
            ("classes: { a: { requests: {} } }", "`classes.a.requests` has no `per_minute`"),
            (
                "classes: { a: { retention: { idempotency_hours: 0 } } }",
                "parse serve.yaml: yaml: line 1: `classes.a.retention.idempotency_hours` must be between 1 and 720",
            ),
            ("prices: [{ model: a, input: 1 }]", "`prices[0]` has no `output`"),
            (
                "classes: { a: { budgets: { cost_per_day: 0.0000001 } } }",
                "`classes.a.budgets.cost_per_day` has more than 6 decimal places",
            ),
            ("classes: { a: { wait: 1 } }", "unknown key `classes.a.wait`"),
        ] {
            let (config, wrong) = ServerConfig::parse("serve.yaml", text);
            let said: Vec<String> = wrong.iter().map(|one| one.message.clone()).collect();
            assert_eq!((config, said.as_slice()), (None, &[why.to_owned()][..]), "{text}");
        }
    }
}
