//! What the calls of one project may use together at one time, beside instances and their memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much that is at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amounts {
    /// Commands that run at one time.
    pub commands: u32,
    /// Calls of `fs.*` that have files open at one time; each has a few.
    pub open_files: u32,
    /// Bytes of the bodies of requests and answers that are under way.
    pub http_bytes: u64,
    /// Connections of commands to hosts at one time; each takes two descriptors.
    pub connections: u32,
}

impl Default for Amounts {
    /// As much as there is, and a quarter of the connections: who has all of them leaves others without descriptors.
    fn default() -> Self {
        Self { commands: u32::MAX, open_files: u32::MAX, http_bytes: u64::MAX, connections: MAX_CONNECTIONS / 4 }
    }
}

/// Connections of the commands of all projects of a host at one time.
pub const MAX_CONNECTIONS: u32 = 512;

/// What of that is in use.
#[derive(Debug)]
pub struct Resources {
    most: Amounts,
    commands: Arc<Semaphore>,
    open_files: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    http_bytes: AtomicU64,
}

impl Default for Resources {
    fn default() -> Self {
        Self::new(Amounts::default())
    }
}

impl Resources {
    /// Nothing of it in use.
    pub fn new(most: Amounts) -> Self {
        let places = |count: u32| {
            let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(count))
        };
        Self {
            most,
            commands: places(most.commands),
            open_files: places(most.open_files),
            connections: places(most.connections),
            http_bytes: AtomicU64::new(0),
        }
    }

    /// A place for a command, for as long as it runs.
    ///
    /// # Errors
    ///
    /// Why there is none after this time.
    pub async fn command(&self, patience: Duration) -> Result<OwnedSemaphorePermit, String> {
        let place = tokio::time::timeout(patience, self.commands.clone().acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| {
            let (ms, most) = (patience.as_millis(), self.most.commands);
            busy(&format!("the command waited {ms} ms for one of the project's {most} commands to end"), "commands")
        })
    }

    /// A place for a call of `fs.*` that opens files, for as long as it works. Waits until there is one: the deadline of
    /// its call ends that.
    pub async fn open_files(&self) -> Option<OwnedSemaphorePermit> {
        self.open_files.clone().acquire_owned().await.ok()
    }

    /// A place for a connection of a command, for as long as it lasts.
    ///
    /// # Errors
    ///
    /// Why there is none now.
    pub fn connection(&self) -> Result<OwnedSemaphorePermit, String> {
        self.connections.clone().try_acquire_owned().map_err(|_| {
            let what = format!("the project's commands have {} connections", self.most.connections);
            busy(&what, "connections")
        })
    }

    /// Room for the bodies of an exchange.
    pub fn bodies(self: &Arc<Self>) -> Bodies {
        Bodies { resources: Some(self.clone()), bytes: 0 }
    }

    /// Bytes of bodies that are under way now.
    pub fn http_bytes(&self) -> u64 {
        self.http_bytes.load(Ordering::Relaxed)
    }
}

/// What the bodies of one exchange take of the project's bytes; given back when it is dropped.
#[derive(Debug, Default)]
pub struct Bodies {
    resources: Option<Arc<Resources>>,
    bytes: u64,
}

impl Bodies {
    /// Takes room for more bytes.
    ///
    /// # Errors
    ///
    /// Why there is not as much.
    pub fn take(&mut self, bytes: usize) -> Result<(), String> {
        let Some(resources) = &self.resources else { return Ok(()) };
        let (bytes, most) = (bytes as u64, resources.most.http_bytes);
        let more = |taken: u64| taken.checked_add(bytes).filter(|after| *after <= most);
        match resources.http_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(_) => {
                let what = format!("the bodies of the project's requests together would exceed {most} bytes");
                Err(busy(&what, "http_bytes"))
            }
        }
    }
}

impl Drop for Bodies {
    fn drop(&mut self) {
        if let Some(resources) = &self.resources {
            resources.http_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

fn busy(what: &str, key: &str) -> String {
    format!("busy: {what} (`{key}`, set by the project's quota); retry later")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back() {
        let resources = Arc::new(Resources::new(Amounts { http_bytes: 10, ..Amounts::default() }));
        let (mut one, mut two) = (resources.bodies(), resources.bodies());
        assert_eq!((one.take(6), two.take(4)), (Ok(()), Ok(())));
        let why = "busy: the bodies of the project's requests together would exceed 10 bytes (`http_bytes`, set by the project's quota); retry later";
        assert_eq!(two.take(1), Err(why.to_owned()));
        drop(one);
        assert_eq!((two.take(6), resources.http_bytes()), (Ok(()), 10));
        drop(two);
        assert_eq!(resources.http_bytes(), 0);
        // Without a bound, and without a project.
        assert_eq!(Arc::new(Resources::default()).bodies().take(usize::MAX), Ok(()));
        assert_eq!(Bodies::default().take(usize::MAX), Ok(()));
    }

    #[test]
    fn connections_are_counted() {
        let resources = Resources::new(Amounts { connections: 1, ..Amounts::default() });
        let first = resources.connection().unwrap();
        let why =
            "busy: the project's commands have 1 connections (`connections`, set by the project's quota); retry later";
        assert_eq!(resources.connection().unwrap_err(), why);
        drop(first);
        assert!(resources.connection().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn commands_wait_for_a_place() {
        let resources = Arc::new(Resources::new(Amounts { commands: 1, ..Amounts::default() }));
        let first = resources.command(Duration::ZERO).await.unwrap();
        let why = "busy: the command waited 250 ms for one of the project's 1 commands to end (`commands`, set by the project's quota); retry later";
        assert_eq!(resources.command(Duration::from_millis(250)).await.unwrap_err(), why);
        drop(first);
        assert!(resources.command(Duration::ZERO).await.is_ok());
    }
}
