//! A schema with its references followed: what is checked of a value, and of what is in it.
//!
//! References are resolved as the crate that checks resolves them: from the `$id` that holds them, by pointer, `$anchor`
//! or `$id`. A `$dynamicRef` may lead to each `$dynamicAnchor` of its name. Nothing leads out of the schema.

use std::collections::{BTreeSet, HashMap};

use jsonschema::{Draft, ReferencingError as Error, Registry, uri};
use referencing::Resolver;
use serde_json::{Map, Value as Json};

use super::weight::{Holds, holds, number};
use harness_policy::text::quoted;

/// Schemas of a schema that refers to itself.
const MAX_NODES: usize = 1000;
/// Schemas with an `$id`: each is checked by itself.
const MAX_IDS: usize = 16;
/// Bytes of a pattern.
const MAX_PATTERN: usize = 1024;
/// What a schema without an `$id` is called.
const BASE: &str = "json-schema:///";
/// What `$schema` may be.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A schema, and what it has looked at.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// What it costs by itself.
    pub(super) own: u64,
    /// Whether items are compared with each other.
    pub(super) compares_items: bool,
    /// Whether what it holds is checked again for `unevaluatedItems` or `unevaluatedProperties`.
    pub(super) looks_again: bool,
    pub(super) edges: Vec<Edge>,
}

/// A schema that another one holds or refers to.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) of: Of,
    /// How often it is checked: tried first, and asked for its errors then.
    pub(super) times: u64,
    /// The reference that leads to it, where one does.
    pub(super) reference: Option<Box<str>>,
}

/// What of a value a schema is about.
#[derive(Debug)]
pub(super) enum Of {
    /// The value itself.
    All,
    /// The value itself, where it has this key.
    With(String),
    /// What is under a key.
    Key(String),
    /// What is under keys that are none of these.
    Others(BTreeSet<String>),
    /// The names of keys.
    Names,
    /// One item.
    Item(usize),
    /// The items from there on.
    From(usize),
}

/// A schema as a graph. Its first node is the whole.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Whether a reference leads back to what holds it.
    pub(super) refers_to_itself: bool,
}

/// Follows all references of a schema. An error says in one line what no schema here may have.
pub(super) fn of(schema: &Json) -> Result<Graph, String> {
    dialects(schema)?;
    let registry = Registry::new().draft(Draft::Draft202012).add(BASE, schema).and_then(|registry| registry.prepare());
    let registry = registry.map_err(|error| unresolved(&error, None))?;
    let base = uri::from_str(BASE).map_err(|error| unresolved(&error, None))?;
    let mut builder = Builder::default();
    builder.anchors(schema, &registry.resolver(base.clone()))?;
    builder.held(schema, &registry.resolver(base))?;
    while let Some((at, schema, resolver)) = builder.waiting.pop() {
        let node = builder.filled(schema, &resolver)?;
        if let Some(place) = builder.nodes.get_mut(at) {
            *place = node;
        }
    }
    let mut graph = Graph { nodes: builder.nodes, refers_to_itself: false };
    graph.refers_to_itself = graph.order(|_| true).is_err();
    if graph.refers_to_itself && graph.nodes.len() > MAX_NODES {
        return Err(format!("it refers to itself and has over {MAX_NODES} schemas"));
    }
    // A round that looks at nothing smaller has no end.
    graph.order(|of| matches!(of, Of::All | Of::With(_))).map_err(|reference| {
        let shown = quoted(reference.unwrap_or_default());
        format!("the reference {shown} leads back to itself, without an end")
    })?;
    Ok(graph)
}

impl Graph {
    /// The nodes, each after all that it leads to by edges of this kind. An error is a reference of a round.
    pub(super) fn order(&self, keep: impl Fn(&Of) -> bool) -> Result<Vec<usize>, Option<&str>> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut states = vec![State::New; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for start in 0..self.nodes.len() {
            if states.get(start) != Some(&State::New) {
                continue;
            }
            // Each with how many of its edges were followed, and the reference that led to it.
            let mut open: Vec<(usize, usize, Option<&str>)> = vec![(start, 0, None)];
            while let Some((at, next, _)) = open.last_mut() {
                let at = *at;
                if let Some(state) = states.get_mut(at) {
                    *state = State::Open;
                }
                let edge = self.nodes.get(at).and_then(|node| node.edges.get(*next));
                *next = next.saturating_add(1);
                let Some(edge) = edge else {
                    if let Some(state) = states.get_mut(at) {
                        *state = State::Done;
                    }
                    order.push(at);
                    open.pop();
                    continue;
                };
                if !keep(&edge.of) {
                    continue;
                }
                match states.get(edge.to) {
                    Some(State::New) => open.push((edge.to, 0, edge.reference.as_deref())),
                    Some(State::Open) => {
                        let round = open.iter().rev().take_while(|(on, ..)| *on != edge.to);
                        let mut references = round.filter_map(|(_, _, reference)| *reference);
                        return Err(edge.reference.as_deref().or_else(|| references.next()));
                    }
                    Some(State::Done) | None => {}
                }
            }
        }
        Ok(order)
    }
}

