//! The threads of guests that compute for long.
//!
//! A call begins where its caller polls it: most are over before anyone could notice. One that computes until the
//! engine's clock ticks, or that has to wait for one that does, continues here. So the caller's own threads stay free for what
//! else they do, however many guests compute.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use std::time::Duration;

use harness_sys::slices::ask_for_long_slices;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::gate::Turn;
use super::slices::{self, Sliced};
use crate::strand;

/// Made when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    runtime: Mutex<Option<Runtime>>,
    /// Calls that continue there.
    calls: AtomicUsize,
}

/// How many guests compute at one time: one on each core.
pub(crate) fn slots() -> usize {
    available_parallelism().map_or(1, usize::from)
}

thread_local! {
    /// Whether this is one of these threads.
    static GUEST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Guests {
    /// The threads for one more call.
    fn begin(&self) -> io::Result<Handle> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            self.calls.fetch_add(1, Ordering::SeqCst);
            return Ok(runtime.handle().clone());
        }
        // What comes from outside, and what has become ready, is looked for after each slice: there are few tasks that
        // could run, and many that wait.
        let made = Builder::new_multi_thread()
            .worker_threads(slots())
            .thread_name("harness-guest")
            .on_thread_start(|| {
                GUEST.set(true);
                // Callers and the clock have little to do, and do it at once.
                ask_for_long_slices();
            })
            .global_queue_interval(1)
            .event_interval(1)
            .enable_all()
            .build()?;
        let handle = made.handle().clone();
        *runtime = Some(made);
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(handle)
    }

    /// Ends the threads where no call continues there.
    pub(crate) fn rest(&self) {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if self.calls.load(Ordering::SeqCst) == 0
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        let runtime = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            // Where this is dropped nobody may be kept waiting.
            runtime.shutdown_background();
        }
    }
}

/// Work of one call: here until it is long, then on the guests' threads. To drop it ends it, before that returns.
pub(crate) struct Work<T> {
    at: At<T>,
    guests: Arc<Guests>,
}

enum At<T> {
    Here(Box<Sliced<T>>),
    There { work: Moved<T>, end: oneshot::Receiver<T>, task: AbortHandle },
    Over,
}

/// Owned by the task that continues it and by who waits for that, and gone when either is done with it.
type Moved<T> = Arc<Mutex<Option<Box<Sliced<T>>>>>;

impl<T: Send + 'static> Work<T> {
    pub(crate) fn new(guests: &Arc<Guests>, turn: Turn, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { at: At::Here(Box::new(Sliced::new(Box::pin(work), turn))), guests: guests.clone() }
    }

    /// Lets it continue there, where there are such threads.
    fn moved(&mut self) -> Result<(), Box<Sliced<T>>> {
        let At::Here(work) = std::mem::replace(&mut self.at, At::Over) else { return Ok(()) };
        let Ok(handle) = self.guests.begin() else { return Err(work) };
        work.moves();
        let work: Moved<T> = Arc::new(Mutex::new(Some(work)));
        let (tell, end) = oneshot::channel();
        let there = There { work: work.clone(), tell: Some(tell) };
        let task = match strand::current() {
            Some(strand) => handle.spawn(strand::in_strand(strand, there)).abort_handle(),
            None => handle.spawn(there).abort_handle(),
        };
        self.at = At::There { work, end, task };
        Ok(())
    }
}

impl<T: Send + 'static> Future for Work<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let At::Here(work) = &mut self.at {
            let polled = Pin::new(&mut **work).poll(context);
            let stays = polled.is_ready() || !work.is_long() || GUEST.get() || slices::is_inside();
            if stays {
                return polled;
            }
            if let Err(work) = self.moved() {
                self.at = At::Here(work);
                return Poll::Pending;
            }
        }
        match &mut self.at {
            At::There { end, .. } => match Pin::new(end).poll(context) {
                Poll::Ready(Ok(done)) => Poll::Ready(done),
                // What panicked there panics here.
                Poll::Ready(Err(_)) => std::panic::resume_unwind(Box::new("a call ended without a result")),
                Poll::Pending => Poll::Pending,
            },
            At::Here(_) | At::Over => Poll::Pending,
        }
    }
}

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        if let At::There { work, task, .. } = &self.at {
            // Waits for the end of a slice where it is in one.
            drop(work.lock().unwrap_or_else(PoisonError::into_inner).take());
            task.abort();
            self.guests.calls.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The task that resumes it.
struct There<T> {
    work: Moved<T>,
    tell: Option<oneshot::Sender<T>>,
}

impl<T> Future for There<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let held = self.work.clone();
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(work) = &mut *held else { return Poll::Ready(()) };
        let Poll::Ready(done) = Pin::new(&mut **work).poll(context) else { return Poll::Pending };
        // Gone before anyone hears of it.
        *held = None;
        drop(held);
        if let Some(tell) = self.tell.take() {
            let _ = tell.send(done);
        }
        Poll::Ready(())
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}
