//! What checking against a schema costs at most.
//!
//! The weight of a schema is that of its keywords with every reference written out, doubled where a value is checked
//! twice: in `anyOf`, `oneOf`, `not`, `if` and the like, which are tried first and asked for their errors then. The
//! work of a check is at most the weight times the size of the value. A schema that refers to itself has no weight: its
//! work is found by walking through the value, as far as there may be work.

use std::sync::Arc;

use serde_json::Value as Json;

use super::graph::{self, Edge, Graph, Of};

/// Bytes of a schema.
const MAX_BYTES: usize = 64 << 10;
/// Schemas within schemas, references followed.
const MAX_DEPTH: usize = 32;
/// Most that a schema weighs.
const MAX_WEIGHT: u64 = 20_000;
/// Most that a check costs: some seconds of the slowest keyword, milliseconds of ordinary ones.
const MAX_WORK: u64 = 50_000_000;
/// Characters of a number that is compared: more than any has, fewer than take long to convert.
const MAX_DIGITS: usize = 1000;
/// Bytes of a text that count as one value.
const BYTES: usize = 64;
/// Schemas and values within each other that a check looks at.
const MAX_WALKED: usize = 400;

/// What the value of a keyword holds, and how often a value is checked for it.
pub(super) enum Holds {
    /// One schema.
    Schema(u64),
    /// A list of them.
    List(u64),
    /// A mapping from names to them.
    Named(u64),
    /// None.
    Nothing,
}

/// What a keyword holds.
pub(super) fn holds(keyword: &str) -> Holds {
    match keyword {
        "items" | "additionalProperties" | "then" | "else" | "contentSchema" => Holds::Schema(1),
        "contains" | "propertyNames" | "not" | "if" | "unevaluatedItems" | "unevaluatedProperties" => Holds::Schema(2),
        "allOf" | "prefixItems" => Holds::List(1),
        "anyOf" | "oneOf" => Holds::List(2),
        "properties" | "$defs" | "definitions" => Holds::Named(1),
        "patternProperties" | "dependentSchemas" => Holds::Named(2),
        _ => Holds::Nothing,
    }
}

/// What checking against a schema costs.
#[derive(Debug, Clone)]
pub(super) enum Weight {
    /// The same for each value in what is checked.
    Fixed {
        /// Of the keywords.
        weight: u64,
        /// Whether items are compared with each other.
        compares_items: bool,
    },
    /// As much as is found by walking through a value with a schema that refers to itself.
    Walked(Arc<Graph>),
}

/// Weighs a schema. An error says in one line what no schema here may have.
pub(super) fn weigh(schema: &Json) -> Result<Weight, String> {
    // Before anything is followed: a text of this size has no more keywords than that.
    if schema.to_string().len() > MAX_BYTES {
        return Err(format!("it is over {MAX_BYTES} bytes"));
    }
    let graph = graph::of(schema)?;
    if graph.refers_to_itself {
        return Ok(Weight::Walked(Arc::new(graph)));
    }
    // Of each node what it weighs with all that it leads to, and how deep that is.
    let mut known = vec![(0_u64, 0_usize); graph.nodes.len()];
    for at in graph.order(|_| true).unwrap_or_default() {
        let Some(node) = graph.nodes.get(at) else { continue };
        let (mut weight, mut depth) = (node.own, 0);
        for edge in &node.edges {
            let (own, below) = known.get(edge.to).copied().unwrap_or_default();
            weight = weight.saturating_add(edge.times.saturating_mul(own));
            depth = depth.max(below.saturating_add(1));
        }
        if let Some(place) = known.get_mut(at) {
            *place = (weight, depth);
        }
    }
    let (weight, depth) = known.first().copied().unwrap_or_default();
    if depth > MAX_DEPTH {
        return Err(format!("it has over {MAX_DEPTH} schemas within each other"));
    }
    if weight > MAX_WEIGHT {
        return Err(format!(
            "checking it would take too long: with all references written out it weighs over {MAX_WEIGHT} keywords"
        ));
    }
    let compares_items = graph.nodes.iter().any(|node| node.compares_items);
    Ok(Weight::Fixed { weight: weight.max(1), compares_items })
}

impl Weight {
    /// Whether it is found only by walking through a value.
    pub(super) fn is_walked(&self) -> bool {
        matches!(self, Self::Walked(_))
    }

    /// Whether a value is small enough to be checked, and how many schemas within each other that takes.
    pub(super) fn allows(&self, value: &Json) -> Result<usize, String> {
        let work = match self {
            Self::Fixed { weight, compares_items } => {
                let mut compared = 0;
                let size = measure(value, *compares_items, &mut compared)?;
                size.saturating_mul(*weight).saturating_add(compared)
            }
            Self::Walked(graph) => {
                measure(value, false, &mut 0)?;
                let mut walk = Walk { graph, left: MAX_WORK, deepest: 0 };
                walk.through(0, Some(value), true, 0)?;
                return Ok(walk.deepest);
            }
        };
        if work > MAX_WORK { Err(TOO_LARGE.to_owned()) } else { Ok(MAX_DEPTH) }
    }
}