/// What is being followed.
#[derive(Default)]
struct Builder<'a> {
    nodes: Vec<Node>,
    /// The node of each schema, by where it is.
    known: HashMap<usize, usize>,
    /// Schemas that have a node and are not looked at yet.
    waiting: Vec<(usize, &'a Json, Resolver<'a>)>,
    /// The schemas with each `$dynamicAnchor`.
    dynamic: HashMap<&'a str, Vec<(&'a Json, Resolver<'a>)>>,
    ids: usize,
}

impl<'a> Builder<'a> {
    /// Collects what dynamic references may lead to.
    fn anchors(&mut self, schema: &'a Json, resolver: &Resolver<'a>) -> Result<(), String> {
        let Json::Object(keywords) = schema else { return Ok(()) };
        let resolver = scoped(schema, resolver)?;
        if keywords.contains_key("$id") {
            self.ids = self.ids.saturating_add(1);
            if self.ids > MAX_IDS {
                return Err(format!("it has over {MAX_IDS} schemas with an `$id`"));
            }
        }
        if let Some(name) = keywords.get("$dynamicAnchor").and_then(Json::as_str) {
            self.dynamic.entry(name).or_default().push((schema, resolver.clone()));
        }
        for (keyword, value) in keywords {
            match (holds(keyword), value) {
                (Holds::Schema(_), value) => self.anchors(value, &resolver)?,
                (Holds::List(_), Json::Array(schemas)) => {
                    schemas.iter().try_for_each(|one| self.anchors(one, &resolver))?;
                }
                (Holds::Named(_), Json::Object(schemas)) => {
                    schemas.values().try_for_each(|one| self.anchors(one, &resolver))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The node of a schema within another one, whose resolver this is.
    fn held(&mut self, schema: &'a Json, resolver: &Resolver<'a>) -> Result<usize, String> {
        Ok(self.node(schema, scoped(schema, resolver)?))
    }

    /// The node of a schema. The resolver is the one inside of it: its own `$id` counts once, and not again.
    fn node(&mut self, schema: &'a Json, resolver: Resolver<'a>) -> usize {
        let place = std::ptr::from_ref(schema).addr();
        if let Some(known) = self.known.get(&place) {
            return *known;
        }
        let at = self.nodes.len();
        self.known.insert(place, at);
        self.nodes.push(Node::default());
        self.waiting.push((at, schema, resolver));
        at
    }

    fn filled(&mut self, schema: &'a Json, resolver: &Resolver<'a>) -> Result<Node, String> {
        let mut node = Node { own: 1, ..Node::default() };
        let Json::Object(keywords) = schema else { return Ok(node) };
        for (keyword, value) in keywords {
            node.own = node.own.saturating_add(1);
            match (keyword.as_str(), value) {
                ("$ref", Json::String(reference)) => self.refer(&mut node, reference, resolver)?,
                ("$dynamicRef", Json::String(reference)) => {
                    self.refer(&mut node, reference, resolver)?;
                    let name = reference.rsplit_once('#').map_or("", |(_, name)| name);
                    for (schema, resolver) in self.dynamic.get(name).cloned().unwrap_or_default() {
                        let to = self.node(schema, resolver);
                        node.leads(to, Of::All, 1, Some(reference));
                    }
                }
                ("pattern", Json::String(pattern)) => node.pattern(pattern, 1)?,
                ("enum" | "const", value) => node.own = node.own.saturating_add(size(value)),
                ("uniqueItems", _) => node.compares_items = true,
                ("unevaluatedItems" | "unevaluatedProperties", _) => node.looks_again = true,
                ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", value) => {
                    number(value)?;
                }
                _ => {}
            }
            match (holds(keyword), value) {
                // It is shown, and not checked.
                (Holds::Schema(_), _) if keyword == "contentSchema" => {}
                (Holds::Schema(times), value) => {
                    let to = self.held(value, resolver)?;
                    node.leads(to, of_keyword(keyword, keywords), times, None);
                }
                (Holds::List(times), Json::Array(schemas)) => {
                    for (index, one) in schemas.iter().enumerate() {
                        let to = self.held(one, resolver)?;
                        let of = if keyword == "prefixItems" { Of::Item(index) } else { Of::All };
                        node.leads(to, of, times, None);
                    }
                }
                // What is defined counts where it is referred to.
                (Holds::Named(_), _) if matches!(keyword.as_str(), "$defs" | "definitions") => {}
                (Holds::Named(times), Json::Object(schemas)) => {
                    for (name, one) in schemas {
                        let of = match keyword.as_str() {
                            "patternProperties" => {
                                node.pattern(name, times)?;
                                Of::Others(BTreeSet::new())
                            }
                            "dependentSchemas" => Of::With(name.clone()),
                            _ => Of::Key(name.clone()),
                        };
                        let to = self.held(one, resolver)?;
                        node.leads(to, of, times, None);
                    }
                }
                _ => {}
            }
        }
        Ok(node)
    }

    fn refer(&mut self, node: &mut Node, reference: &str, resolver: &Resolver<'a>) -> Result<(), String> {
        let found = resolver.lookup(reference).map_err(|error| unresolved(&error, Some(reference)))?;
        let (schema, resolver, _) = found.into_inner();
        let to = self.node(schema, resolver);
        node.leads(to, Of::All, 1, Some(reference));
        Ok(())
    }
}

impl Node {
    fn leads(&mut self, to: usize, of: Of, times: u64, reference: Option<&str>) {
        self.edges.push(Edge { to, of, times, reference: reference.map(Into::into) });
    }

    fn pattern(&mut self, pattern: &str, times: u64) -> Result<(), String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("a pattern is over {MAX_PATTERN} bytes"));
        }
        let weight = u64::try_from(pattern.len() / 8).unwrap_or(u64::MAX);
        self.own = self.own.saturating_add(times.saturating_mul(weight));
        Ok(())
    }
}

