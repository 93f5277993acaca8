//! Values that calls share: of a run, of a turn, and metrics.

use wasmtime::Result;

use super::super::price::Import;
use super::{Target, misplaced, sync};
use harness_capability::{cache, metrics, turn};

pub(super) fn define(it: &mut Target<'_>, import: Import) -> Result<()> {
    match import {
        Import::CacheGet => sync(it, import, |s, (key,): (String,)| -> Result<Option<String>, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.session.cache.get(&key))
        }),
        Import::CacheSet => sync(it, import, |s, (key, value): (String, String)| {
            s.cache_granted()?;
            s.context.session.cache.set(key, value)
        }),
        Import::CacheHas => sync(it, import, |s, (key,): (String,)| -> Result<bool, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.session.cache.has(&key))
        }),
        Import::CacheDelete => sync(it, import, |s, (key,): (String,)| -> Result<bool, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.session.cache.delete(&key))
        }),
        Import::CacheClear => sync(it, import, |s, (): ()| -> Result<(), cache::Error> {
            s.cache_granted()?;
            s.context.session.cache.clear();
            Ok(())
        }),
        Import::TurnGet => sync(it, import, |s, (key,): (String,)| -> Result<Option<String>, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.turn.get(&key))
        }),
        Import::TurnSet => sync(it, import, |s, (key, value): (String, String)| {
            s.turn_granted()?;
            s.context.turn.set(key, value)
        }),
        Import::TurnHas => sync(it, import, |s, (key,): (String,)| -> Result<bool, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.turn.has(&key))
        }),
        Import::TurnDelete => sync(it, import, |s, (key,): (String,)| {
            s.turn_granted()?;
            s.context.turn.delete(&key)
        }),
        Import::TurnClear => sync(it, import, |s, (): ()| -> Result<(), turn::Error> {
            s.turn_granted()?;
            s.context.turn.clear();
            Ok(())
        }),
        Import::TurnSnapshot => sync(it, import, |s, (): ()| -> Result<String, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.turn.snapshot())
        }),
        Import::MetricsIncr => sync(it, import, |s, (name, delta): (String, f64)| {
            s.metrics_granted()?;
            s.context.session.metrics.incr(name, delta)
        }),
        Import::MetricsSet => sync(it, import, |s, (name, value): (String, f64)| {
            s.metrics_granted()?;
            s.context.session.metrics.set(name, value)
        }),
        Import::MetricsGet => sync(it, import, |s, (name,): (String,)| -> Result<f64, metrics::Error> {
            s.metrics_granted()?;
            Ok(s.context.session.metrics.get(&name))
        }),
        Import::MetricsReset => sync(it, import, |s, (name,): (Option<String>,)| -> Result<(), metrics::Error> {
            s.metrics_granted()?;
            s.context.session.metrics.reset(name.as_deref());
            Ok(())
        }),
        Import::MetricsSnapshot => sync(it, import, |s, (): ()| -> Result<Vec<(String, f64)>, metrics::Error> {
            s.metrics_granted()?;
            Ok(s.context.session.metrics.snapshot())
        }),
        other => misplaced(other),
    }
}
