//! A sign of life on a terminal, for what takes longer than a second.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long nothing is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// Of the thread that draws.
const NAME: &str = "sign";

/// Who may draw: a process has one terminal.
static TERMINAL: Mutex<()> = Mutex::new(());

/// Shown from one second after it is made until it is dropped; never where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    pub(crate) fn start(message: String) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { running: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let draw = move || {
            if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            // Setting the message of one that is there would draw it.
            let bar = ProgressBar::new_spinner().with_message(harness_artifact::escape::line(&message).into_owned());
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            let bar = style.map_or(bar.clone(), |style| bar.with_style(style)).with_elapsed(PATIENCE);
            while stopped.recv_timeout(FRAME) == Err(RecvTimeoutError::Timeout) {
                // Not while another process has the terminal, who must not wait for this thread to end either.
                if let Ok(_drawing) = TERMINAL.try_lock() {
                    bar.tick();
                }
            }
            match TERMINAL.try_lock() {
                Ok(_drawing) => bar.finish_and_clear(),
                // It would draw when it is dropped.
                Err(_) => bar.set_draw_target(ProgressDrawTarget::hidden()),
            }
        };
        let thread = std::thread::Builder::new().name(NAME.to_owned()).spawn(draw);
        Self { running: thread.ok().map(|thread| (stop, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Keeps the terminal to whoever holds this, with nothing on its last line.
pub(crate) fn quiet() -> MutexGuard<'static, ()> {
    let terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        // To the first column, and clear to the end of the line (ECMA-48, 8.3.41).
        let _ = err.write_all(b"\r\x1b[K");
        let _ = err.flush();
    }
    terminal
}