/// What of a value the schema of a keyword is about.
fn of_keyword(keyword: &str, beside: &Map<String, Json>) -> Of {
    let named = || {
        let properties = beside.get("properties").and_then(Json::as_object);
        Of::Others(properties.into_iter().flat_map(Map::keys).cloned().collect())
    };
    match keyword {
        "items" => Of::From(beside.get("prefixItems").and_then(Json::as_array).map_or(0, Vec::len)),
        "contains" | "unevaluatedItems" => Of::From(0),
        "additionalProperties" | "unevaluatedProperties" => named(),
        "propertyNames" => Of::Names,
        _ => Of::All,
    }
}

/// The resolver inside of a schema, which may have an `$id`.
fn scoped<'a>(schema: &'a Json, resolver: &Resolver<'a>) -> Result<Resolver<'a>, String> {
    let inside = resolver.in_subresource(Draft::Draft202012.create_resource_ref(schema));
    inside.map_err(|error| unresolved(&error, None))
}

/// Whether all of it is in the one dialect that is checked.
fn dialects(schema: &Json) -> Result<(), String> {
    match schema {
        Json::Array(items) => items.iter().try_for_each(dialects),
        Json::Object(keywords) => {
            for (keyword, value) in keywords {
                match (keyword.as_str(), value) {
                    ("$schema", Json::String(dialect)) if dialect.trim_end_matches('#') != DIALECT => {
                        return Err(format!("`$schema` must be `{DIALECT}`, found {}", quoted(dialect)));
                    }
                    ("$recursiveRef" | "$recursiveAnchor", _) => {
                        let newer = keyword.replace("recursive", "dynamic");
                        return Err(format!("`{keyword}` is of an older JSON Schema: write `{newer}`"));
                    }
                    // Data, which may hold anything.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (_, value) => dialects(value)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What is wrong with a reference.
fn unresolved(error: &Error, reference: Option<&str>) -> String {
    match error {
        Error::Unretrievable { uri, .. } => {
            let shown = quoted(reference.unwrap_or_else(|| uri.strip_prefix(BASE).unwrap_or(uri)));
            format!("the reference {shown} leaves the schema: references are local, such as `#/$defs/name`")
        }
        Error::InvalidUri(_) => {
            format!(
                "the reference or `$id`{} is no URI",
                reference.map(|it| format!(" {}", quoted(it))).unwrap_or_default()
            )
        }
        error => match reference {
            Some(reference) => format!("the reference {} leads nowhere", quoted(reference)),
            None => error.to_string(),
        },
    }
}

/// How many values a value is.
fn size(value: &Json) -> u64 {
    match value {
        Json::Array(items) => items.iter().fold(1, |sum: u64, item| sum.saturating_add(size(item))),
        Json::Object(entries) => entries.values().fold(1, |sum: u64, item| sum.saturating_add(size(item))),
        _ => 1,
    }
}
