//! Values that calls share: of a run, of a turn, and metrics.

use wasmtime::Result;

use super::super::price::Import;
use super::{Target, misplaced, sync};
use harness_capability::cache::{self, Cache};
use harness_capability::metrics::{self, Metrics};
use harness_capability::turn::{self, Turn};

pub(super) fn define(it: &mut Target<'_>, import: Import) -> Result<()> {
    match import {
        Import::CacheGet => sync(it, import, |s, (key,): (String,)| -> Result<Option<String>, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.in_cache(Some(&key), |cache| cache.get(&key)))
        }),
        Import::CacheSet => sync(it, import, |s, (key, value): (String, String)| {
            s.cache_granted()?;
            s.context.in_cache(Some(&key.clone()), |cache| cache.set(key, value))
        }),
        Import::CacheHas => sync(it, import, |s, (key,): (String,)| -> Result<bool, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.in_cache(Some(&key), |cache| cache.has(&key)))
        }),
        Import::CacheDelete => sync(it, import, |s, (key,): (String,)| -> Result<bool, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.in_cache(Some(&key), |cache| cache.delete(&key)))
        }),
        Import::CacheClear => sync(it, import, |s, (): ()| -> Result<(), cache::Error> {
            s.cache_granted()?;
            s.context.in_cache(None, Cache::clear);
            Ok(())
        }),
        Import::TurnGet => sync(it, import, |s, (key,): (String,)| -> Result<Option<String>, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.in_turn(Some(&key), |turn| turn.get(&key)))
        }),
        Import::TurnSet => sync(it, import, |s, (key, value): (String, String)| {
            s.turn_granted()?;
            s.context.in_turn(Some(&key.clone()), |turn| turn.set(key, value))
        }),
        Import::TurnHas => sync(it, import, |s, (key,): (String,)| -> Result<bool, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.in_turn(Some(&key), |turn| turn.has(&key)))
        }),
        Import::TurnDelete => sync(it, import, |s, (key,): (String,)| {
            s.turn_granted()?;
            s.context.in_turn(Some(&key), |turn| turn.delete(&key))
        }),
        Import::TurnClear => sync(it, import, |s, (): ()| -> Result<(), turn::Error> {
            s.turn_granted()?;
            s.context.in_turn(None, Turn::clear);
            Ok(())
        }),
        Import::TurnSnapshot => sync(it, import, |s, (): ()| -> Result<String, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.in_turn(None, Turn::snapshot))
        }),
        Import::MetricsIncr => sync(it, import, |s, (name, delta): (String, f64)| {
            s.metrics_granted()?;
            s.context.in_metrics(Some(&name.clone()), |metrics| metrics.incr(name, delta))
        }),
        Import::MetricsSet => sync(it, import, |s, (name, value): (String, f64)| {
            s.metrics_granted()?;
            s.context.in_metrics(Some(&name.clone()), |metrics| metrics.set(name, value))
        }),
        Import::MetricsGet => sync(it, import, |s, (name,): (String,)| -> Result<f64, metrics::Error> {
            s.metrics_granted()?;
            Ok(s.context.in_metrics(Some(&name), |metrics| metrics.get(&name)))
        }),
        Import::MetricsReset => sync(it, import, |s, (name,): (Option<String>,)| -> Result<(), metrics::Error> {
            s.metrics_granted()?;
            s.context.in_metrics(name.as_deref(), |metrics| metrics.reset(name.as_deref()));
            Ok(())
        }),
        Import::MetricsSnapshot => sync(it, import, |s, (): ()| -> Result<Vec<(String, f64)>, metrics::Error> {
            s.metrics_granted()?;
            Ok(s.context.in_metrics(None, Metrics::snapshot))
        }),
        other => misplaced(other),
    }
}
