//! A sign of life on a terminal, for what takes longer than a second.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

/// How long nothing is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// Shown from one second after it is made until it is dropped; never where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    #[expect(clippy::disallowed_methods, reason = "a thread that only draws")]
    pub(crate) fn start(message: String) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { running: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_message(harness::artifact::escape::line(&message).into_owned());
            while stopped.recv_timeout(FRAME) == Err(RecvTimeoutError::Timeout) {
                bar.tick();
            }
            bar.finish_and_clear();
        });
        Self { running: Some((stop, thread)) }
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
