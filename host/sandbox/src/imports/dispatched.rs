//! What goes back into dispatch: events, tools, agents, tasks, and hooks that hear of built-ins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::Result;

use super::super::price::Import;
use super::{Target, misplaced, nested, sync};
use harness_capability::reentry::{Patience, Reentry};
use harness_capability::{ask, events, meta, observe};
use harness_policy::layer::Service;

pub(super) fn define(it: &mut Target<'_>, import: Import) -> Result<()> {
    match import {
        Import::EventsEmit => nested(it, import, |s, (event, payload): (String, String), left| {
            let granted = s.granted(Service::Events).map_err(|refusal| events::Error::AccessDenied(refusal.into()));
            let denied = || events::Error::Invalid("nothing in this run takes events".to_owned());
            (granted, s.context.reentry.clone().ok_or_else(denied), move |r: Arc<dyn Reentry>| async move {
                r.emit(event, payload, left).await
            })
        }),
        Import::MetaRegisterTool => nested(it, import, |s, (tool,): (meta::NewTool,), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.register_tool(tool, left).await })
        }),
        Import::MetaRegisterHook => nested(it, import, |s, (hook,): (meta::NewHook,), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.register_hook(hook, left).await })
        }),
        Import::MetaCallTool => nested(it, import, |s, (name, arguments): (String, String), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.call_tool(name, arguments, left).await })
        }),
        Import::MetaCallAll => nested(it, import, |s, (calls,): (String,), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.call_all(calls, left).await })
        }),
        Import::MetaListTools => nested(it, import, |s, (pattern,): (Option<String>,), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.list_tools(pattern, left).await })
        }),
        Import::AgentsDelegate => nested(it, import, |s, (agent, task): (String, String), left| {
            let (granted, reentry) = s.agents();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.delegate(agent, task, left).await })
        }),
        Import::AgentsDelegateAsync => nested(it, import, |s, (agent, task): (String, String), left| {
            let (granted, reentry) = s.agents();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.delegate_async(agent, task, left).await })
        }),
        Import::TasksPoll => nested(it, import, |s, (id,): (String,), _| {
            let (granted, reentry) = s.tasks();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move {
                let (all, used) = r.tasks(vec![id], Patience::None).await;
                // A list of one, without its brackets.
                let one = all.map(|all| all.get(1..all.len().saturating_sub(1)).unwrap_or_default().to_owned());
                (one, used)
            })
        }),
        Import::TasksWait => nested(it, import, |s, (ids, timeout): (Vec<String>, Option<u32>), left| {
            let (granted, reentry) = s.tasks();
            let end = timeout.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms.into())));
            // Its own deadline ends the script, not the wait: what it does at that moment is not a matter of luck.
            let until = end.filter(|end| *end < left.deadline);
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.tasks(ids, Patience::Until(until)).await })
        }),
        Import::ObserveBefore => nested(it, import, |s, (function, arguments): (String, String), left| {
            (Ok(()), s.observer(), move |r: Arc<dyn Reentry>| async move {
                observe::before(&*r, &function, &arguments, left).await
            })
        }),
        Import::ObserveAfter => nested(it, import, |s, (function, ended): (String, String), left| {
            (Ok(()), s.observer(), move |r: Arc<dyn Reentry>| async move {
                observe::after(&*r, &function, &ended, left).await
            })
        }),
        Import::AskAsk => nested(it, import, |s, (questions,): (String,), left| {
            let read = ask::read(&questions);
            let granted = read.as_ref().map_err(Clone::clone).and_then(|all| s.ask_granted(all));
            let questions = read.unwrap_or_default();
            (granted, s.client(), move |r: Arc<dyn Reentry>| async move { r.ask(questions, left).await })
        }),
        Import::AskCan => sync(it, import, |s, (): ()| -> Result<Vec<String>, ask::Error> { Ok(s.can_ask()) }),
        other => misplaced(other),
    }
}