/// What is wrong with a value that takes too long to check.
const TOO_LARGE: &str = "must be smaller to be checked against its schema";
/// What is wrong with one that is checked too deeply.
const TOO_DEEP: &str = "must be nested less deeply to be checked against its schema";

/// The work of checking a value, step by step, as far as it may go.
struct Walk<'g> {
    graph: &'g Graph,
    left: u64,
    /// The most schemas within each other so far.
    deepest: usize,
}

impl Walk<'_> {
    /// Looks at a value with a schema; none is the name of a key. `errors`: what does not fit is asked why, which looks at
    /// alternatives once more after all of them were tried.
    fn through(&mut self, at: usize, value: Option<&Json>, errors: bool, depth: usize) -> Result<(), &'static str> {
        let Some(node) = self.graph.nodes.get(at) else { return Ok(()) };
        self.deepest = self.deepest.max(depth);
        if depth > MAX_WALKED {
            return Err(TOO_DEEP);
        }
        let own = value.map_or(1, around);
        let mut work = node.own.saturating_mul(own);
        if let (true, Some(Json::Array(items))) = (node.compares_items, value) {
            let all: u64 = items.iter().fold(0, |sum, item| sum.saturating_add(whole(item)));
            work = work.saturating_add(all.saturating_mul(items.len() as u64) / 8);
        }
        self.left = self.left.checked_sub(work).ok_or(TOO_LARGE)?;
        let rounds = if node.looks_again { 3 } else { 1 };
        for _ in 0..rounds {
            for edge in &node.edges {
                if edge.times > 1 {
                    self.along(edge, value, false, depth)?;
                }
                if edge.times == 1 || errors {
                    self.along(edge, value, errors, depth)?;
                }
            }
        }
        Ok(())
    }

    fn along(&mut self, edge: &Edge, value: Option<&Json>, errors: bool, depth: usize) -> Result<(), &'static str> {
        let deeper = depth.saturating_add(1);
        let mut look = |value: Option<&Json>| self.through(edge.to, value, errors, deeper);
        match (&edge.of, value) {
            (Of::All, value) => look(value),
            (Of::With(key), Some(Json::Object(entries))) if entries.contains_key(key) => look(value),
            (Of::Key(key), Some(Json::Object(entries))) => entries.get(key).map_or(Ok(()), |value| look(Some(value))),
            (Of::Others(named), Some(Json::Object(entries))) => {
                let mut others = entries.iter().filter(|(key, _)| !named.contains(*key));
                others.try_for_each(|(_, value)| look(Some(value)))
            }
            (Of::Names, Some(Json::Object(entries))) => entries.iter().try_for_each(|_| look(None)),
            (Of::Item(index), Some(Json::Array(items))) => items.get(*index).map_or(Ok(()), |value| look(Some(value))),
            (Of::From(first), Some(Json::Array(items))) => {
                items.iter().skip(*first).try_for_each(|one| look(Some(one)))
            }
            _ => Ok(()),
        }
    }
}

/// What a value counts by itself: with its names, without what it holds.
fn around(value: &Json) -> u64 {
    let own = match value {
        Json::String(string) => text(string),
        Json::Object(entries) => entries.keys().fold(0, |sum: u64, name| sum.saturating_add(text(name))),
        _ => 0,
    };
    own.saturating_add(1)
}

/// The same with what it holds.
fn whole(value: &Json) -> u64 {
    let inner = match value {
        Json::Array(items) => items.iter().fold(0, |sum: u64, item| sum.saturating_add(whole(item))),
        Json::Object(entries) => entries.values().fold(0, |sum: u64, item| sum.saturating_add(whole(item))),
        _ => 0,
    };
    around(value).saturating_add(inner)
}

/// How large a value is, and what comparing its items takes.
fn measure(value: &Json, compares_items: bool, compared: &mut u64) -> Result<u64, String> {
    let own = match value {
        Json::Array(items) => {
            let mut inner: u64 = 0;
            for item in items {
                inner = inner.saturating_add(measure(item, compares_items, compared)?);
            }
            // At worst each item is compared with each other one.
            if compares_items {
                *compared = compared.saturating_add(inner.saturating_mul(items.len() as u64) / 8);
            }
            inner
        }
        Json::Object(entries) => {
            let mut inner: u64 = 0;
            for (name, item) in entries {
                inner = inner.saturating_add(text(name)).saturating_add(measure(item, compares_items, compared)?);
            }
            inner
        }
        Json::Number(_) => {
            number(value)?;
            0
        }
        Json::String(string) => text(string),
        Json::Null | Json::Bool(_) => 0,
    };
    Ok(own.saturating_add(1))
}

/// Whether a number is one that is compared.
pub(super) fn number(value: &Json) -> Result<(), String> {
    match value {
        Json::Number(number) if number.as_str().len() > MAX_DIGITS => {
            Err(format!("must not hold a number of over {MAX_DIGITS} digits"))
        }
        _ => Ok(()),
    }
}

fn text(text: &str) -> u64 {
    (text.len() / BYTES) as u64
}
