//! What leaves the process or comes from the machine: HTTP, commands, time, random numbers, variables, secrets.

use std::time::{Duration, Instant};

use wasmtime::Result;

use super::super::price::Import;
use super::super::state::Context;
use super::{Target, misplaced, sync, waiting};
use harness_capability::{clock, env, exec, fs, http, random};
use harness_policy::layer::Service;

/// How often it is counted what a command has written so far, at most.
const COUNTED: Duration = Duration::from_millis(500);

/// Waits until the workspace holds more than it may. Counting takes no more than a twentieth of the time.
async fn full(context: &Context) -> fs::Error {
    let mut pause = COUNTED;
    loop {
        tokio::time::sleep(pause).await;
        let (began, there) = (Instant::now(), context.clone());
        let counting = tokio::task::spawn_blocking(move || there.workspace.count_while_written());
        // One that cannot be counted now is counted after the command.
        if let Ok(Err(full @ fs::Error::AccessDenied(_))) = counting.await {
            return full;
        }
        pause = COUNTED.max(began.elapsed() * 20);
    }
}

pub(super) fn define(it: &mut Target<'_>, import: Import) -> Result<()> {
    match import {
        Import::HttpSend => waiting(it, import, |state, (request,): (http::Request,)| {
            let (context, handles) = (state.context.clone(), state.handles.clone());
            async move { context.http().send(&context.grant, &handles, request).await }
        }),
        Import::ExecRun => waiting(it, import, |state, (command,): (exec::Command,)| {
            let (context, handles) = (state.context.clone(), state.handles.clone());
            let left = state.deadline.saturating_duration_since(Instant::now());
            if let Some(tier) = context.exec().tier(&context.grant, &command) {
                state.usage.tier = state.usage.tier.max(tier);
            }
            let resources = state.standing.share.resources().clone();
            async move {
                // Before the folder is checked: without a command there is nothing to learn from it.
                context.grant.decide_command(&command.program, &command.args)?;
                let began = Instant::now();
                let _place = resources.command(command.time().min(left)).await.map_err(exec::Error::Start)?;
                let left = left.saturating_sub(began.elapsed());
                // On another thread, as everything that asks a disk.
                let (there, path) = (context.clone(), command.dir.clone());
                let opening = tokio::task::spawn_blocking(move || {
                    let dir = there.workspace.open_dir(&there.grant, &path)?;
                    Ok::<_, fs::Error>((dir, there.workspace.admit_command(&there.grant)?))
                });
                let (dir, writing) = opening.await.map_err(|error| exec::Error::Start(error.to_string()))??;
                let workspace = context.workspace.absolute().as_ref();
                let variables = context.variables();
                let http = context.http();
                let listings = context.workspace.listings();
                let place = exec::ExecContext { dir: &dir, workspace, listings, handles: &handles, variables, http };
                let run = context.exec().run(&context.grant, place, left, command);
                if !writing.is_counted() {
                    return run.await;
                }
                let ended = tokio::select! {
                    biased;
                    ended = run => ended,
                    full = full(&context) => return Err(full.into()),
                };
                writing.end();
                ended
            }
        }),
        Import::ClockNow => sync(it, import, |s, (): ()| -> Result<clock::Moment, clock::Error> {
            s.granted(Service::Clock).map_err(|refusal| clock::Error::AccessDenied(refusal.into()))?;
            Ok(s.context.clock().now())
        }),
        Import::ClockSleep => waiting(it, import, |s, (milliseconds,): (u32,)| {
            let granted = s.granted(Service::Clock).map_err(|refusal| clock::Error::AccessDenied(refusal.into()));
            let clock = s.context.clock().clone();
            async move {
                granted?;
                clock.sleep(milliseconds).await;
                Ok::<(), clock::Error>(())
            }
        }),
        Import::RandomBytes => sync(it, import, |s, (count,): (u32,)| -> Result<Vec<u8>, random::Error> {
            s.granted(Service::Random).map_err(|refusal| random::Error::AccessDenied(refusal.into()))?;
            Ok(s.context.random().bytes(count))
        }),
        Import::EnvGet => sync(it, import, |s, (name,): (String,)| {
            let holds_none = s.context.secrets.decide_variable(&name);
            holds_none.map_err(|refusal| env::Error::AccessDenied(refusal.into()))?;
            s.context.variables().get(s.grant(), &name)
        }),
        Import::SecretsHandle => sync(it, import, |s, (name,): (String,)| s.handles.handle(&s.context.grant, &name)),
        other => misplaced(other),
    }
}
