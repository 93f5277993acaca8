//! The events of a run as they happen: a connection that is lost is made again after the last event that came.

use std::time::Duration;

use hyper::Method;
use reqwest::header::ACCEPT;
use serde_json::Value as Json;

use super::{Answer, Lost, PAUSE, Remote, in_path};

/// Bytes of one event. A server cuts longer ones.
const MAX_EVENT: usize = 2 << 20;
/// A server says that it is there every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// How often in a row a connection may bring nothing.
const ATTEMPTS: u32 = 10;
/// The longest pause between two.
const LONGEST: Duration = Duration::from_secs(5);

/// Why there are no more events.
#[derive(Debug)]
pub enum Ended {
    /// The server refuses them.
    Refused(Answer),
    /// There is no answer.
    Lost(Lost),
}

/// What reads the events of one run.
#[derive(Debug)]
pub struct Events<'r> {
    remote: &'r Remote,
    path: String,
    /// The position of the last event that came.
    after: u64,
    connection: Option<reqwest::Response>,
    /// What came and is no whole event yet.
    rest: Vec<u8>,
    /// Connections since something whole came.
    attempts: u32,
    was_connected: bool,
    is_over: bool,
}

impl<'r> Events<'r> {
    /// Of a run, from its beginning.
    pub fn of(remote: &'r Remote, run: &str) -> Self {
        let path = format!("/v1/runs/{}/events", in_path(run));
        Self {
            remote,
            path,
            after: 0,
            connection: None,
            rest: Vec::new(),
            attempts: 0,
            was_connected: false,
            is_over: false,
        }
    }

    /// The next event. None: the run has ended.
    ///
    /// # Errors
    ///
    /// There are no more, and why.
    pub async fn next(&mut self) -> Result<Option<Json>, Ended> {
        loop {
            while let Some(block) = self.block() {
                self.attempts = 0;
                let Some((position, event)) = event(&block) else { continue };
                // What came before the connection was lost may come again.
                if position <= self.after {
                    continue;
                }
                self.after = position;
                self.is_over = event.get("type").and_then(Json::as_str) == Some("end");
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            self.more().await?;
        }
    }

    /// Reads more, on a new connection where there is none.
    async fn more(&mut self) -> Result<(), Ended> {
        let Some(connection) = &mut self.connection else { return self.connect().await };
        let came = tokio::time::timeout(SILENCE, connection.chunk()).await;
        match came {
            Ok(Ok(Some(some))) if self.rest.len().saturating_add(some.len()) <= MAX_EVENT => {
                self.rest.extend_from_slice(&some);
                Ok(())
            }
            Ok(Ok(Some(_))) => Err(Ended::Lost(self.remote.lost(&format!("an event has more than {MAX_EVENT} bytes")))),
            // Half an event comes again whole.
            Ok(Ok(None) | Err(_)) | Err(_) => {
                (self.connection, self.rest) = (None, Vec::new());
                Ok(())
            }
        }
    }

    async fn connect(&mut self) -> Result<(), Ended> {
        if self.attempts >= ATTEMPTS {
            return Err(Ended::Lost(self.remote.lost(&"the events of the run break off")));
        }
        if self.was_connected || self.attempts > 0 {
            tokio::time::sleep(PAUSE.saturating_mul(1 << self.attempts.min(6)).min(LONGEST)).await;
        }
        self.attempts += 1;
        let request = self.remote.request(Method::GET, &self.path).header(ACCEPT, "text/event-stream");
        let request = request.header("last-event-id", self.after.to_string());
        let sent = tokio::time::timeout(SILENCE, request.send()).await;
        let why = match sent {
            Ok(Ok(answer)) => {
                self.remote.not_elsewhere(&answer).map_err(|failed| Ended::Lost(failed.why))?;
                let status = answer.status().as_u16();
                if status == 200 {
                    (self.connection, self.was_connected) = (Some(answer), true);
                    return Ok(());
                }
                let body = self.remote.body(answer).await.map_err(|failed| Ended::Lost(failed.why))?;
                let refused = Ended::Refused(Answer { status, body });
                if !matches!(status, 429 | 502 | 503) {
                    return Err(refused);
                }
                refused
            }
            Ok(Err(error)) => Ended::Lost(self.remote.failed(&error).why),
            Err(_) => Ended::Lost(self.remote.lost(&"it takes too long")),
        };
        if self.attempts < ATTEMPTS { Ok(()) } else { Err(why) }
    }

    /// The next block of lines that is whole.
    fn block(&mut self) -> Option<String> {
        let at = self.rest.windows(2).position(|pair| pair == b"\n\n")?;
        let rest = self.rest.split_off(at.saturating_add(2));
        let block = std::mem::replace(&mut self.rest, rest);
        Some(String::from_utf8_lossy(&block).into_owned())
    }
}

/// The position of an event, and what it is. None: it is a sign that the server is there.
fn event(block: &str) -> Option<(u64, Json)> {
    let value = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let position = value("id:")?.parse().ok()?;
    let event: Json = serde_json::from_str(value("data:")?).ok()?;
    event.is_object().then_some((position, event))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_block_is_an_event_or_a_sign_of_life() {
        let read = event("id: 7\nevent: end\ndata: {\"type\":\"end\"}\n\n");
        assert_eq!(read, Some((7, json!({"type": "end"}))));
        for other in [": alive\n\n", "id: x\ndata: {}\n\n", "id: 1\n\n", "data: {}\n\n", "id: 1\ndata: [1]\n\n"] {
            assert_eq!(event(other), None, "{other}");
        }
    }
}
