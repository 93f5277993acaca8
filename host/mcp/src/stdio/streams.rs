//! The two streams to a client: lines that are read, messages that are written.
//!
//! What is at the other end may block who reads or writes for as long as it wants. So both are done here only where that
//! cannot be, and on a thread of their own otherwise: each change of threads on the way of a call takes longer than most
//! calls do.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use harness_sys::nowait;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use crate::frame::{Frame, Framer};
use crate::message::MAX_MESSAGE;

/// Messages that wait to be handled, and answers that wait to be written.
const WAITING: usize = 64;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Lines of a client.
pub(super) struct Lines(From);

enum From {
    Here(Here),
    /// Read by a thread.
    There(mpsc::Receiver<Frame>),
}

struct Here {
    stream: AsyncFd<OwnedFd>,
    /// For a thread, where it turns out that the stream can only be waited for.
    input: Option<Box<dyn Read + Send>>,
    framer: Framer,
    chunk: Vec<u8>,
    found: VecDeque<Frame>,
    is_over: bool,
}

impl Lines {
    /// Of a stream. To be called in a runtime.
    ///
    /// # Errors
    ///
    /// That a thread for it cannot be started.
    pub(super) fn new(input: impl Read + AsFd + Send + 'static) -> io::Result<Self> {
        let Some(stream) = registered(&input) else { return Ok(Self(From::There(thread(Box::new(input))?))) };
        let (framer, chunk) = (Framer::new(MAX_MESSAGE), vec![0; CHUNK]);
        let here = Here { stream, input: Some(Box::new(input)), framer, chunk, found: VecDeque::new(), is_over: false };
        Ok(Self(From::Here(here)))
    }

    /// The next one, until the stream ends. A call that is dropped has taken none.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            let here = match &mut self.0 {
                From::There(frames) => return frames.recv().await,
                From::Here(here) => here,
            };
            if let Some(frame) = here.found.pop_front() {
                return Some(frame);
            }
            if here.is_over {
                return None;
            }
            if let Some(input) = here.read().await {
                self.0 = From::There(thread(input).ok()?);
            }
        }
    }

    /// Takes no more of them.
    pub(super) fn close(&mut self) {
        match &mut self.0 {
            From::There(frames) => frames.close(),
            From::Here(here) => here.is_over = true,
        }
    }
}

/// A handle of a stream that the runtime waits for. None of a file, which is always ready.
fn registered(input: &impl AsFd) -> Option<AsyncFd<OwnedFd>> {
    let own = input.as_fd().try_clone_to_owned().ok()?;
    // SAFETY: it owns the descriptor, which stays open and the same until it is dropped.
    #[expect(unsafe_code, reason = "the one way to wait for a descriptor here")]
    let stream = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) };
    stream.ok()
}

impl Here {
    /// Reads what there is, as soon as there is something. Returns the stream if a thread has to do that.
    async fn read(&mut self) -> Option<Box<dyn Read + Send>> {
        let Ok(mut ready) = self.stream.readable().await else {
            self.is_over = true;
            return None;
        };
        match ready.try_io(|stream| nowait::read(stream, &mut self.chunk)) {
            Ok(Ok(count)) if count > 0 => {
                if count < self.chunk.len() {
                    // That was all: what comes next is a new event.
                    ready.clear_ready();
                }
                self.found.extend(self.framer.feed(self.chunk.get(..count).unwrap_or_default()));
            }
            // There was nothing yet.
            Err(_) => {}
            Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
            Ok(Err(error)) if error.kind() == ErrorKind::Unsupported => return self.input.take(),
            Ok(Ok(_) | Err(_)) => {
                self.found.extend(self.framer.end());
                self.is_over = true;
            }
        }
        None
    }
}

/// Reads on a thread, which ends with the stream, or with the process.
fn thread(mut input: Box<dyn Read + Send>) -> io::Result<mpsc::Receiver<Frame>> {
    let (found, frames) = mpsc::channel(WAITING);
    let work = move || {
        let mut framer = Framer::new(MAX_MESSAGE);
        let mut chunk = vec![0; CHUNK];
        loop {
            let lines = match input.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(read) => framer.feed(chunk.get(..read).unwrap_or_default()),
            };
            if lines.into_iter().any(|line| found.blocking_send(line).is_err()) {
                return;
            }
        }
        let _ = framer.end().map(|line| found.blocking_send(line));
    };
    std::thread::Builder::new().name("mcp-read".to_owned()).spawn(work)?;
    Ok(frames)
}

/// Where messages to a client are written, in the order in which they are sent.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    /// The thread, for what would have to wait.
    behind: mpsc::Sender<Vec<u8>>,
    now: Arc<Mutex<Now>>,
}

#[derive(Debug)]
struct Now {
    /// None if the stream can only be waited for.
    stream: Option<OwnedFd>,
    /// Messages that the thread has not written yet: nothing may overtake them.
    waiting: usize,
}

/// That nothing can be written to a client any more.
#[derive(Debug)]
pub(crate) struct Closed;

impl Outlet {
    /// Begins to write. The second value is how that ended, once all of the first are gone.
    ///
    /// # Errors
    ///
    /// That the thread cannot be started.
    pub(super) fn new(
        mut output: impl Write + AsFd + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<io::Result<()>>)> {
        let now = Now { stream: output.as_fd().try_clone_to_owned().ok(), waiting: 0 };
        let now = Arc::new(Mutex::new(now));
        let (behind, mut messages) = mpsc::channel::<Vec<u8>>(WAITING);
        let (ended, written) = oneshot::channel();
        let state = now.clone();
        let work = move || {
            let mut result = Ok(());
            while let (true, Some(message)) = (result.is_ok(), messages.blocking_recv()) {
                result = output.write_all(&message).and_then(|()| output.flush());
                if result.is_ok() {
                    held(&state).waiting -= 1;
                }
            }
            let _ = ended.send(result);
        };
        std::thread::Builder::new().name("mcp-write".to_owned()).spawn(work)?;
        Ok((Self { behind, now }, written))
    }

    /// Writes a message, or what of it would have to wait is written in its turn. Waits while too many do.
    pub(crate) async fn send(&self, message: Vec<u8>) -> Result<(), Closed> {
        let room = self.behind.reserve().await.map_err(|_| Closed)?;
        let mut now = held(&self.now);
        let rest = if now.waiting == 0 { now.write(message) } else { message };
        if !rest.is_empty() {
            now.waiting += 1;
            room.send(rest);
        }
        Ok(())
    }

    /// Waits until nothing can be written any more.
    pub(super) async fn closed(&self) {
        self.behind.closed().await;
    }
}

fn held(now: &Mutex<Now>) -> MutexGuard<'_, Now> {
    now.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Now {
    /// Writes as much of a message as there is room for. Returns the rest.
    fn write(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        let Some(stream) = &self.stream else { return message };
        match nowait::write(stream, &message) {
            Ok(count) => message.split_off(count.min(message.len())),
            Err(error) => {
                if error.kind() == ErrorKind::Unsupported {
                    self.stream = None;
                }
                // What else is wrong the thread meets too.
                message
            }
        }
    }
}
