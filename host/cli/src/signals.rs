//! What asks this process to end: Ctrl-C, SIGTERM, and SIGHUP when its terminal is gone.

use std::future::pending;

use harness_sys as sys;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Exit;

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Hangup,
    Interrupt,
    Terminate,
}

impl Heard {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    pub(crate) fn exit(self) -> Exit {
        Exit::Signal(match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        })
    }
}

/// Hears signals, from when it is made on.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Option<Signal>,
    /// None where the process was started to outlive its terminal.
    hangup: Option<Signal>,
}

impl Signals {
    /// To be made within a runtime.
    pub(crate) fn new() -> Self {
        let hangup = (!sys::ignores_hangup()).then(|| signal(SignalKind::hangup()).ok()).flatten();
        Self { terminate: signal(SignalKind::terminate()).ok(), hangup }
    }

    /// What work comes to, unless it is asked to end first.
    ///
    /// # Errors
    ///
    /// What was heard.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Heard> {
        tokio::select! {
            // Heard from before the work begins.
            biased;
            heard = self.any() => Err(heard),
            ended = work => Ok(ended),
        }
    }

    /// The same where Ctrl-C is a third party's.
    ///
    /// # Errors
    ///
    /// What was heard.
    pub(crate) async fn unless_ended<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Heard> {
        tokio::select! {
            biased;
            heard = self.ending() => Err(heard),
            ended = work => Ok(ended),
        }
    }

    /// From now on each ends the process at once: who asks while it ends does not want to wait. On another thread than
    /// the one that may be busy with the end.
    pub(crate) fn at_once(mut self) {
        tokio::spawn(async move {
            let heard = self.any().await;
            std::process::exit(heard.exit().code().into());
        });
    }

    async fn any(&mut self) -> Heard {
        tokio::select! {
            biased;
            heard = self.ending() => heard,
            _ = ctrl_c() => Heard::Interrupt,
        }
    }

    async fn ending(&mut self) -> Heard {
        tokio::select! {
            () = hears(&mut self.terminate) => Heard::Terminate,
            () = hears(&mut self.hangup) => Heard::Hangup,
        }
    }
}

async fn hears(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}
